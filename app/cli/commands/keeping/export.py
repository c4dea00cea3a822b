"""`toolchart export`: print a conversation as messages, records, spans or XES."""

from __future__ import annotations

import click

from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.options import RegisteredName, log_option
from toolchart.app.cli.terminal.text import escape_controls
from toolchart.engine.exchange import EXPORT_FORMATS
from toolchart.states.descriptors import guard_row, load_row_reference


@click.command(short_help="Print a conversation in another format.")
@click.argument("name", metavar="CONVERSATION")
@click.option(
    "--format",
    "form",
    type=RegisteredName(EXPORT_FORMATS),
    default="openai",
    show_default=True,
    help="; ".join(f"{row.name}: {row.summary}" for row in EXPORT_FORMATS.builtin_rows) + ".",
)
@click.option("--content", is_flag=True, help="With otel: include messages and results in the spans.")
@log_option
def command(name: str, form: str, content: bool, log: str | None) -> int:
    """Print a conversation in another format.

    \b
    Example:  toolchart export 5f0c > chat.json
              toolchart export 5f0c --format otel
    """
    row = EXPORT_FORMATS.find(form)
    with open_log_for_reading(log) as store:
        conversation = find_conversation(store, name)
        with guard_row(row):
            exported = load_row_reference(row, row.export)(store, conversation, content=content)
    if isinstance(exported, str):
        click.echo(escape_controls(exported), nl=False)
    else:
        print_json(exported)
    return 0
