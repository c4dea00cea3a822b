"""`toolchart prune`: delete old conversations from a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import open_log
from toolchart.app.cli.parameters.options import Age, log_option
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import escape_controls, print_notice
from toolchart.engine.exchange.exports import write_records
from toolchart.engine.log.owners import delete_owned, list_owned, require_deletable
from toolchart.engine.log.retention import OPEN_TURN, delete_conversations, find_kept, list_conversation_ages
from toolchart.states.ports import Store


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
@click.option("--owner", metavar="NAME", help="Delete all conversations of this owner, of any age.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@click.option(
    "--archive", metavar="FILE", help="New file that gets the records, one per line, before they are deleted."
)
@click.option("--vacuum", is_flag=True, help="Then shrink a SQLite file; it cannot be written meanwhile.")
@log_option
def command(
    older_than: timedelta | None,
    keep: int | None,
    owner: str | None,
    dry_run: bool,
    archive: str | None,
    vacuum: bool,
    log: str | None,
) -> int:
    """Delete whole conversations by age or number, and print their ids. The rest of the log still verifies.

    A conversation with an open turn, or that somebody works on, is kept, and so is the parent of a fork that
    is kept. How many are kept, and why, is printed. Where the log is sealed, seal it anew afterwards: for
    an older seal, what was deleted is missing. `--vacuum` alone only shrinks the file.

    `--owner` deletes everything of one owner, agents and forks too, and clears the free space of a SQLite
    file. It deletes nothing while a turn of one is open, or while somebody else has a fork of one.

    \b
    Example:  toolchart prune --older-than 30d --dry-run
              toolchart prune --older-than 30d --keep 1000 --archive old.jsonl --vacuum
              toolchart prune --owner anna --archive anna.jsonl
    """
    if owner is not None and (older_than is not None or keep is not None):
        raise click.UsageError("--owner deletes conversations of any age: leave out --older-than and --keep.")
    if older_than is None and keep is None and owner is None and not vacuum:
        raise click.UsageError("Nothing to select by: use --older-than AGE, --keep N, --owner NAME.")
    selects = older_than is not None or keep is not None
    if owner is not None:
        return _delete_owned(owner, log, archive, dry_run=dry_run)
    with open_log(log) as store:
        ages = list_conversation_ages(store) if selects else []
        keep_reasons = find_kept(ages, datetime.now(UTC), older_than=older_than, keep=keep)
        names = [age.conversation for age in ages if age.conversation not in keep_reasons]
        if archive is not None and not dry_run:
            _write_archive(store, names, archive)
        deleted_names = _print_names(names if dry_run else delete_conversations(store, names), len(names))
        if vacuum and not dry_run:
            store.vacuum()
    taken = {name: "a worker took it meanwhile" for name in names if name not in deleted_names}
    _print_kept({**keep_reasons, **taken})
    verb = "would be deleted" if dry_run else "deleted"
    print_notice(f"{len(deleted_names)} of {len(ages)} conversations {verb}")
    return SUCCESS


def _delete_owned(owner: str, log: str | None, archive: str | None, *, dry_run: bool) -> int:
    """Delete everything of one owner, and print the ids."""
    with open_log(log) as store:
        names = list_owned(store, owner)
        require_deletable(store, names)
        if not dry_run:
            if archive is not None:
                _write_archive(store, names, archive)
            delete_owned(store, owner, names)
    for name in names:
        echo(escape_controls(name))
    print_notice(f"{len(names)} conversations {'would be deleted' if dry_run else 'deleted'}")
    return SUCCESS


def _write_archive(store: Store, names: list[str], archive: str) -> None:
    if not write_records(store, names, archive):
        print_notice(f"there is nothing to archive: {archive} was not written")


def _print_names(names: Iterable[str], count: int) -> set[str]:
    """Print each id as its conversation is deleted; returns them."""
    printed_names = set()
    for name in track_progress(names, "deleting", count):
        echo(escape_controls(name))
        printed_names.add(name)
    return printed_names


def _print_kept(reasons: Mapping[str, str]) -> None:
    """Print how many conversations stay for each reason, and one of them."""
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names_by_reason.setdefault(reason, []).append(name)
    for reason, names in names_by_reason.items():
        what = names[0] if len(names) == 1 else f"{len(names)} conversations, {names[0]} for instance"
        print_notice(f"kept {escape_controls(what)}: {reason}{_HINTS.get(reason, '')}")


_HINTS = {OPEN_TURN: "; finish it, or end it: toolchart cancel ID"}
"""What to do about a reason."""
