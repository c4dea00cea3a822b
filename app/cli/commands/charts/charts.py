"""`toolchart charts`: list the charts that ship, and those in the present folder."""

from __future__ import annotations

import click

from toolchart.app.cli.listing import list_charts, print_listing
from toolchart.app.cli.parameters.options import json_option


@click.command(short_help="List the charts that ship, and those in this folder.")
@json_option
def command(as_json: bool) -> int:
    """List the charts that ship with Toolchart and the files of this folder that are charts.

    \b
    Example:  toolchart charts
              toolchart charts --json | jq -r .name
    """
    print_listing(list_charts(), as_json=as_json)
    return 0
