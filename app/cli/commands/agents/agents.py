"""`toolchart agents`: list the agents that ship, and those in the present folder."""

from __future__ import annotations

import click

from toolchart.app.cli.listing import list_agents, print_listing
from toolchart.app.cli.parameters.options import json_option


@click.command(short_help="List the agents that ship, and those in this folder.")
@json_option
def command(as_json: bool) -> int:
    """List the agents that ship with Toolchart and the files of this folder that are agents.

    \b
    Example:  toolchart agents
              toolchart agents --json | jq -r .name
    """
    print_listing(list_agents(), as_json=as_json)
    return 0
