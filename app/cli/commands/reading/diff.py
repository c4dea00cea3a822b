"""`toolchart diff`: compare two conversations side by side, or two charts."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import click

from toolchart.app.cli.commands.reading.chart_review import FORMS, find_reviewed, review
from toolchart.app.cli.commands.reading.show import describe_event
from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.options import NameChoice, json_option, log_option
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import escape_controls, print_text, shorten, style_text, terminal_width
from toolchart.engine.log.read_records import ReadRecord
from toolchart.engine.reading.diff import ConversationDiff, compare_conversations
from toolchart.states.canonical_json import encode_canonical_text

_MAX_VALUE_CHARS = 400
"""Printed characters of a value; `--json` prints it in full."""


@click.command(short_help="Compare two conversations, or two charts.")
@click.argument("left")
@click.argument("right")
@click.option(
    "--format",
    "form",
    type=NameChoice(FORMS),
    help="Of charts: text, markdown for a pull request, or a picture of both. Default: what the ending of "
    "FILE says, else text.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(),
    metavar="FILE",
    help="Of charts: write to this file: .md, .svg, .png.",
)
@click.option("--charts", "is_of_charts", is_flag=True, help="Of two conversations: compare their charts.")
@click.option(
    "--conversation",
    "conversations",
    multiple=True,
    metavar="ID",
    help="Of charts: replay only this conversation. Repeatable. Default: all that ran LEFT.",
)
@json_option
@log_option
def command(
    left: str,
    right: str,
    form: str | None,
    output: str | None,
    is_of_charts: bool,
    conversations: tuple[str, ...],
    as_json: bool,
    log: str | None,
) -> int:
    """Compare the conversations LEFT and RIGHT: common records, the first difference, then both side by side.

    Times, token counts and ids are ignored.

    Or compare two charts. LEFT and RIGHT are then shipped names, files, agents, or one is a conversation with
    its chart. Prints the states, rows and declared effects that were added, removed and changed, and the
    findings and bounds of `check` that change. Conversations in the log that ran LEFT are replayed with
    RIGHT: what they would do otherwise, and at which record. Verdicts about calls are taken as recorded.

    Exits with 1 if there is a difference.

    \b
    Example:  toolchart diff 5f0c 81aa
              toolchart diff 5f0c 81aa --json
              toolchart diff old.yaml agent.yaml
              toolchart diff 5f0c agent.yaml --format markdown
              toolchart diff tool_loop resilient -o changes.svg
    """
    if as_json and (form or output):
        raise click.UsageError("--json prints JSON: leave out --format and --output.")
    subjects = find_reviewed(left, right, is_of_charts)
    if subjects is not None:
        return review(subjects, form, output, conversations, as_json=as_json, log=log)
    for name, is_used in (("--format", form), ("--output", output), ("--conversation", conversations)):
        if is_used:
            raise click.UsageError(f"{name} goes with charts; LEFT and RIGHT are conversations.")
    with open_log_for_reading(log) as store:
        comparison = compare_conversations(
            store, find_conversation(store, left), find_conversation(store, right)
        )
    if as_json:
        print_json(_encode_diff(comparison))
    else:
        _print_diff(comparison)
    return SUCCESS if comparison.first is None else NEGATIVE


def _encode_diff(comparison: ConversationDiff) -> dict[str, Any]:
    first = comparison.first
    return {
        "left": comparison.left,
        "right": comparison.right,
        "equal": first is None,
        "common": len(comparison.common),
        "first": first
        and {
            "left_seq": first.left_seq,
            "right_seq": first.right_seq,
            "pointer": first.pointer,
            "left": first.left,
            "right": first.right,
        },
        "left_rest": [_encode_record(record) for record in comparison.left_rest],
        "right_rest": [_encode_record(record) for record in comparison.right_rest],
    }


def _encode_record(record: ReadRecord) -> dict[str, Any]:
    return {"seq": record.seq, "event": record.event, "source": record.source, "target": record.target}


def _print_diff(comparison: ConversationDiff) -> None:
    echo(f"{_format_step_count(len(comparison.common))} in common")
    first = comparison.first
    if first is None:
        echo("no difference")
        return
    print_text(
        f"then record {_format_seq(first.left_seq)} of {comparison.left} "
        f"and {_format_seq(first.right_seq)} of {comparison.right} differ at {first.pointer or '/'}\n"
        f"  {comparison.left}: {shorten(encode_canonical_text(first.left), _MAX_VALUE_CHARS)}\n"
        f"  {comparison.right}: {shorten(encode_canonical_text(first.right), _MAX_VALUE_CHARS)}\n"
    )
    width = max(24, (terminal_width() - 3) // 2)
    echo(f"{_pad_cell(comparison.left, width)} │ {escape_controls(comparison.right)}")
    for old, new in zip_longest(comparison.left_rest, comparison.right_rest):
        for left_line, right_line in zip_longest(_format_step(old), _format_step(new), fillvalue=""):
            separator = style_text("│", dim=True)
            echo(f"{_pad_cell(left_line, width)} {separator} {shorten(right_line, width)}".rstrip())


def _format_step(record: ReadRecord | None) -> list[str]:
    """Return the lines of a record: number, event and state, then its details."""
    if record is None:
        return []
    target = escape_controls(record.target) or "·"
    head = f"{record.seq:>4} {escape_controls(record.event['type'])} → {target}"
    return [head, *(f"· {text}" for text in describe_event(record.event))]


def _pad_cell(text: str, width: int) -> str:
    return shorten(text, width).ljust(width)


def _format_seq(seq: int | None) -> str:
    return "(none)" if seq is None else str(seq)


def _format_step_count(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"
