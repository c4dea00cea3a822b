"""`toolchart export`: print a conversation as messages, records, OpenTelemetry spans or XES."""

from __future__ import annotations

import click

from toolchart.app.cli.log_access import find_conversation, open_log, print_json
from toolchart.app.cli.parameters.options import log_option
from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.exchange.otel import export_spans
from toolchart.engine.exchange.xes import export_xes
from toolchart.engine.log.replay import read_chain


@click.command(short_help="Print a conversation in another format.")
@click.argument("conversation")
@click.option(
    "--format",
    "form",
    type=click.Choice(["openai", "jsonl", "otel", "xes"]),
    default="openai",
    show_default=True,
    help="openai: a message list; jsonl: the records; otel: GenAI spans (OTLP JSON); xes: process mining.",
)
@click.option(
    "--content", is_flag=True, help="With otel: include messages and results in the spans."
)
@log_option
def command(conversation: str, form: str, content: bool, log: str | None) -> int:
    """Print CONVERSATION in another format.

    \b
    Example:  toolchart export 5f0c > chat.json
              toolchart export 5f0c --format otel
    """
    with open_log(log) as store:
        name = find_conversation(store, conversation)
        lines = store.read_lines(name)
        if form == "jsonl":
            for record in read_chain(lines, name):
                click.echo(record.line.decode())
        elif form == "xes":
            click.echo(export_xes(lines, name), nl=False)
        else:
            print_json(
                export_messages(lines, name, parents=store.read_lines)
                if form == "openai"
                else export_spans(lines, name, content=content, parents=store.read_lines)
            )
    return 0
