"""`toolchart tail`: a conversation as it is written."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click

from toolchart.app.cli.commands.show import line
from toolchart.app.cli.exit_codes import DONE
from toolchart.app.cli.log_access import find, json_option, log_option, opened
from toolchart.engine.log import record as records
from toolchart.engine.log.record import Record
from toolchart.states.ports import Store

_PAUSE_S = 0.2
"""Between two looks at the log: quick to the eye, and nothing to a disk."""


@click.command(short_help="Follow a conversation as it is written.")
@click.argument("conversation", required=False)
@click.option(
    "--lines",
    "-n",
    "count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="The newest records to begin with.",
)
@click.option("--follow", "-f", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--until-over", is_flag=True, help="With -f: end when the turn is over.")
@json_option
@log_option
def command(
    conversation: str | None,
    count: int,
    follow: bool,
    until_over: bool,
    as_json: bool,
    log: str | None,
) -> int:
    """Print the newest records of CONVERSATION, by default of the one that was written last.

    \b
    Example:  toolchart tail -f
              toolchart tail 5f0c -n 0 -f --json
    """
    with opened(log) as store:
        name = find(store, conversation) if conversation else _newest(store)
        if name is None:
            click.echo("no conversations yet", err=True)
            return DONE
        for record in _records(store, name, count, follow):
            click.echo(record.line.decode() if as_json else line(record))
            sys.stdout.flush()
            if until_over and _ends(record):
                break
    return DONE


def _newest(store: Store) -> str | None:
    """The conversation whose newest record is the newest of all."""
    times = []
    for name in store.conversations():
        last = store.last(name)
        if last is not None:
            times.append((records.parse(last[1], last[0], name).at, name))
    return max(times)[1] if times else None


def _records(store: Store, name: str, count: int, follow: bool) -> Iterator[Record]:
    """The newest records, then what is appended; checked against each other."""
    last = store.last(name)
    seq = max(0, (last[0] + 1 if last else 0) - count)
    prev = None
    while True:
        for text in store.read(name, seq):
            record = records.parse(text, seq, name)
            prev = records.read(text, seq, record.prev if prev is None else prev, name).hash
            yield record
            seq += 1
        if not follow:
            return
        time.sleep(_PAUSE_S)


def _ends(record: Record) -> bool:
    return any(str(effect["type"]).startswith("answer") for effect in record.effects)
