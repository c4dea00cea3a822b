"""`toolchart prune`: delete old conversations from a log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import open_log
from toolchart.app.cli.parameters.ages import Age
from toolchart.app.cli.parameters.keys import (
    key_option,
    public_key_option,
    read_seal_signer,
    read_seal_verifier,
)
from toolchart.app.cli.parameters.options import log_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import escape_controls, print_notice
from toolchart.engine.exchange.archive import archive_conversations
from toolchart.engine.log.reading.listing import delete_conversations
from toolchart.engine.log.retention import list_conversation_ages, select_prunable
from toolchart.engine.log.sealing.journal import append_entry, load_journal
from toolchart.engine.log.sealing.log_seals import bury_conversations
from toolchart.engine.runtime.clock import SystemClock


@click.command(short_help="Delete old conversations.")
@click.option(
    "--older-than",
    type=Age(),
    metavar="AGE",
    help="Delete conversations whose newest record is older: 90s, 12h, 30d, 8w.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the N conversations with the newest records.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@click.option(
    "--seals",
    "journal_path",
    type=click.Path(),
    metavar="FILE",
    help="Seal journal of this log: gets a tombstone of what is deleted, before it is deleted.",
)
@click.option(
    "--archive",
    metavar="WHERE",
    help="Folder or URL (fsspec: s3://, gs://, ...) that gets the records before they are deleted.",
)
@key_option
@public_key_option
@log_option
def command(
    older_than: timedelta | None,
    keep: int | None,
    dry_run: bool,
    journal_path: str | None,
    archive: str | None,
    key_file: str | None,
    public_keys: tuple[str, ...],
    log: str | None,
) -> int:
    """Delete whole conversations by age or number, and print their ids. The rest of the log still verifies.

    A conversation with an open turn is kept, and so is the parent of a fork that is kept. Where the log is
    sealed, name the seal journal: without a tombstone `verify --seal` reports what was deleted as missing.

    \b
    Example:  toolchart prune --older-than 30d --dry-run
              toolchart prune --older-than 30d --keep 1000 --archive old-logs/
    """
    if older_than is None and keep is None:
        raise click.UsageError("Nothing to select by: use --older-than AGE, --keep N, or both.")
    with open_log(log) as store:
        ages = list_conversation_ages(store)
        names = select_prunable(ages, datetime.now(UTC), older_than=older_than, keep=keep)
        if archive is not None and not dry_run:
            archive_conversations(store, names, archive)
        if journal_path is not None and names and not dry_run:
            journal = load_journal(journal_path, read_seal_verifier(key_file, public_keys), must_exist=True)
            signer, now = read_seal_signer(key_file), SystemClock().now()
            tombstone = bury_conversations(store, names, journal, now, "prune", signer)
            append_entry(Path(journal_path), tombstone)
        deleted_names = names if dry_run else delete_conversations(store, names)
        for name in track_progress(deleted_names, "deleting", len(names)):
            click.echo(escape_controls(name))
    verb = "would be deleted" if dry_run else "deleted"
    print_notice(f"{len(names)} of {len(ages)} conversations {verb}")
    return SUCCESS
