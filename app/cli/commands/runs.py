"""`toolchart runs`: the conversations of a log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from toolchart.app.cli.exit_codes import DAMAGED, DONE
from toolchart.app.cli.log_access import json_option, log_option, opened, print_json, short
from toolchart.app.cli.parameters.ages import Moment
from toolchart.app.cli.parameters.filters import Filter
from toolchart.app.cli.terminal.progress import watched
from toolchart.app.cli.terminal.text import room, styled, talk
from toolchart.engine.log import record as records
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import Store

_NEAR_THE_BEGINNING = 4
"""Records among which the first user message stands."""

_COLUMNS = ("conversation", "started", "turns", "records", "state", "message")


@click.command(short_help="List the conversations of a log.")
@click.option("--state", metavar="STATE", help="Those that rest in this state.")
@click.option("--tool", metavar="NAME", help="Those in which the model asked for this tool.")
@click.option("--model", metavar="NAME", help="Those in which this model was asked or answered.")
@click.option("--text", metavar="WORDS", help="Those with these words in a message.")
@click.option(
    "--since", type=Moment(), metavar="TIME", help="Those written to since: 2026-11-01, 2h, 30d."
)
@click.option("--until", type=Moment(), metavar="TIME", help="Those begun until then.")
@json_option
@log_option
def command(
    state: str | None,
    tool: str | None,
    model: str | None,
    text: str | None,
    since: datetime | None,
    until: datetime | None,
    as_json: bool,
    log: str | None,
) -> int:
    """List the conversations of a log, the oldest first: id, start, turns, records, state, first words.

    \b
    Example:  toolchart runs
              toolchart runs --state error --since 2d
              toolchart runs --json | jq -r .conversation
    """
    wanted = Filter(state=state, since=since, until=until, tool=tool, model=model, text=text)
    rows, damaged, seen = [], False, 0
    with opened(log) as store:
        for name in watched(store.conversations(), "reading"):
            seen += 1
            try:
                row, newest_at = summary(store, name)
                if wanted.fits_row(row, newest_at) and wanted.fits(store, name):
                    rows.append(row)
            except LogDamaged as damage:
                damaged = True
                talk(f"toolchart: damaged: {damage}")
    if as_json:
        for row in rows:
            print_json(row, lines=True)
    elif rows:
        _print_table(rows)
    elif not damaged:
        talk(f"none of {seen} conversations fits" if seen else "no conversations yet")
    return DAMAGED if damaged else DONE


def summary(store: Store, conversation: str) -> tuple[dict[str, Any], str]:
    """One conversation in a row (id, time, turns, records, state, first words), and its newest moment.

    Raises:
        LogDamaged: what it is made from cannot be read. The rest is not looked at.
    """
    newest = store.last(conversation)
    if newest is None:
        raise LogDamaged("it has no records", conversation=conversation)
    last = records.parse(newest[1], newest[0], conversation)
    row: dict[str, Any] = {
        "conversation": conversation,
        "at": "",
        "turns": last.turn,
        "records": newest[0] + 1,
        "state": last.target,
        "message": "",
    }
    for seq, line in enumerate(store.read(conversation)):
        record = records.parse(line, seq, conversation)
        row["at"] = row["at"] or record.at
        if record.event.get("type") == "forked":
            row["message"] = f"(from record {record.event['seq']} of {record.event['parent']})"
        if record.event.get("type") == "turn_started":
            row["message"] = record.event.get("message", "")
            break
        if seq >= _NEAR_THE_BEGINNING:
            break
    return row, last.at


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
