"""`toolchart prune`: forget old conversations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from toolchart.app.cli.exit_codes import DONE
from toolchart.app.cli.log_access import log_option, opened
from toolchart.app.cli.parameters.ages import Age
from toolchart.app.cli.terminal.progress import watched
from toolchart.app.cli.terminal.text import printable, talk


@click.command(short_help="Forget old conversations.")
@click.option(
    "--older-than",
    type=Age(),
    metavar="AGE",
    help="Whose newest record is older: 90s, 12h, 30d, 8w.",
)
@click.option(
    "--keep", type=click.IntRange(min=0), metavar="N", help="The N that were written last stay."
)
@click.option("--dry-run", is_flag=True, help="Say which would go, and delete nothing.")
@log_option
def command(older_than: timedelta | None, keep: int | None, dry_run: bool, log: str | None) -> int:
    """Forget whole conversations by age or number, and print their ids. What remains still verifies.

    One whose turn is open stays, and one that a kept fork goes on from.

    \b
    Example:  toolchart prune --older-than 30d --dry-run
              toolchart prune --older-than 30d --keep 1000
    """
    from toolchart.engine.log.retention import aged, to_prune

    if older_than is None and keep is None:
        raise click.UsageError("Say what may go: --older-than AGE, --keep N, or both.")
    with opened(log) as store:
        known = aged(store)
        names = to_prune(known, datetime.now(UTC), older_than=older_than, keep=keep)
        for name in watched(names, "deleting", len(names)):
            if not dry_run:
                store.delete(name)
            click.echo(printable(name))
    done = "would go" if dry_run else "deleted"
    talk(f"{len(names)} of {len(known)} conversations {done}")
    return DONE
