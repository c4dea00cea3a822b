"""`toolchart database upgrade`: make the tables of a PostgreSQL database, or change old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.parameters.options import log_option
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import print_notice
from toolchart.engine.log.stores import DEFAULT_LOG, find_store
from toolchart.states.errors import format_install

if TYPE_CHECKING:
    from toolchart.engine.durable.database import Upgrade


@click.command("upgrade", short_help="Make the tables of a PostgreSQL database, or change old ones.")
@click.option(
    "--role",
    metavar="NAME",
    help="Let this role read and write the rows of all tables, and nothing else: run agents, workers and "
    "servers as it. It must exist.",
)
@click.option(
    "--dsn",
    metavar="ADDRESS",
    envvar="TOOLCHART_DSN",
    show_envvar=True,
    help="Database with the queue of the workers, where it is another one than that of the log.",
)
@log_option
def upgrade_command(role: str | None, dsn: str | None, log: str | None) -> int:
    """Make the tables of the log, its search index and the queue, or change those of an earlier release.

    Run it once before the first agent, and again after each upgrade of Toolchart or DBOS, as a user who may
    create tables. Nothing else makes or changes a table. A log in a file needs none of this: it is made when
    it is first written.

    \b
    Example:  toolchart database upgrade --log postgresql://owner@db/bot
              toolchart database upgrade --log postgresql://owner@db/bot --role bot
    """
    addresses = dict.fromkeys(address for address in (log or dsn or DEFAULT_LOG, dsn) if address)
    if role is not None and not any(find_store(address).name == "postgresql" for address in addresses):
        raise click.UsageError(
            "--role needs the address of a PostgreSQL database: --log postgresql://USER@HOST/NAME"
        )
    for address in addresses:
        if find_store(address).name != "postgresql":
            echo("Nothing to do: only a PostgreSQL database has tables that are made beforehand.")
            continue
        from toolchart.engine.durable.database import upgrade_database

        _report(upgrade_database(address, role), role)
    return SUCCESS


def _report(upgrade: Upgrade, role: str | None) -> None:
    """Say what was done."""
    for name, before, after in (
        ("the log, its search index and the limits of hosts", upgrade.before, upgrade.after),
        ("the queue, which are those of DBOS", upgrade.queue_before, upgrade.queue_after),
    ):
        if before == 0 < after:
            echo(f"Made the tables of {name}: version {after}.")
        elif before < after:
            echo(f"Changed the tables of {name}: version {before} to {after}.")
    if upgrade.has_granted:
        echo(f"The role {role} may read and write their rows.")
    if not upgrade.has_changed:
        echo(f"Nothing to do: the tables have version {upgrade.after}, those of DBOS {upgrade.queue_after}.")
    if not upgrade.queue_after:
        print_notice(
            "toolchart: the tables of the queue were not made: DBOS is not installed\n"
            f"  for workers: {format_install('durable')}, and run this again"
        )
