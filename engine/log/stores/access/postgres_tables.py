"""Connection and tables of the PostgreSQL store: the schema, and the SQL of leases and inboxes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from toolchart.engine.log.leases import (
    build_next_lease,
    build_released_lease,
    find_token_fault,
    is_held,
    is_unfinished,
)
from toolchart.engine.log.stores.access.postgres_sessions import connect
from toolchart.engine.log.stores.large_parts import list_part_digests, split_large_parts
from toolchart.states.errors import (
    LogConflict,
    LogUnavailable,
    StorageFailure,
    ToolchartError,
    format_install,
)
from toolchart.states.ports import InboxEntry, Lease

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

Value = TypeVar("Value")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS toolchart_conversations (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS toolchart_records (
    conversation BIGINT NOT NULL REFERENCES toolchart_conversations(number),
    seq BIGINT NOT NULL,
    line BYTEA NOT NULL,
    PRIMARY KEY (conversation, seq)
);
CREATE TABLE IF NOT EXISTS toolchart_parts (
    digest BYTEA PRIMARY KEY,
    data BYTEA NOT NULL,
    uses BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS toolchart_checkpoints (
    conversation BIGINT NOT NULL REFERENCES toolchart_conversations(number),
    seq BIGINT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (conversation, seq)
);
CREATE TABLE IF NOT EXISTS toolchart_leases (
    conversation TEXT PRIMARY KEY,
    token BIGINT NOT NULL,
    worker TEXT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION NOT NULL,
    is_open BOOLEAN NOT NULL,
    due DOUBLE PRECISION
);
CREATE INDEX IF NOT EXISTS toolchart_open_leases ON toolchart_leases (conversation) WHERE is_open;
CREATE TABLE IF NOT EXISTS toolchart_inbox (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation TEXT NOT NULL,
    key TEXT NOT NULL,
    data BYTEA NOT NULL,
    is_taken BOOLEAN NOT NULL DEFAULT false,
    UNIQUE (conversation, key)
);
CREATE INDEX IF NOT EXISTS toolchart_open_entries ON toolchart_inbox (conversation) WHERE NOT is_taken;
"""

_SCHEMA_LOCK = 0x746F6F6C
"""Key of the advisory lock for creating the tables, so that two processes do not collide."""

_LIMITS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Of a connection, where the address names no other: a server that vanishes without a word is given up within
half a minute. By the system's own limits a turn would wait for it for up to two hours."""

_COLUMNS = "conversation, token, worker, since, expires, is_open, due"


class Channel:
    """A connection that one thread uses at a time; opened when it is needed, and again after it broke.

    Nothing is set for longer than a transaction: behind a pooler the session is that of others too.

    Args:
        read_only: whether the server refuses every write.
    """

    def __init__(self, address: str, *, read_only: bool = False) -> None:
        self._address = address
        self._read_only = read_only
        self._lock = threading.RLock()
        self._db: psycopg.Connection[Any] | None = None

    def _get_connection(self) -> psycopg.Connection[Any]:
        """The open connection; a new one where there is none or it broke."""
        if self._db is None or self._db.closed or self._db.broken:
            limits: dict[str, Any] = {
                name: n for name, n in _LIMITS.items() if f"{name}=" not in self._address
            }
            try:
                self._db = connect(self._address, **limits)
            except ImportError:
                raise LogUnavailable(f"PostgreSQL needs an extra\n  {format_install('postgres')}") from None
            self._db.read_only = True if self._read_only else None  # of the transactions that it begins
        return self._db

    def run(self, work: Callable[[psycopg.Connection[Any]], Value]) -> Value:
        """Run `work` with an open connection; once more with a new one where the connection broke.

        Repeating is safe: a read changes nothing, and an append that did go through the first time is
        refused the second time by its number.
        """
        with self._lock:
            for is_last_try in (False, True):
                try:
                    db = self._get_connection()
                    with db.transaction() if self._read_only else nullcontext():
                        return work(db)
                except ToolchartError:
                    raise
                except Exception as error:
                    names = {kind.__name__ for kind in type(error).__mro__}
                    if "UniqueViolation" in names:
                        raise LogConflict("another writer appended to this conversation first") from None
                    if names & {"DiskFull", "IoError"}:
                        message = f"the PostgreSQL server cannot store the log: {error}"
                        raise StorageFailure(message) from None
                    self.drop()  # whatever it is, the connection may stand in a transaction that failed
                    if is_last_try or "OperationalError" not in names:
                        raise LogUnavailable(f"the PostgreSQL log cannot be used: {error}") from None
        raise AssertionError("two tries end in a value or an error")

    def drop(self) -> None:
        """Close the connection; the next use opens another."""
        if self._db is not None:
            self._db.close()
        self._db = None

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._lock:
            self.drop()


