"""`toolchart export`: print a conversation as messages, records, OpenTelemetry spans or XES."""

from __future__ import annotations

import click

from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.options import log_option
from toolchart.app.cli.parameters.registered_names import RegisteredName
from toolchart.app.cli.terminal.text import escape_controls
from toolchart.engine.exchange import EXPORT_FORMATS
from toolchart.states.descriptors import load_reference


@click.command(short_help="Print a conversation in another format.")
@click.argument("conversation")
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
def command(conversation: str, form: str, content: bool, log: str | None) -> int:
    """Print CONVERSATION in another format.

    \b
    Example:  toolchart export 5f0c > chat.json
              toolchart export 5f0c --format otel
    """
    with open_log_for_reading(log) as store:
        name = find_conversation(store, conversation)
        value = load_reference(EXPORT_FORMATS.find(form).export)(store, name, content=content)
        if isinstance(value, str):
            click.echo(escape_controls(value), nl=False)
        else:
            print_json(value)
    return 0
