"""The SQLite store: the reads and writes of a log in one SQLite file.

The file uses SQLite's write-ahead log. With `full` durability each commit is synced before it returns. One
connection writes and another one reads, so that a reader never waits for a writer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolchart.engine.log.leases import build_child_lease, find_lease_fault
from toolchart.engine.log.stores.access import sqlite_leases
from toolchart.engine.log.stores.access.replaced_files import LOOK_EVERY_S, SqliteWatch
from toolchart.engine.log.stores.access.sqlite_connection import (
    BUSY_TIMEOUT_S,
    ErrorTranslation,
    Transaction,
    connect,
)
from toolchart.engine.log.stores.access.sqlite_queries import SqliteQueries, get_id_range
from toolchart.engine.log.stores.access.sqlite_rewriting import replace_lines
from toolchart.engine.log.stores.access.sqlite_schema import (
    SCHEMA_VERSION,
    SEQ_BITS,
    create_private_file,
    read_schema_version,
    upgrade_schema,
)
from toolchart.engine.log.stores.large_parts import list_part_digests, split_large_parts
from toolchart.engine.log.stores.sqlite_checks import check_identity
from toolchart.states.errors import LogConflict, LogUnavailable, ToolchartError
from toolchart.states.ports import Lease, RecordBatch

_UPKEEP_BYTES = 4 << 20
"""After so many bytes of records the write-ahead log is written back into the file."""

_LONG_WAL_BYTES = 64 << 20
"""A write-ahead log of this size is written back as a whole, while nobody else writes."""

_FIND_END = f"""
SELECT number,
    (SELECT max(id) FROM records
        WHERE id BETWEEN number << {SEQ_BITS} AND (number << {SEQ_BITS}) + {2**SEQ_BITS - 1}),
    (SELECT worker || ' ' || token FROM leases WHERE conversation = ?2)