def prepare_schema(db: Connection) -> None:
    """Create the tables where they are missing."""
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        db.execute(_SCHEMA)


def read_time(db: Connection) -> float:
    """The time of the server, which all workers share: seconds since 1970."""
    row = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None
    return float(row[0])


# -- leases ----------------------------------------------------------------------------------------


def find_lease(db: Connection, conversation: str, lock: bytes = b"") -> Lease | None:
    """The newest lease of a conversation.

    Args:
        lock: ` FOR SHARE` keeps it until the transaction ends; ` FOR UPDATE` for one that changes it.
    """
    query = f"SELECT {_COLUMNS} FROM toolchart_leases WHERE conversation = %s".encode() + lock
    row = db.execute(query, (conversation,)).fetchone()
    return None if row is None else _read_lease(row)


def _read_lease(row: Sequence[Any]) -> Lease:
    conversation, token, worker, since, expires, is_open, due = row
    return Lease(
        conversation=conversation,
        token=token,
        worker=worker,
        since=since,
        expires=expires,
        is_open=is_open,
        due=due,
    )


def write_lease(db: Connection, lease: Lease) -> None:
    """Write a lease in place of the one before."""
    db.execute(
        "INSERT INTO toolchart_leases VALUES (%s, %s, %s, %s, %s, %s, %s) "
        "ON CONFLICT (conversation) DO UPDATE SET (token, worker, since, expires, is_open, due) = "
        "(excluded.token, excluded.worker, excluded.since, excluded.expires, excluded.is_open, excluded.due)",
        (lease.conversation, lease.token, lease.worker, lease.since, lease.expires, lease.is_open, lease.due),
    )


def begin_unsynced(db: Connection) -> None:
    """Let the present transaction end without waiting for the disk: the log of the server is in order."""
    db.execute("SET LOCAL synchronous_commit = off")


def acquire_lease(db: Connection, conversation: str, worker: str, seconds: float) -> Lease:
    """Take a lease."""
    with db.transaction():
        begin_unsynced(db)
        # Two workers that begin a conversation at once wait for each other here.
        db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (conversation,))
        newest = find_lease(db, conversation, b" FOR UPDATE")
        lease = build_next_lease(newest, conversation, worker, seconds, read_time(db))
        write_lease(db, lease)
        return lease


def renew_lease(db: Connection, lease: Lease, seconds: float) -> bool:
    """Prolong a lease; whether it was still held."""
    with db.transaction():
        begin_unsynced(db)
        newest = find_lease(db, lease.conversation, b" FOR UPDATE")
        if newest is None or find_token_fault(lease.conversation, newest, lease) is not None:
            return False
        write_lease(db, replace(newest, expires=read_time(db) + seconds))
        return True


def release_lease(db: Connection, lease: Lease, *, is_open: bool, due: float | None) -> bool:
    """End a lease; false where the inbox has entries."""
    with db.transaction():
        begin_unsynced(db)
        newest = find_lease(db, lease.conversation, b" FOR UPDATE")
        if newest is None or find_token_fault(lease.conversation, newest, lease) is not None:
            return True
        if read_inbox(db, [lease.conversation]):
            return False
        write_lease(db, build_released_lease(newest, is_open=is_open, due=due))
        return True


