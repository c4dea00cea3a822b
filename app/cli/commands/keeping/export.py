"""`toolchart export`: print a conversation as messages or records."""

from __future__ import annotations

import click

from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.options import NameChoice, log_option
from toolchart.app.cli.terminal.text import escape_controls
from toolchart.engine.exchange.exports import EXPORT_FORMATS


@click.command(short_help="Print a conversation in another format.")
@click.argument("name", metavar="CONVERSATION")
@click.option(
    "--format",
    "form",
    type=NameChoice(list(EXPORT_FORMATS)),
    default="openai",
    show_default=True,
    help="; ".join(f"{name}: {row.summary}" for name, row in EXPORT_FORMATS.items()) + ".",
)
@log_option
def command(name: str, form: str, log: str | None) -> int:
    """Print a conversation in another format.

    \b
    Example:  toolchart export 5f0c > chat.json
              toolchart export 5f0c --format jsonl > 5f0c.jsonl
    """
    with open_log_for_reading(log) as store:
        exported = EXPORT_FORMATS[form].export(store, find_conversation(store, name))
    if isinstance(exported, str):
        click.echo(escape_controls(exported), nl=False)
    else:
        print_json(exported)
    return 0
