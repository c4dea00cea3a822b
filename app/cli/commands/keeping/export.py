"""`toolchart export`: print a conversation as messages, records, spans or XES, or a chart as a model."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.charts import find_chart
from toolchart.app.cli.parameters.options import RegisteredName, log_option
from toolchart.app.cli.terminal.text import escape_controls
from toolchart.engine.exchange import EXPORT_FORMATS
from toolchart.states.descriptors import guard_row, load_row_reference


@click.command(short_help="Print a conversation, or a chart, in another format.")
@click.argument("name", metavar="CONVERSATION|CHART|AGENT")
@click.option(
    "--format",
    "form",
    type=RegisteredName(EXPORT_FORMATS),
    default="openai",
    show_default=True,
    help="; ".join(f"{row.name}: {row.summary}" for row in EXPORT_FORMATS.builtin_rows) + ".",
)
@click.option("--content", is_flag=True, help="With otel: include messages and results in the spans.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=N",
    help="With promela: the value of a limit in the model, for instance max_iterations=3; without it 2.",
)
@click.option(
    "--seals",
    type=click.Path(),
    metavar="FILE",
    help="With evidence: seal journal of the log, to prove that the conversation belongs to it.",
)
@log_option
def command(
    name: str, form: str, content: bool, limits: tuple[str, ...], seals: str | None, log: str | None
) -> int:
    """Print a conversation in another format. With promela, print a chart (a shipped name or a file), the
    chart of an agent, or that of a conversation, as a model for Spin.

    \b
    Example:  toolchart export 5f0c > chat.json
              toolchart export 5f0c --format otel
              toolchart export full --format promela > full.pml
              toolchart export 5f0c --format evidence --seals seals.jsonl > evidence.json
    """
    row = EXPORT_FORMATS.find(form)
    if row.export_chart:
        chart, _ = find_chart(name, log)
        values = _read_limits(limits)
        with guard_row(row):
            exported = load_row_reference(row, row.export_chart)(chart, limits=values)
        _print(exported)
        return 0
    if limits:
        raise click.UsageError(f"--limit is for formats of charts; {form!r} is one of conversations.")
    with open_log_for_reading(log) as store:
        conversation = find_conversation(store, name)
        if seals is not None and not row.takes_seals:
            raise click.UsageError(f"--seals means nothing for the format {form}.")
        options = {"seals": seals} if row.takes_seals else {}
        with guard_row(row):
            exported = load_row_reference(row, row.export)(store, conversation, content=content, **options)
        _print(exported)
    return 0


def _print(value: Any) -> None:
    if isinstance(value, str):
        click.echo(escape_controls(value), nl=False)
    else:
        print_json(value)


def _read_limits(texts: tuple[str, ...]) -> dict[str, int]:
    limits = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not value.isdecimal() or not int(value):
            raise click.BadParameter(f"{text!r} is not NAME=N with N above 0.", param_hint="--limit")
        limits[name] = int(value)
    return limits
