"""`toolchart runs`: the conversations of a log."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.common import json_option, log_option, opened, print_json, short
from toolchart.app.cli.outcomes import DAMAGED, DONE
from toolchart.app.cli.text import room, styled, talk
from toolchart.engine import record as records
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import Store

_NEAR_THE_BEGINNING = 4
"""Records among which the first user message stands."""

_COLUMNS = ("conversation", "started", "turns", "records", "state", "message")


@click.command(short_help="List the conversations of a log.")
@json_option
@log_option
def command(as_json: bool, log: str | None) -> int:
    """List the conversations of a log, the oldest first: id, start, turns, records, state, first words.

    \b
    Example:  toolchart runs
              toolchart runs --json | jq -r .conversation
    """
    rows, damaged = [], False
    with opened(log) as store:
        for name in store.conversations():
            try:
                rows.append(summary(store, name))
            except LogDamaged as damage:
                damaged = True
                talk(f"toolchart: damaged: {damage}")
    if as_json:
        for row in rows:
            print_json(row, lines=True)
    elif rows:
        _print_table(rows)
    elif not damaged:
        talk("no conversations yet")
    return DAMAGED if damaged else DONE


def summary(store: Store, conversation: str) -> dict[str, Any]:
    """One conversation in a row: id, time, turns, records, state, first words.

    Raises:
        LogDamaged: what it is made from cannot be read. The rest is not looked at.
    """
    newest = store.last(conversation)
    if newest is None:
        raise LogDamaged("it has no records", conversation=conversation)
    last = records.parse(newest[1], newest[0], conversation)
    row: dict[str, Any] = {
        "conversation": conversation, "at": "", "turns": last.turn, "records": newest[0] + 1,
        "state": last.target, "message": "",
    }  # fmt: skip
    for seq, line in enumerate(store.read(conversation)):
        record = records.parse(line, seq, conversation)
        row["at"] = row["at"] or record.at
        if record.event.get("type") == "turn_started":
            row["message"] = record.event.get("message", "")
            break
        if seq >= _NEAR_THE_BEGINNING:
            break
    return row


def _print_table(rows: list[dict[str, Any]]) -> None:
    cells = [_COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS) - 1)]
    left = max(20, room() - sum(widths) - 2 * len(widths))
    for place, line in enumerate(cells):
        fitted = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        text = "  ".join([*fitted, short(line[-1], left)]).rstrip()
        click.echo(text if place else styled(text, bold=True))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    started = row["at"][:19].replace("T", " ")
    name, state = short(row["conversation"], 40), short(row["state"], 30)
    return (name, started, str(row["turns"]), str(row["records"]), state, row["message"])
