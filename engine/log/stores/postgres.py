"""The PostgreSQL store (`postgresql://...`): a log that several machines can write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from toolchart.engine.log.stores.large_parts import join_large_parts, list_part_digests, split_large_parts
from toolchart.engine.log.stores.postgres_checks import check_tables, find_postgres_damage
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable, ToolchartError
from toolchart.states.ports import RecordBatch

if TYPE_CHECKING:
    import psycopg

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
"""

_SCHEMA_LOCK = 0x746F6F6C
"""Key of the advisory lock for creating the tables, so that two processes do not collide."""

_PAGE_SIZE = 256


class PostgresStore:
    """Keeps records and checkpoints in four tables of a database; reconnects after a broken connection.

    Args:
        address: `postgresql://...`.
        durable: whether a commit waits for the disk (`full`).
        read_only: whether the server refuses every write of this store, and no table is created.

    Raises:
        LogUnavailable: the extra `postgres` is not installed, or the server cannot be reached.
    """

    def __init__(self, address: str, *, durable: bool = True, read_only: bool = False) -> None:
        self._address = address
        self._durable = durable
        self._read_only = read_only
        self._lock = threading.RLock()
        self._db: psycopg.Connection[Any] | None = None
        self._run_with_connection(check_tables if read_only else self._prepare_schema)

    @staticmethod
    def _prepare_schema(db: psycopg.Connection[Any]) -> None:
        """Create the tables where they are missing."""
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            db.execute(_SCHEMA)

    def _get_connection(self) -> psycopg.Connection[Any]:
        """The open connection; a new one where there is none or it broke."""
        if self._db is None or self._db.closed or self._db.broken:
            try:
                import psycopg
            except ImportError:
                raise LogUnavailable(
                    "PostgreSQL needs an extra\n  pip install 'toolchart[postgres]'"
                ) from None
            self._db = psycopg.connect(self._address, autocommit=True, connect_timeout=10)
            if not self._durable:
                self._db.execute("SET synchronous_commit = off")
            if self._read_only:
                self._db.execute("SET default_transaction_read_only = on")
        return self._db

    def _run_with_connection(self, work: Callable[[psycopg.Connection[Any]], Value]) -> Value:
        """Run `work` with an open connection; once more with a new one where the connection broke.

        Repeating is safe: a read changes nothing, and an append that did go through the first time is
        refused the second time by its number.
        """
        with self._lock:
            for is_last_try in (False, True):
                try:
                    return work(self._get_connection())
                except ToolchartError:
                    raise
                except Exception as error:
                    names = {kind.__name__ for kind in type(error).__mro__}
                    if "UniqueViolation" in names:
                        raise LogConflict("another writer appended to this conversation first") from None
                    if is_last_try or "OperationalError" not in names:
                        raise LogUnavailable(f"the PostgreSQL log cannot be used: {error}") from None
                    self._drop_connection()
        raise AssertionError("two tries end in a value or an error")

    def _drop_connection(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; committed on return."""
        attempts = 0

        def append_once(db: psycopg.Connection[Any]) -> None:
            """One attempt; on a retry, lines that are already there are a success."""
            nonlocal attempts
            attempts += 1
            try:
                self._append_lines(db, conversation, first_seq, lines)
            except LogConflict:
                # The first attempt may have been committed before the connection broke.
                if attempts > 1 and self._has_lines(db, conversation, first_seq, lines):
                    return
                raise

        self._run_with_connection(append_once)

    def append_many(self, batches: Sequence[RecordBatch]) -> Sequence[LogConflict | None]:
        """Append for several conversations in one transaction; the conflict of each, or None."""
        attempts = 0

        def append_batches(db: psycopg.Connection[Any]) -> list[LogConflict | None]:
            """One attempt at all batches."""
            nonlocal attempts
            attempts += 1
            with db.transaction():
                return [self._try_append(db, batch, is_retry=attempts > 1) for batch in batches]

        return self._run_with_connection(append_batches)

    def _try_append(
        self, db: psycopg.Connection[Any], batch: RecordBatch, *, is_retry: bool
    ) -> LogConflict | None:
        """Append one batch in a savepoint, so that its conflict does not affect the others."""
        try:
            self._append_lines(db, *batch)
        except LogConflict as error:
            return None if is_retry and self._has_lines(db, *batch) else error
        return None

    def _append_lines(
        self, db: psycopg.Connection[Any], conversation: str, first_seq: int, lines: Sequence[bytes]
    ) -> None:
        """Append lines in a transaction, after checking that the first number is the next one."""
        with db.transaction():
            if first_seq == 0:
                db.execute(
                    "INSERT INTO toolchart_conversations (id) VALUES (%s) ON CONFLICT DO NOTHING",
                    (conversation,),
                )
            row = db.execute(
                "SELECT number, (SELECT max(seq) FROM toolchart_records WHERE conversation = number) "
                "FROM toolchart_conversations WHERE id = %s FOR UPDATE",
                (conversation,),
            ).fetchone()
            next_seq = 0 if row is None or row[1] is None else row[1] + 1
            if row is None or next_seq != first_seq:
                raise LogConflict(
                    f"conversation {conversation}: record {first_seq} cannot be appended, "
                    f"the log has {next_seq}"
                )
            split_lines = [split_large_parts(line) for line in lines]
            with db.cursor() as cursor:
                # Sorted by digest, so that two writers with common parts cannot deadlock.
                if parts := sorted(part for _, parts in split_lines for part in parts.items()):
                    cursor.executemany(
                        "INSERT INTO toolchart_parts AS p VALUES (%s, %s, 1) "
                        "ON CONFLICT (digest) DO UPDATE SET uses = p.uses + 1",
                        parts,
                    )
                cursor.executemany(
                    "INSERT INTO toolchart_records VALUES (%s, %s, %s)",
                    [(row[0], first_seq + offset, line) for offset, (line, _) in enumerate(split_lines)],
                )

    def _has_lines(
        self, db: psycopg.Connection[Any], conversation: str, first_seq: int, lines: Sequence[bytes]
    ) -> bool:
        """Whether the newest records are exactly these lines."""
        rows = self._read_page(db, conversation, first_seq, len(lines) + 1)
        return [bytes(line) for _, line in rows] == [split_large_parts(line)[0] for line in lines]

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
            rows = self._run_with_connection(
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
        row = self._run_with_connection(
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
        row = self._run_with_connection(lambda db: db.execute(query, (digest,)).fetchone())
        return bytes(row[0]) if row else None

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        rows = self._run_with_connection(
            lambda db: db.execute("SELECT id FROM toolchart_conversations ORDER BY number").fetchall()
        )
        return [str(row[0]) for row in rows]

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation."""

        def delete_rows(db: psycopg.Connection[Any]) -> None:
            """Delete the records, and the parts that no other record uses."""
            with db.transaction():
                rows = db.execute(
                    "SELECT line FROM toolchart_records JOIN toolchart_conversations "
                    "ON conversation = number WHERE id = %s AND position('\\x00'::bytea in line) > 0",
                    (conversation,),
                ).fetchall()
                digests = sorted((digest,) for (line,) in rows for digest in list_part_digests(bytes(line)))
                with db.cursor() as cursor:
                    cursor.executemany(
                        "UPDATE toolchart_parts SET uses = uses - 1 WHERE digest = %s", digests
                    )
                db.execute("DELETE FROM toolchart_parts WHERE uses < 1")
                db.execute(
                    "DELETE FROM toolchart_checkpoints USING toolchart_conversations "
                    "WHERE conversation = number AND id = %s",
                    (conversation,),
                )
                db.execute(
                    "DELETE FROM toolchart_records USING toolchart_conversations "
                    "WHERE conversation = number AND id = %s",
                    (conversation,),
                )
                db.execute("DELETE FROM toolchart_conversations WHERE id = %s", (conversation,))

        self._run_with_connection(delete_rows)

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record; it is on the disk with the next append, or earlier."""

        def write_row(db: psycopg.Connection[Any]) -> None:
            """Write without waiting for the disk: the log of the server is written in order."""
            with db.transaction():
                db.execute("SET LOCAL synchronous_commit = off")
                db.execute(
                    "INSERT INTO toolchart_checkpoints SELECT number, %s, %s FROM toolchart_conversations "
                    "WHERE id = %s ON CONFLICT (conversation, seq) DO UPDATE SET data = excluded.data",
                    (seq, data, conversation),
                )

        self._run_with_connection(write_row)

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first: one, and then page by page, because most readers want one."""
        before, limit = newest + 1 if newest is not None else 2**62, 1
        query = (
            b"SELECT seq, data FROM toolchart_checkpoints JOIN toolchart_conversations "
            b"ON conversation = number WHERE id = %s AND seq < %s ORDER BY seq DESC LIMIT %s"
        )
        while True:
            rows = self._run_with_connection(
                partial(_fetch_rows, query=query, parameters=(conversation, before, limit))
            )
            for seq, data in rows:
                yield seq, bytes(data)
            if len(rows) < limit:
                return
            before, limit = rows[-1][0], _PAGE_SIZE

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the tables that is not as a store leaves it."""
        return iter(self._run_with_connection(lambda db: list(find_postgres_damage(db))))

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._lock:
            self._drop_connection()


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
