"""The command `toolchart longest`."""

from __future__ import annotations

import click

from toolchart.app.cli.log_access import open_log
from toolchart.app.cli.parameters.options import log_option


@click.command(short_help="Print the conversation with the most records.")
@log_option
def command(log: str | None) -> int:
    """Print the conversation with the most records.

    \b
    Example:  toolchart longest
    """
    with open_log(log) as store:
        sizes = {name: len(list(store.read_lines(name))) for name in store.list_conversations()}
    name = max(sizes, key=lambda name: sizes[name])
    click.echo(f"{name}: {sizes[name]} records")
    return 0
