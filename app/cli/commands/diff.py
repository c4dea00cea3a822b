"""`toolchart diff`: two conversations beside each other."""

from __future__ import annotations

import sys
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import DONE, NO
from toolchart.app.cli.log_access import find, log_option, opened, print_json
from toolchart.app.cli.terminal.text import printable, room, short, styled
from toolchart.states.canonical_json import canonical_text

if TYPE_CHECKING:
    from toolchart.engine.log.diff import Diff
    from toolchart.engine.log.record import Record

_MOST = 400
"""Characters of a value that a person is shown; `--format json` has it whole."""


@click.command(short_help="Compare two conversations.")
@click.argument("left")
@click.argument("right")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "mermaid"]),
    default="text",
    show_default=True,
    help="text: side by side; mermaid: one diagram, the branches coloured.",
)
@log_option
def command(left: str, right: str, form: str, log: str | None) -> int:
    """Compare LEFT with RIGHT: what they share, the first difference, then both side by side.

    Times, token counts and ids say nothing and are left out. Exits with 1 where they differ.

    \b
    Example:  toolchart diff 5f0c 81aa
              toolchart diff 5f0c 81aa --format mermaid
    """
    from toolchart.engine.log.diff import diff
    from toolchart.engine.log.diff_diagram import mermaid

    with opened(log) as store:
        found = diff(store, find(store, left), find(store, right))
    if form == "json":
        print_json(_data(found))
    elif form == "mermaid":
        sys.stdout.write(mermaid(found))
    else:
        _tell(found)
    return DONE if found.first is None else NO


def _data(found: Diff) -> dict[str, Any]:
    first = found.first
    return {
        "left": found.left,
        "right": found.right,
        "equal": first is None,
        "common": len(found.common),
        "first": first
        and {
            "left_seq": first.left_seq,
            "right_seq": first.right_seq,
            "pointer": first.pointer,
            "left": first.left,
            "right": first.right,
        },
        "left_rest": [_row(record) for record in found.left_rest],
        "right_rest": [_row(record) for record in found.right_rest],
    }


def _row(record: Record) -> dict[str, Any]:
    return {
        "seq": record.seq,
        "event": record.event,
        "source": record.source,
        "target": record.target,
    }


def _tell(found: Diff) -> None:
    click.echo(f"{_steps(len(found.common))} in common")
    first = found.first
    if first is None:
        click.echo("no difference")
        return
    click.echo(
        f"then record {_seq(first.left_seq)} of {found.left} and {_seq(first.right_seq)} of "
        f"{found.right} differ at {first.pointer or '/'}\n"
        f"  {found.left}: {short(canonical_text(first.left), _MOST)}\n"
        f"  {found.right}: {short(canonical_text(first.right), _MOST)}\n"
    )
    width = max(24, (room() - 3) // 2)
    click.echo(f"{_cell(found.left, width)} │ {printable(found.right)}")
    for left, right in zip_longest(found.left_rest, found.right_rest):
        for one, other in zip_longest(_lines(left), _lines(right), fillvalue=""):
            same = styled("│", dim=True)
            click.echo(f"{_cell(one, width)} {same} {short(other, width)}".rstrip())


def _lines(record: Record | None) -> list[str]:
    from toolchart.app.cli.commands.show import said

    if record is None:
        return []
    move = printable(record.target) or "·"
    head = f"{record.seq:>4} {printable(record.event['type'])} → {move}"
    return [head, *(f"· {text}" for text in said(record.event))]


def _cell(text: str, width: int) -> str:
    return short(text, width).ljust(width)


def _seq(seq: int | None) -> str:
    return "(none)" if seq is None else str(seq)


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"
