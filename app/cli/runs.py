"""`toolchart runs`: the conversations of a log."""

from __future__ import annotations

from typing import Any

import click
import orjson

from toolchart.app.cli.common import json_option, log_option, opened, print_json, short
from toolchart.engine import record as records
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import Store


@click.command(short_help="List the conversations of a log.")
@json_option
@log_option
def command(as_json: bool, log: str | None) -> int:
    """List the conversations of a log, the oldest first.

    \b
    Example:  toolchart runs --json | jq -r .conversation
    """
    with opened(log) as store:
        for name in store.conversations():
            row = summary(store, name)
            if as_json:
                print_json(row, lines=True)
            else:
                click.echo(
                    f"{row['conversation']:<14} {row['at'][:19]:<19} {row['turns']:>3} turns  "
                    f"{row['records']:>5} records  {row['state']:<16} {short(row['message'], 60)}"
                )
    return 0


def summary(store: Store, conversation: str) -> dict[str, Any]:
    """One conversation in a row: id, time, turns, records, state, first words."""
    newest = store.last(conversation)
    if newest is None:
        raise LogDamaged("it has no records", conversation=conversation)
    seq, line = newest
    last = records.parse(line, seq, conversation)
    row: dict[str, Any] = {
        "conversation": conversation, "at": last.at, "turns": last.turn, "records": seq + 1,
        "state": last.target, "message": "",
    }  # fmt: skip
    for place, first in enumerate(store.read(conversation)):
        if place > 1:
            break
        data = orjson.loads(first)
        row["at"] = data["at"] if place == 0 else row["at"]
        row["message"] = data["event"].get("message", row["message"])
    return row
