"""The PostgreSQL store (`postgresql://...`): a log that several machines can write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from toolchart.engine.log.leases import build_child_lease, find_lease_fault
from toolchart.engine.log.reading.listing import SAMPLE_SIZE
from toolchart.engine.log.stores.access import postgres_tables as tables
from toolchart.engine.log.stores.access.postgres_appends import INSERT_PART, append_quickly
from toolchart.engine.log.stores.large_parts import join_large_parts, list_part_digests, split_large_parts
from toolchart.engine.log.stores.postgres_checks import check_tables, find_postgres_damage
from toolchart.states.errors import LogConflict, LogDamaged, ToolchartError
from toolchart.states.ports import InboxEntry, Lease, RecordBatch

if TYPE_CHECKING:
    import psycopg

Value = TypeVar("Value")

_PAGE_SIZE = 256


class PostgresStore:
    """Keeps records and checkpoints in tables of a database; reconnects after a broken connection.

    One connection writes and another one reads, so that a reader never waits for a commit.

    Args:
        address: `postgresql://...`.
        durable: whether a commit waits for the disk (`full`).
        read_only: whether the server refuses every write of this store, and no table is created.

    Raises:
        LogUnavailable: the extra `postgres` is not installed, or the server cannot be reached.
    """

    commits_at_once = False

    def __init__(self, address: str, *, durable: bool = True, read_only: bool = False) -> None:
        self._durable = durable
        self._writing = tables.Channel(address, read_only=read_only)
        self._reading = tables.Channel(address, read_only=read_only)
        if read_only:
            self._reading.run(check_tables)
        else:
            self._writing.run(tables.prepare_schema)

    @contextlib.contextmanager
    def _begin_write(self, db: psycopg.Connection[Any]) -> Iterator[None]:
        """A transaction whose end waits for the disk where the store is durable."""
        with db.transaction():
            if not self._durable:
                tables.begin_unsynced(db)
            yield

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; committed on return."""
        (fault,) = self.append_many((RecordBatch(conversation, first_seq, lines),))
        if fault is not None:
            raise fault

    def append_many(
        self, batches: Sequence[RecordBatch], *, wait: bool = True
    ) -> Sequence[ToolchartError | None]:
        """Append several batches in one transaction; why each was refused, or None."""
        attempts = 0

        def append_batches(db: psycopg.Connection[Any]) -> list[ToolchartError | None]:
            """One attempt at all batches; on a retry, lines that are already there are a success."""
            nonlocal attempts
            attempts += 1
            if attempts == 1 and append_quickly(db, batches, durable=self._durable):
                return [None] * len(batches)
            with self._begin_write(db):
                return [self._try_append(db, batch, is_retry=attempts > 1) for batch in batches]

        return self._writing.run(append_batches)

    def rewrite_lines(self, batch: RecordBatch, lines: Mapping[int, bytes]) -> None:
        """Append a batch and replace earlier lines; the server frees the old rows with its next `VACUUM`."""

        def rewrite(db: psycopg.Connection[Any]) -> None:
            """One attempt; on a retry, lines that are already there are a success."""
            with self._begin_write(db):
                if not self._has_lines(db, batch):
                    self._append_batch(db, batch)
                    tables.replace_lines(db, batch.conversation, lines)

        self._writing.run(rewrite)

    def _try_append(
        self, db: psycopg.Connection[Any], batch: RecordBatch, *, is_retry: bool
    ) -> ToolchartError | None:
        """Append one batch in a savepoint, so that its conflict does not affect the others."""
        try:
            with db.transaction():
                self._append_batch(db, batch)
        except LogConflict as error:
            return None if is_retry and self._has_lines(db, batch) else error
        return None

    def _append_batch(self, db: psycopg.Connection[Any], batch: RecordBatch) -> None:
        """Append lines after checking the lease, and that the first number is the next one."""
        conversation, first_seq, lease = batch.conversation, batch.first_seq, batch.lease
        root = conversation if lease is None else lease.conversation
        newest = tables.find_lease(db, root, b" FOR SHARE")
        if newest is not None or lease is not None:
            fault = find_lease_fault(conversation, newest, lease, tables.read_time(db))
            if fault is not None:
                raise fault
        number = self._find_place(db, batch, root)
        split_lines = [split_large_parts(line) for line in batch.lines]
        with db.cursor() as cursor:
            # Sorted by digest, so that two writers with common parts cannot deadlock.
            if parts := sorted(part for _, parts in split_lines for part in parts.items()):
                cursor.executemany(INSERT_PART, parts)
            cursor.executemany(
                "INSERT INTO toolchart_records VALUES (%s, %s, %s)",
                [(number, first_seq + offset, line) for offset, (line, _) in enumerate(split_lines)],
            )
        if batch.checkpoint is not None:
            self._insert_checkpoint(db, number, *batch.checkpoint)
        if batch.taken:
            tables.mark_taken(db, batch.taken)

    def _find_place(self, db: psycopg.Connection[Any], batch: RecordBatch, root: str) -> int:
        """The number of a conversation, which is begun where the batch is its first, and locked.

        Raises:
            LogConflict: the batch does not begin with the next record.
        """
        conversation = batch.conversation
        if batch.first_seq == 0:
            db.execute(
                "INSERT INTO toolchart_conversations (id) VALUES (%s) ON CONFLICT DO NOTHING", (conversation,)
            )
        row = db.execute(
            "SELECT number, (SELECT max(seq) FROM toolchart_records WHERE conversation = number) "
            "FROM toolchart_conversations WHERE id = %s FOR UPDATE",
            (conversation,),
        ).fetchone()
        next_seq = 0 if row is None or row[1] is None else row[1] + 1
        if row is None or next_seq != batch.first_seq:
            raise LogConflict(
                f"conversation {conversation}: record {batch.first_seq} cannot be appended, "
                f"the log has {next_seq}"
            )
        if batch.first_seq == 0 and root != conversation:
            tables.write_lease(db, build_child_lease(conversation))
        return int(row[0])

    def _has_lines(self, db: psycopg.Connection[Any], batch: RecordBatch) -> bool:
        """Whether the newest records are exactly the lines of a batch."""
        rows = self._read_page(db, batch.conversation, batch.first_seq, len(batch.lines) + 1)
        return [bytes(line) for _, line in rows] == [split_large_parts(line)[0] for line in batch.lines]

    @staticmethod
    def _read_page(
        db: psycopg.Connection[Any], conversation: str, start: int, limit: int
    ) -> list[tuple[int, bytes]]:
        """Numbers and stored lines from a number on, at most `limit`."""
        return db.execute(
            "SELECT seq, line FROM toolchart_records JOIN toolchart_conversations "
            "ON conversation = number WHERE id = %s AND seq >= %s ORDER BY seq LIMIT %s",
            (conversation, start, limit),
        ).fetchall()

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on, read page by page."""
        while True:
            rows = self._reading.run(
                partial(self._read_page, conversation=conversation, start=start, limit=_PAGE_SIZE)
            )
            for seq, line in rows:
                if seq != start:
                    raise LogDamaged("it is missing", conversation=conversation, seq=start)
                yield self._join_parts(bytes(line), conversation, seq)
                start += 1
            if len(rows) < _PAGE_SIZE:
                return

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        row = self._reading.run(
            lambda db: db.execute(
                "SELECT seq, line FROM toolchart_records JOIN toolchart_conversations "
                "ON conversation = number WHERE id = %s ORDER BY seq DESC LIMIT 1",
                (conversation,),
            ).fetchone()
        )
        return (row[0], self._join_parts(bytes(row[1]), conversation, row[0])) if row else None

    def _join_parts(self, line: bytes, conversation: str, seq: int) -> bytes:
        """The original line of a stored one."""
        joined_line = join_large_parts(line, self._read_part)
        if joined_line is None:
            raise LogDamaged("a part of it is missing", conversation=conversation, seq=seq)
        return joined_line

    def _read_part(self, digest: bytes) -> bytes | None:
        """The large part with this digest; None where it is missing."""
        query = "SELECT data FROM toolchart_parts WHERE digest = %s"
        row = self._reading.run(lambda db: db.execute(query, (digest,)).fetchone())
        return bytes(row[0]) if row else None

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        rows = self._reading.run(
            lambda db: db.execute("SELECT id FROM toolchart_conversations ORDER BY number").fetchall()
        )
        return [str(row[0]) for row in rows]

    def list_page(self, limit: int, before: str | None = None) -> Sequence[str]:
        """The ids of the newest conversations, the newest first."""
        query = b"SELECT id FROM toolchart_conversations ORDER BY number DESC LIMIT %s"
        parameters: tuple[Any, ...] = (limit,)
        if before is not None:
            query = (
                b"SELECT id FROM toolchart_conversations WHERE number < "
                b"(SELECT number FROM toolchart_conversations WHERE id = %s) ORDER BY number DESC LIMIT %s"
            )
            parameters = (before, limit)
        rows = self._reading.run(partial(_fetch_rows, query=query, parameters=parameters))
        return [str(row[0]) for row in rows]

    def list_sample(self) -> Sequence[str]:
        """The ids of the newest conversations and of the oldest one."""
        query = b"SELECT id FROM toolchart_conversations ORDER BY number LIMIT %s"
        rows = self._reading.run(partial(_fetch_rows, query=query, parameters=(1,)))
        return [*self.list_page(SAMPLE_SIZE), *(str(row[0]) for row in rows)]

    def list_last_worked_on(self, limit: int) -> Sequence[str]:
        """Ids of conversations, the one whose lease was taken last first."""
        query = b"SELECT conversation FROM toolchart_leases WHERE token > 0 ORDER BY since DESC LIMIT %s"
        rows = self._reading.run(partial(_fetch_rows, query=query, parameters=(limit,)))
        return [str(row[0]) for row in rows]

    def find_names(self, beginning: str, limit: int) -> Sequence[str]:
        """The ids that begin with a text, sorted."""
        query = b"SELECT id FROM toolchart_conversations WHERE starts_with(id, %s) ORDER BY id LIMIT %s"
        rows = self._reading.run(partial(_fetch_rows, query=query, parameters=(beginning, limit)))
        return [str(row[0]) for row in rows]

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation."""
        self.delete_many([conversation])

    def delete_many(self, conversations: Sequence[str]) -> None:
        """Delete whole conversations in one transaction."""

        def delete_all(db: psycopg.Connection[Any]) -> None:
            """Delete the records, and the parts that no other record uses."""
            with self._begin_write(db):
                for conversation in conversations:
                    _delete_rows(db, conversation)
                db.execute("DELETE FROM toolchart_parts WHERE uses < 1")

        self._writing.run(delete_all)

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record; it is on the disk with the next append, or earlier."""

        def write_row(db: psycopg.Connection[Any]) -> None:
            """Write without waiting for the disk: the log of the server is written in order."""
            with db.transaction():
                tables.begin_unsynced(db)
                query = "SELECT number FROM toolchart_conversations WHERE id = %s"
                row = db.execute(query, (conversation,)).fetchone()
                if row is not None:
                    self._insert_checkpoint(db, row[0], seq, data)

        self._writing.run(write_row)

    @staticmethod
    def _insert_checkpoint(db: psycopg.Connection[Any], number: int, seq: int, data: bytes) -> None:
        db.execute(
            "INSERT INTO toolchart_checkpoints VALUES (%s, %s, %s) "
            "ON CONFLICT (conversation, seq) DO UPDATE SET data = excluded.data",
            (number, seq, data),
        )

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first: one, and then page by page, because most readers want one."""
        before, limit = newest + 1 if newest is not None else 2**62, 1
        query = (
            b"SELECT seq, data FROM toolchart_checkpoints JOIN toolchart_conversations "
            b"ON conversation = number WHERE id = %s AND seq < %s ORDER BY seq DESC LIMIT %s"
        )
        while True:
            rows = self._reading.run(
                partial(_fetch_rows, query=query, parameters=(conversation, before, limit))
            )
            for seq, data in rows:
                yield seq, bytes(data)
            if len(rows) < limit:
                return
            before, limit = rows[-1][0], _PAGE_SIZE

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the tables that is not as a store leaves it."""
        return iter(self._reading.run(lambda db: list(find_postgres_damage(db))))

    # -- leases and inboxes ------------------------------------------------------------------------

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """Take the lease of a conversation."""
        return self._writing.run(lambda db: tables.acquire_lease(db, conversation, worker, seconds))

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Prolong leases; of each, whether it was still held."""
        return self._writing.run(lambda db: [tables.renew_lease(db, lease, seconds) for lease in leases])

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """End a lease, unless the inbox has entries."""
        return self._writing.run(lambda db: tables.release_lease(db, lease, is_open=is_open, due=due))

    def find_lease(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation."""
        return self._reading.run(lambda db: tables.find_lease(db, conversation))

    def list_leases(self) -> Sequence[Lease]:
        """The leases that are held now, the oldest first."""
        return self._reading.run(tables.list_leases)

    def list_unfinished(self) -> Iterable[str]:
        """The conversations that a worker may go on with now."""
        return self._reading.run(tables.list_unfinished)

    def post(self, conversation: str, key: str, data: bytes) -> bool:
        """Add an entry to an inbox, unless its key is known; durable on return."""

        def post(db: psycopg.Connection[Any]) -> bool:
            with self._begin_write(db):
                return tables.post(db, conversation, key, data)

        return self._writing.run(post)

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries that are not taken yet, the oldest first."""
        return self._reading.run(lambda db: tables.read_inbox(db, conversations))

    def drop_entries(self, conversation: str, numbers: Sequence[int]) -> None:
        """Mark entries as taken."""

        def mark(db: psycopg.Connection[Any]) -> None:
            with self._begin_write(db):
                tables.mark_taken(db, numbers)

        self._writing.run(mark)

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._writing.close()
        self._reading.close()


def _delete_rows(db: psycopg.Connection[Any], conversation: str) -> None:
    """Delete a conversation; its parts are counted down."""
    newest = tables.find_lease(db, conversation, b" FOR UPDATE")
    fault = find_lease_fault(conversation, newest, None, tables.read_time(db))
    if fault is not None:
        raise fault
    tables.delete_rows(db, conversation)
    query = "SELECT number FROM toolchart_conversations WHERE id = %s"
    row = db.execute(query, (conversation,)).fetchone()
    if row is None:
        return
    rows = db.execute(
        "SELECT line FROM toolchart_records WHERE conversation = %s AND position('\\x00'::bytea in line) > 0",
        row,
    ).fetchall()
    digests = sorted((digest,) for (line,) in rows for digest in list_part_digests(bytes(line)))
    with db.cursor() as cursor:
        cursor.executemany("UPDATE toolchart_parts SET uses = uses - 1 WHERE digest = %s", digests)
    db.execute("DELETE FROM toolchart_checkpoints WHERE conversation = %s", row)
    db.execute("DELETE FROM toolchart_records WHERE conversation = %s", row)
    db.execute("DELETE FROM toolchart_conversations WHERE number = %s", row)


def _fetch_rows(db: psycopg.Connection[Any], query: bytes, parameters: tuple[Any, ...]) -> list[Any]:
    """The rows of a query."""
    return db.execute(query, parameters).fetchall()


def open_postgres_store(address: str, *, create: bool = True, durable: bool = True) -> PostgresStore:
    """The store of a database; its tables are created where they are missing.

    Raises:
        LogUnavailable: the database cannot be reached, or the extra `postgres` is not installed.
    """
    return PostgresStore(address, durable=durable)


def open_postgres_for_reading(address: str) -> PostgresStore:
    """The store of a database, for reading; nothing is created.

    Raises:
        ForeignLog: the database has no log.
        LogUnavailable: the database cannot be reached, or the extra `postgres` is not installed.
    """
    return PostgresStore(address, read_only=True)
