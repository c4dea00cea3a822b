"""`toolchart export`: a conversation in another form."""

from __future__ import annotations

import click

from toolchart.app.cli.log_access import find, log_option, opened, print_json


@click.command(short_help="Print a conversation in another form.")
@click.argument("conversation")
@click.option(
    "--format",
    "form",
    type=click.Choice(["openai", "jsonl", "otel", "xes"]),
    default="openai",
    show_default=True,
    help="openai: a message list; jsonl: the records; otel: GenAI spans (OTLP JSON); xes: process mining.",
)
@click.option("--content", is_flag=True, help="otel: put messages and results into the spans.")
@log_option
def command(conversation: str, form: str, content: bool, log: str | None) -> int:
    """Print CONVERSATION in another form.

    \b
    Example:  toolchart export 5f0c > chat.json
              toolchart export 5f0c --format otel
    """
    from toolchart.engine.exchange.messages import export_messages
    from toolchart.engine.exchange.otel import export_spans
    from toolchart.engine.exchange.xes import export_xes
    from toolchart.engine.log.replay import read_chain

    with opened(log) as store:
        name = find(store, conversation)
        lines = store.read(name)
        if form == "jsonl":
            for record in read_chain(lines, name):
                click.echo(record.line.decode())
        elif form == "xes":
            click.echo(export_xes(lines, name), nl=False)
        else:
            print_json(
                export_messages(lines, name, parents=store.read)
                if form == "openai"
                else export_spans(lines, name, content=content, parents=store.read)
            )
    return 0
