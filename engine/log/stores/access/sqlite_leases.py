"""Leases and inboxes of the SQLite store: the SQL of two tables that are no part of the log."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from toolchart.engine.log.leases import (
    build_next_lease,
    build_released_lease,
    find_token_fault,
    is_held,
    is_unfinished,
)
from toolchart.states.ports import InboxEntry, Lease

_COLUMNS = "conversation, token, worker, since, expires, is_open, due"
_ENTRY_COLUMNS = "number, conversation, key, data"
_MAX_NAMES = 500
"""Names in one query."""


def find_lease(db: sqlite3.Connection, conversation: str) -> Lease | None:
    """The newest lease of a conversation."""
    query = f"SELECT {_COLUMNS} FROM leases WHERE conversation = ?"
    row = db.execute(query, (conversation,)).fetchone()
    return None if row is None else _read_lease(row)


def _read_lease(row: Sequence[object]) -> Lease:
    conversation, token, worker, since, expires, is_open, due = row
    return Lease(
        conversation=str(conversation),
        token=int(str(token)),
        worker=str(worker),
        since=float(str(since)),
        expires=float(str(expires)),
        is_open=bool(is_open),
        due=None if due is None else float(str(due)),
    )


def write_lease(db: sqlite3.Connection, lease: Lease) -> None:
    """Write a lease in place of the one before."""
    db.execute(
        f"INSERT OR REPLACE INTO leases ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (lease.conversation, lease.token, lease.worker, lease.since, lease.expires, lease.is_open, lease.due),
    )


def acquire_lease(db: sqlite3.Connection, conversation: str, worker: str, seconds: float) -> Lease:
    """Take a lease, within a transaction."""
    newest = find_lease(db, conversation)
    lease = build_next_lease(newest, conversation, worker, seconds, time.time())
    write_lease(db, lease)
    return lease


def renew_lease(db: sqlite3.Connection, lease: Lease, seconds: float) -> bool:
    """Prolong a lease, within a transaction; whether it was still held."""
    newest = find_lease(db, lease.conversation)
    if newest is None or find_token_fault(lease.conversation, newest, lease) is not None:
        return False
    write_lease(db, replace(newest, expires=time.time() + seconds))
    return True


def release_lease(db: sqlite3.Connection, lease: Lease, *, is_open: bool, due: float | None) -> bool:
    """End a lease, within a transaction; false where the inbox has entries."""
    newest = find_lease(db, lease.conversation)
    if newest is None or find_token_fault(lease.conversation, newest, lease) is not None:
        return True
    if has_entries(db, lease.conversation):
        return False
    write_lease(db, build_released_lease(newest, is_open=is_open, due=due))
    return True


def list_leases(db: sqlite3.Connection) -> list[Lease]:
    """The leases that are held now, the oldest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM leases WHERE is_open").fetchall()
    now = time.time()
    held = [lease for lease in map(_read_lease, rows) if is_held(lease, now)]
    return sorted(held, key=lambda lease: lease.since)


def list_unfinished(db: sqlite3.Connection) -> list[str]:
    """The conversations that a worker may go on with now."""
    now = time.time()
    with_entries = {
        str(row[0]) for row in db.execute("SELECT DISTINCT conversation FROM inbox WHERE NOT is_taken")
    }
    rows = db.execute(f"SELECT {_COLUMNS} FROM leases WHERE is_open").fetchall()
    leases = {lease.conversation: lease for lease in map(_read_lease, rows)}
    names = [
        name
        for name in {**leases, **dict.fromkeys(sorted(with_entries))}
        if is_unfinished(leases.get(name) or find_lease(db, name), now, has_entries=name in with_entries)
    ]
    unknown = db.execute(
        "SELECT id FROM conversations WHERE NOT EXISTS (SELECT 1 FROM leases WHERE conversation = id)"
    ).fetchall()
    return [*names, *(str(row[0]) for row in unknown if str(row[0]) not in names)]


# -- inbox -----------------------------------------------------------------------------------------


def has_entries(db: sqlite3.Connection, conversation: str) -> bool:
    """Whether the inbox of a conversation has entries that are not taken."""
    query = "SELECT 1 FROM inbox WHERE conversation = ? AND NOT is_taken LIMIT 1"
    return db.execute(query, (conversation,)).fetchone() is not None


def post(db: sqlite3.Connection, conversation: str, key: str, data: bytes) -> bool:
    """Add an entry; false where its key is known."""
    cursor = db.execute(
        "INSERT OR IGNORE INTO inbox (conversation, key, data) VALUES (?, ?, ?)", (conversation, key, data)
    )
    return cursor.rowcount > 0


def read_inbox(db: sqlite3.Connection, conversations: Sequence[str]) -> list[InboxEntry]:
    """The entries that are not taken yet, the oldest first."""
    entries: list[InboxEntry] = []
    for names in _split_names(conversations):
        marks = ",".join("?" * len(names))
        rows = db.execute(
            f"SELECT {_ENTRY_COLUMNS} FROM inbox WHERE NOT is_taken AND conversation IN ({marks})", names
        )
        entries += [
            InboxEntry(number=number, conversation=conversation, key=key, data=bytes(data))
            for number, conversation, key, data in rows
        ]
    return sorted(entries, key=lambda entry: entry.number)


def _split_names(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _MAX_NAMES):
        yield names[start : start + _MAX_NAMES]


def mark_taken(db: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Mark entries as taken; their keys stay known."""
    db.executemany(
        "UPDATE inbox SET is_taken = 1, data = x'' WHERE number = ?", [(number,) for number in numbers]
    )


def delete_rows(db: sqlite3.Connection, conversation: str) -> None:
    """Delete the lease and the inbox of a conversation."""
    db.execute("DELETE FROM leases WHERE conversation = ?", (conversation,))
    db.execute("DELETE FROM inbox WHERE conversation = ?", (conversation,))
