"""`toolchart database`: the group of commands about PostgreSQL databases, `upgrade`."""

from __future__ import annotations

import click

from toolchart.app.cli.commands.fleet.database_upgrade import upgrade_command


@click.group(short_help="Make and change the tables of a PostgreSQL database.")
def command() -> None:
    """Make and change the tables of a PostgreSQL database."""


command.add_command(upgrade_command)
