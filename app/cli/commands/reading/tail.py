"""`toolchart tail`: print the newest records of a conversation, and follow it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click

from toolchart.app.cli.commands.reading.show import format_record
from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log
from toolchart.app.cli.newest_conversation import find_newest_conversation
from toolchart.app.cli.parameters.options import json_option, log_option
from toolchart.engine.log.reading.records import ReadRecord, read_line
from toolchart.states.ports import Store

_POLL_INTERVAL_S = 0.2
"""Seconds between two reads of the log."""


@click.command(short_help="Print the newest records of a conversation, and follow it.")
@click.argument("conversation", required=False)
@click.option(
    "--lines",
    "-n",
    "count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of newest records to print first.",
)
@click.option("--follow", "-f", is_flag=True, help="Print new records as they are written, until Ctrl-C.")
@click.option("--until-over", is_flag=True, help="With -f: stop when the turn is over.")
@json_option
@log_option
def command(
    conversation: str | None, count: int, follow: bool, until_over: bool, as_json: bool, log: str | None
) -> int:
    """Print the newest records of CONVERSATION; by default of the conversation with the newest record.

    \b
    Example:  toolchart tail -f
              toolchart tail 5f0c -n 0 -f --json
    """
    with open_log(log) as store:
        name = find_conversation(store, conversation) if conversation else find_newest_conversation(store)
        if name is None:
            click.echo("no conversations yet", err=True)
            return SUCCESS
        for record in _follow_records(store, name, count, follow):
            click.echo(record.line.decode() if as_json else format_record(record))
            sys.stdout.flush()
            if until_over and record.ends_turn:
                break
    return SUCCESS


def _follow_records(store: Store, name: str, count: int, follow: bool) -> Iterator[ReadRecord]:
    """Yield the newest records, then each new one; checks the hash chain between them."""
    last = store.read_last_line(name)
    seq = max(0, (last[0] + 1 if last else 0) - count)
    prev = None
    while True:
        for line in store.read_lines(name, seq):
            record = read_line(line, seq, prev, name)
            prev = record.hash
            yield record
            seq += 1
        if not follow:
            return
        time.sleep(_POLL_INTERVAL_S)