FROM (SELECT 1) LEFT JOIN conversations ON id = ?1
"""
"""Number and newest row of a conversation, and who has its lease."""


class SqliteStore(SqliteQueries):
    """Keeps records in a SQLite file; the file and its folder are created when they are missing, readable for
    their owner only.

    Args:
        create: whether the file may be created.
        durable: whether a commit is synced to the disk (`full`); else the system writes it later
            (`normal`): it survives a crash of the process, but not always one of the machine.

    Raises:
        LogUnavailable: the file cannot be opened or is not a Toolchart log.
    """

    def __init__(self, path: str | Path, *, create: bool = True, durable: bool = True) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._errors = ErrorTranslation(self.path)
        self._durable = durable
        self.commits_at_once = not durable
        self._bytes_since_upkeep = 0
        if not create and not self.path.is_file():
            raise LogUnavailable(
                f"there is no log at {self.path}\n"
                "  run a conversation first, or name the file with --log or TOOLCHART_LOG"
            )
        with self._errors:
            if create:
                create_private_file(self.path)
            self._db = connect(self.path)
            self._prepare_schema()
            super().__init__(self.path, connect(self.path, reads_only=True))
            self._watch = SqliteWatch(self.path, self._db, 0.0 if durable else LOOK_EVERY_S)
        self._errors = ErrorTranslation(self.path, self._watch.notice)
        self._transaction = Transaction(self._db, self._lock, BUSY_TIMEOUT_S, self._watch)
        self._try_transaction = Transaction(self._db, self._lock, 0, self._watch)

    def _prepare_schema(self) -> None:
        """Set the durability, and create or upgrade the tables."""
        self._db.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            check_identity(self._db, self.path, SCHEMA_VERSION)  # before anything is written into it
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA busy_timeout = 0")
        # What is replaced or deleted is overwritten: an inbox entry that was taken, a fork that was given up.
        # Else its bytes would stay in free pages after all that repeats them was erased.
        self._db.execute("PRAGMA secure_delete = ON")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        version = read_schema_version(self._db)
        if version < SCHEMA_VERSION:
            with Transaction(self._db, self._lock, BUSY_TIMEOUT_S):
                version = read_schema_version(self._db)  # may have changed meanwhile
                if version < SCHEMA_VERSION:
                    upgrade_schema(self._db, version)

    # -- appending -------------------------------------------------------------------------------

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; durable on return."""
        with self._errors, self._transaction:
            self._insert_batch(RecordBatch(conversation, first_seq, lines))

    def append_many(
        self, batches: Sequence[RecordBatch], *, wait: bool = True
    ) -> Sequence[ToolchartError | None]:
        """Append several batches in one transaction; why each was refused, or None."""
        faults: list[ToolchartError | None] = []
        with self._errors, self._transaction if wait else self._try_transaction:
            for batch in batches:
                try:
                    self._insert_batch(batch)
                    faults.append(None)
                except LogConflict as error:  # raised before any of its lines is written
                    faults.append(error)
        return faults

    def _insert_batch(self, batch: RecordBatch) -> None:
        """Insert lines after checking the lease, and that the first number is the next one."""
        db, conversation, first_seq, lease = self._db, batch.conversation, batch.first_seq, batch.lease
        root = conversation if lease is None else lease.conversation
        number, newest, holder = db.execute(_FIND_END, (conversation, root)).fetchone()
        if holder is not None or lease is not None:
            self._check_lease(conversation, root, holder, lease)
        next_seq = 0 if newest is None else (newest & 2**SEQ_BITS - 1) + 1
        if next_seq != first_seq:
            raise LogConflict(
                f"conversation {conversation}: record {first_seq} cannot be appended, the log has {next_seq}"
            )
        if number is None:
            number = self._insert_conversation(conversation, root)
        row_id, rows = (number << SEQ_BITS) + first_seq, []
        for line in batch.lines:
            stored_line, parts = split_large_parts(line)
            rows.append((row_id, stored_line))
            row_id += 1
            self._bytes_since_upkeep += len(line)
            if parts:
                db.executemany(
                    "INSERT INTO parts VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET uses = uses + 1",
                    list(parts.items()),
                )
        db.executemany("INSERT INTO records VALUES (?, ?)", rows)
        if batch.checkpoint is not None:
            db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", (number, *batch.checkpoint))
        if batch.taken:
            sqlite_leases.mark_taken(db, batch.taken)

    def _insert_conversation(self, conversation: str, root: str) -> int:
        """Begin a conversation; its number. A child is covered by the lease of its root and has none."""
        cursor = self._db.execute("INSERT INTO conversations (id) VALUES (?)", (conversation,))
        if root != conversation:
            sqlite_leases.write_lease(self._db, build_child_lease(conversation))
        return cursor.lastrowid or 0

    def _check_lease(self, conversation: str, root: str, holder: str | None, lease: Lease | None) -> None:
        """Raise the fault of a batch whose lease is not the newest."""
        if lease is not None and holder == f"{lease.worker} {lease.token}":
            return
        newest = sqlite_leases.find_lease(self._db, root)
        fault = find_lease_fault(conversation, newest, lease, time.time())
        if fault is not None:
            raise fault

    def rewrite_lines(self, batch: RecordBatch, lines: Mapping[int, bytes]) -> None:
        """Append a batch and replace earlier lines of its conversation; SQLite overwrites the old bytes."""
        with self._errors:
            with self._transaction:
                self._insert_batch(batch)
                replace_lines(self._db, batch.conversation, lines)
            with self._lock:
                self._truncate_wal()

    def _truncate_wal(self) -> None:
        """Empty the write-ahead log, which holds old pages; the lock is held.

        Raises:
            LogUnavailable: somebody reads for longer than a writer waits.
        """
        self._db.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        is_busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._db.execute("PRAGMA busy_timeout = 0")
        if is_busy:
            raise LogUnavailable(
                f"another process reads the log {self.path}, so {self.path.name}-wal still has old pages\n"
                "  when it has ended, write them over: toolchart prune --vacuum"
            )

    # -- deleting and upkeep -----------------------------------------------------------------------

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation; SQLite uses its pages again."""
        self.delete_many([conversation])

    def delete_many(self, conversations: Sequence[str]) -> None:
        """Delete whole conversations in one transaction."""
        with self._errors, self._transaction:
            for conversation in conversations:
                self._delete_rows(conversation)
            self._db.execute("DELETE FROM parts WHERE uses < 1")

    def _delete_rows(self, conversation: str) -> None:
        db = self._db
        fault = find_lease_fault(conversation, sqlite_leases.find_lease(db, conversation), None, time.time())
        if fault is not None:
            raise fault
        row = db.execute("SELECT number FROM conversations WHERE id = ?", (conversation,)).fetchone()
        sqlite_leases.delete_rows(db, conversation)
        if row is None:
            return
        id_range = get_id_range(row[0])
        rows = db.execute(
            "SELECT line FROM records WHERE id BETWEEN ? AND ? AND instr(line, x'00')", id_range
        )
        digests = [(digest,) for (line,) in rows.fetchall() for digest in list_part_digests(line)]
        db.executemany("UPDATE parts SET uses = uses - 1 WHERE digest = ?", digests)
        db.execute("DELETE FROM checkpoints WHERE conversation = ?", row)
        db.execute("DELETE FROM records WHERE id BETWEEN ? AND ?", id_range)
        db.execute("DELETE FROM conversations WHERE number = ?", row)

    def vacuum(self) -> None:
        """Give the space of deleted conversations back to the system; rewrites the whole file."""
        with self._lock, self._errors:
            self._watch.look()
            self._db.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
            self._db.execute("VACUUM")
            self._truncate_wal()

    def take_over_upkeep(self) -> None:
        """Leave the write-ahead log to `do_upkeep`: a commit does not write it back any more."""
        with self._lock, self._errors:
            self._db.execute("PRAGMA wal_autocheckpoint = 0")

    def needs_upkeep(self) -> bool:
        """Whether the write-ahead log has grown enough to be written back into the file."""
        return self._bytes_since_upkeep >= _UPKEEP_BYTES

    def do_upkeep(self) -> None:
        """Write the write-ahead log back into the file, by a connection of its own, beside the writers."""
        self._bytes_since_upkeep = 0
        wal = self.path.with_name(self.path.name + "-wal")
        is_long = wal.exists() and wal.stat().st_size > _LONG_WAL_BYTES
        with self._errors:
            self._watch.look()  # a checkpoint would write old pages into a file that was restored
            db = connect(self.path)
            try:
                db.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if is_long else 'PASSIVE'})")
            finally:
                db.close()

    def check_place(self) -> None:
        """Return where the file at the path of the log is the one that is open.

        Raises:
            LogUnavailable: it was deleted, replaced or overwritten.
        """
        with self._errors:
            self._watch.look()

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record; it is synced with the next append, or earlier."""
        with self._errors, self._begin_unsynced():
            row = self._db.execute(
                "SELECT number FROM conversations WHERE id = ?", (conversation,)
            ).fetchone()
            if row is not None:
                self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", (row[0], seq, data))

    # -- leases and inboxes ------------------------------------------------------------------------

    def _begin_unsynced(self, wait: bool = True) -> Transaction:
        """A transaction that does not wait for the disk: after a loss of power nobody holds a lease.

        The file is written in order, so the sync of a later append covers it.
        """
        wait_s = BUSY_TIMEOUT_S if wait else 0
        return Transaction(self._db, self._lock, wait_s, self._watch, is_unsynced=self._durable)

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """Take the lease of a conversation."""
        with self._errors, self._begin_unsynced(wait):
            return sqlite_leases.acquire_lease(self._db, conversation, worker, seconds)

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Prolong leases; of each, whether it was still held."""
        with self._errors, self._begin_unsynced():
            return [sqlite_leases.renew_lease(self._db, lease, seconds) for lease in leases]

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """End a lease, unless the inbox has entries."""
        with self._errors, self._begin_unsynced(wait):
            return sqlite_leases.release_lease(self._db, lease, is_open=is_open, due=due)

    def list_last_worked_on(self, limit: int) -> Sequence[str]:
        """Ids of conversations, the one whose lease was taken last first."""
        query = "SELECT conversation FROM leases WHERE token > 0 ORDER BY since DESC LIMIT ?"
        return [str(row[0]) for row in self._fetch_all(query, (limit,))]

    def post(self, conversation: str, key: str, data: bytes) -> bool:
        """Add an entry to an inbox, unless its key is known; durable on return."""
        with self._errors, self._transaction:
            return sqlite_leases.post(self._db, conversation, key, data)

    def drop_entries(self, conversation: str, numbers: Sequence[int]) -> None:
        """Mark entries as taken."""
        with self._errors, self._transaction:
            sqlite_leases.mark_taken(self._db, numbers)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock, self._read_lock:
            self._reader.close()
            self._db.close()
