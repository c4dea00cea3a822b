"""`toolchart models`: what there is to know of models; each subcommand is one line here."""

from __future__ import annotations

import click

from toolchart.app.cli.commands.models_list import list_command
from toolchart.app.cli.commands.models_validate import validate_command


@click.group(short_help="List the models of a host, or test one.")
def command() -> None:
    """Look at models."""


command.add_command(list_command)
command.add_command(validate_command)