def list_leases(db: Connection) -> list[Lease]:
    """The leases that are held now, the oldest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM toolchart_leases WHERE is_open".encode()).fetchall()
    now = read_time(db)
    held = [lease for lease in map(_read_lease, rows) if is_held(lease, now)]
    return sorted(held, key=lambda lease: lease.since)


def list_unfinished(db: Connection) -> list[str]:
    """The conversations that a worker may go on with now."""
    query = b"SELECT DISTINCT conversation FROM toolchart_inbox WHERE NOT is_taken"
    with_entries = {row[0] for row in db.execute(query).fetchall()}
    rows = db.execute(f"SELECT {_COLUMNS} FROM toolchart_leases WHERE is_open".encode()).fetchall()
    leases = {lease.conversation: lease for lease in map(_read_lease, rows)}
    now = read_time(db)
    names = [
        name
        for name in {**leases, **dict.fromkeys(sorted(with_entries))}
        if is_unfinished(leases.get(name) or find_lease(db, name), now, has_entries=name in with_entries)
    ]
    unknown = db.execute(
        "SELECT id FROM toolchart_conversations WHERE NOT EXISTS "
        "(SELECT 1 FROM toolchart_leases WHERE conversation = id)"
    ).fetchall()
    return [*names, *(row[0] for row in unknown if row[0] not in names)]


# -- inbox -----------------------------------------------------------------------------------------


def post(db: Connection, conversation: str, key: str, data: bytes) -> bool:
    """Add an entry; false where its key is known."""
    cursor = db.execute(
        "INSERT INTO toolchart_inbox (conversation, key, data) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (conversation, key, data),
    )
    return cursor.rowcount > 0


def read_inbox(db: Connection, conversations: Sequence[str]) -> list[InboxEntry]:
    """The entries that are not taken yet, the oldest first."""
    rows = db.execute(
        "SELECT number, conversation, key, data FROM toolchart_inbox "
        "WHERE NOT is_taken AND conversation = ANY(%s) ORDER BY number",
        (list(conversations),),
    ).fetchall()
    return [
        InboxEntry(number=number, conversation=conversation, key=key, data=bytes(data))
        for number, conversation, key, data in rows
    ]


def mark_taken(db: Connection, numbers: Sequence[int]) -> None:
    """Mark entries as taken; their keys stay known."""
    query = "UPDATE toolchart_inbox SET is_taken = true, data = '' WHERE number = ANY(%s)"
    db.execute(query, (list(numbers),))


def delete_rows(db: Connection, conversation: str) -> None:
    """Delete the lease and the inbox of a conversation."""
    db.execute("DELETE FROM toolchart_leases WHERE conversation = %s", (conversation,))
    db.execute("DELETE FROM toolchart_inbox WHERE conversation = %s", (conversation,))


def replace_lines(db: psycopg.Connection[Any], conversation: str, lines: Mapping[int, bytes]) -> None:
    """Replace lines of a conversation and delete its checkpoints, within a transaction.

    Large parts that no other record uses are deleted.
    """
    query = "SELECT number FROM toolchart_conversations WHERE id = %s"
    (number,) = db.execute(query, (conversation,)).fetchone() or (0,)
    for seq, line in lines.items():
        stored_line, parts = split_large_parts(line)
        for digest, data in sorted(parts.items()):
            db.execute(
                "INSERT INTO toolchart_parts AS p VALUES (%s, %s, 1) "
                "ON CONFLICT (digest) DO UPDATE SET uses = p.uses + 1",
                (digest, data),
            )
        place = (number, seq)
        row = db.execute("SELECT line FROM toolchart_records WHERE conversation = %s AND seq = %s", place)
        for digest in sorted(list_part_digests(bytes((row.fetchone() or (b"",))[0]))):
            db.execute("UPDATE toolchart_parts SET uses = uses - 1 WHERE digest = %s", (digest,))
        db.execute(
            "UPDATE toolchart_records SET line = %s WHERE conversation = %s AND seq = %s",
            (stored_line, *place),
        )
    db.execute("DELETE FROM toolchart_parts WHERE uses < 1")
    db.execute("DELETE FROM toolchart_checkpoints WHERE conversation = %s", (number,))
