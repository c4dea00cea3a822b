"""`toolchart models`: the group of commands about models, `list` and `validate`."""

from __future__ import annotations

import click

from toolchart.app.cli.commands.agents.models_list import list_command
from toolchart.app.cli.commands.agents.models_validate import validate_command


@click.group(short_help="List the models of a host, or test one.")
def command() -> None:
    """List the models of a host, or test one."""


command.add_command(list_command)
command.add_command(validate_command)
