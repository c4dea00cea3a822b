"""The PostgreSQL store: `postgresql://...`, for logs that several machines write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from toolchart.engine.log.stores.large_parts import fold, folds, unfold
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable, ToolchartError
from toolchart.states.ports import Batch

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
"""

_SCHEMA_LOCK = 0x746F6F6C
"""Key of the advisory lock under which the tables are made: two first users must not collide."""

_PAGE = 256


class PostgresStore:
    """Keeps records in two tables of a database; a broken connection is opened again.

    Args:
        durable: whether a commit waits for the disk (`full`).

    Raises:
        LogUnavailable: the extra `postgres` is not installed, or the server cannot be reached.
    """

    def __init__(self, address: str, *, durable: bool = True) -> None:
        self._address = address
        self._durable = durable
        self._lock = threading.RLock()
        self._db: psycopg.Connection[Any] | None = None
        self._with(self._prepare)

    @staticmethod
    def _prepare(db: psycopg.Connection[Any]) -> None:
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            db.execute(_SCHEMA)

    def _connected(self) -> psycopg.Connection[Any]:
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
        return self._db

    def _with(self, work: Callable[[psycopg.Connection[Any]], Value]) -> Value:
        """Do something with a live connection; once more with a new one where it broke.

        Repeating is safe: a read changes nothing, and an append that did go through the first time is
        refused the second time by its number.
        """
        with self._lock:
            for last in (False, True):
                try:
                    return work(self._connected())
                except ToolchartError:
                    raise
                except Exception as error:
                    names = {kind.__name__ for kind in type(error).__mro__}
                    if "UniqueViolation" in names:
                        raise LogConflict(
                            "another writer appended to this conversation first"
                        ) from None
                    if last or "OperationalError" not in names:
                        raise LogUnavailable(
                            f"the PostgreSQL log cannot be used: {error}"
                        ) from None
                    self._drop()
        raise AssertionError("two tries end in a value or an error")

    def _drop(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; committed on return."""
        attempts = 0

        def work(db: psycopg.Connection[Any]) -> None:
            nonlocal attempts
            attempts += 1
            try:
                self._append(db, conversation, first_seq, lines)
            except LogConflict:
                # The first try may have been committed before the connection broke.
                if attempts > 1 and self._has(db, conversation, first_seq, lines):
                    return
                raise

        self._with(work)

    def append_many(self, batches: Sequence[Batch]) -> Sequence[LogConflict | None]:
        """Append for several conversations in one transaction; says which lost to another writer."""
        attempts = 0

        def work(db: psycopg.Connection[Any]) -> list[LogConflict | None]:
            nonlocal attempts
            attempts += 1
            with db.transaction():
                return [self._tried(db, batch, again=attempts > 1) for batch in batches]

        return self._with(work)

    def _tried(
        self, db: psycopg.Connection[Any], batch: Batch, *, again: bool
    ) -> LogConflict | None:
        """One of several; a savepoint keeps its loss to itself."""
        try:
            self._append(db, *batch)
        except LogConflict as error:
            return None if again and self._has(db, *batch) else error
        return None

    def _append(
        self, db: psycopg.Connection[Any], conversation: str, first_seq: int, lines: Sequence[bytes]
    ) -> None:
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
            expected = 0 if row is None or row[1] is None else row[1] + 1
            if row is None or expected != first_seq:
                raise LogConflict(
                    f"conversation {conversation}: record {first_seq} cannot be appended, "
                    f"the log has {expected}"
                )
            folded = [fold(line) for line in lines]
            with db.cursor() as cursor:
                # In the order of their hashes: two writers that share parts must not wait in a circle.
                if parts := sorted(part for _, parts in folded for part in parts.items()):
                    cursor.executemany(
                        "INSERT INTO toolchart_parts AS p VALUES (%s, %s, 1) "
                        "ON CONFLICT (digest) DO UPDATE SET uses = p.uses + 1",
                        parts,
                    )
                cursor.executemany(
                    "INSERT INTO toolchart_records VALUES (%s, %s, %s)",
                    [(row[0], first_seq + place, line) for place, (line, _) in enumerate(folded)],
                )

    def _has(
        self, db: psycopg.Connection[Any], conversation: str, first_seq: int, lines: Sequence[bytes]
    ) -> bool:
        rows = self._page(db, conversation, first_seq, len(lines) + 1)
        return [bytes(line) for _, line in rows] == [fold(line)[0] for line in lines]

    @staticmethod
    def _page(
        db: psycopg.Connection[Any], conversation: str, start: int, most: int
    ) -> list[tuple[int, bytes]]:
        return db.execute(
            "SELECT seq, line FROM toolchart_records JOIN toolchart_conversations "
            "ON conversation = number WHERE id = %s AND seq >= %s ORDER BY seq LIMIT %s",
            (conversation, start, most),
        ).fetchall()

    def read(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from `start` on, a page at a time."""
        while True:
            rows = self._with(
                partial(self._page, conversation=conversation, start=start, most=_PAGE)
            )
            for seq, line in rows:
                if seq != start:
                    raise LogDamaged("it is missing", conversation=conversation, seq=start)
                yield self._unfolded(bytes(line), conversation, seq)
                start += 1
            if len(rows) < _PAGE:
                return

    def last(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        row = self._with(
            lambda db: db.execute(
                "SELECT seq, line FROM toolchart_records JOIN toolchart_conversations "
                "ON conversation = number WHERE id = %s ORDER BY seq DESC LIMIT 1",
                (conversation,),
            ).fetchone()
        )
        return (row[0], self._unfolded(bytes(row[1]), conversation, row[0])) if row else None

    def _unfolded(self, line: bytes, conversation: str, seq: int) -> bytes:
        whole = unfold(line, self._part)
        if whole is None:
            raise LogDamaged("a part of it is missing", conversation=conversation, seq=seq)
        return whole

    def _part(self, digest: bytes) -> bytes | None:
        query = "SELECT data FROM toolchart_parts WHERE digest = %s"
        row = self._with(lambda db: db.execute(query, (digest,)).fetchone())
        return bytes(row[0]) if row else None

    def conversations(self) -> Iterable[str]:
        """Every conversation's id, the oldest first."""
        rows = self._with(
            lambda db: db.execute(
                "SELECT id FROM toolchart_conversations ORDER BY number"
            ).fetchall()
        )
        return [str(row[0]) for row in rows]

    def delete(self, conversation: str) -> None:
        """Forget a whole conversation."""

        def work(db: psycopg.Connection[Any]) -> None:
            with db.transaction():
                used = db.execute(
                    "SELECT line FROM toolchart_records JOIN toolchart_conversations "
                    "ON conversation = number WHERE id = %s AND position('\\x00'::bytea in line) > 0",
                    (conversation,),
                ).fetchall()
                digests = sorted((digest,) for (line,) in used for digest in folds(bytes(line)))
                with db.cursor() as cursor:
                    cursor.executemany(
                        "UPDATE toolchart_parts SET uses = uses - 1 WHERE digest = %s", digests
                    )
                db.execute("DELETE FROM toolchart_parts WHERE uses < 1")
                db.execute(
                    "DELETE FROM toolchart_records USING toolchart_conversations "
                    "WHERE conversation = number AND id = %s",
                    (conversation,),
                )
                db.execute("DELETE FROM toolchart_conversations WHERE id = %s", (conversation,))

        self._with(work)

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._lock:
            self._drop()
