"""The PostgreSQL store (`postgresql://...`): a log that several machines can write.

One connection writes and another one reads, so that a reader never waits for a commit. Nothing is set for
longer than a transaction: behind a pooler the session is that of others too (`postgres_sessions.py`).

An append costs messages to the server before anything else. So it is tried in one message where a batch is
alone, and in two for a group: one statement checks the lease and the number of the next record, and inserts
where both fit. Where one does not fit, nothing of the group is written, and the careful way of `sql.py` says
what is wrong with which. Both take the same locks: a lease cannot be taken over before the transaction ends.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from toolchart.engine.log.stores.base import Change, ValueCheck
from toolchart.engine.log.stores.large_parts import split_large_parts
from toolchart.engine.log.stores.postgres_schema import check_schema, format_upgrade
from toolchart.engine.log.stores.postgres_sessions import connect, is_known_as_pooled
from toolchart.engine.log.stores.sql import LAST_SEQ, SEQ_BITS, Dialect, Queries, SqlStore
from toolchart.states.errors import (
    LogConflict,
    LogUnavailable,
    StorageFailure,
    ToolchartError,
    format_install,
)
from toolchart.states.ports import IndexEntry, SearchTerm

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

Value = TypeVar("Value")

_WORDS = "array_to_tsvector(string_to_array(words, ' '))"

QUERIES = Queries(
    Dialect(
        prefix="toolchart_",
        mark="%s",
        has_nul=r"position('\x00'::bytea in line) > 0",
        begins="starts_with(id, ?) AND ?::text <> ''",
        write_value="INSERT INTO {p}small_values (conversation, kind, key, data, is_listed) "
        "VALUES (?, ?, ?, ?, ?) ON CONFLICT (conversation, kind, key) DO UPDATE SET "
        "number = DEFAULT, data = excluded.data, is_listed = excluded.is_listed",
        lock=" FOR UPDATE",
        share=" FOR SHARE",
        try_share=" FOR SHARE SKIP LOCKED",
        word_id="id",
        has_word=f"{_WORDS} @@ ?::tsquery AND position(? in ' ' || words || ' ') > 0",
        find_index="SELECT 1",  # they are there with all other tables
    )
)

_INSERT_CONVERSATION = "INSERT INTO toolchart_conversations (id) VALUES (%s) ON CONFLICT DO NOTHING"

# A statement sees the records as they were when it began, also after it has waited for the row of its
# conversation. So the key of `records` has the last word: it refuses the second of two writers
# (UniqueViolation).
_INSERT_LINES = f"""
WITH place AS (
    SELECT own.number << {SEQ_BITS} AS first_id
    FROM toolchart_conversations AS own, toolchart_small_values AS held
    WHERE own.id = %s AND held.conversation = %s AND kind = %s AND key = %s
    AND substring(data from 1 for %s) = %s
    AND (SELECT coalesce(max(r.id) - (own.number << {SEQ_BITS}) + 1, 0) FROM toolchart_records r
        WHERE r.id BETWEEN (own.number << {SEQ_BITS}) AND (own.number << {SEQ_BITS}) + {LAST_SEQ}) = %s
    FOR UPDATE OF own FOR SHARE OF held
)
INSERT INTO toolchart_records
SELECT first_id + added.seq, added.line FROM place, (VALUES {{}}) AS added (seq, line)
"""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""What no text of the server has."""

_LIMITS = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Of a connection, where the address names no other: a server that vanishes without a word is given up within
half a minute. By the system's own limits a turn would wait for it for up to two hours."""


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
        self._used_at = 0.0

    def _get_connection(self) -> psycopg.Connection[Any]:
        """The open connection; a new one where there is none or it broke."""
        self._used_at = time.monotonic()
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
                    # By name: psycopg is an extra, which this module does not import.
                    names = {kind.__name__ for kind in type(error).__mro__}
                    if "UniqueViolation" in names:
                        raise LogConflict("another writer appended to this conversation first") from None
                    if "InsufficientPrivilege" in names:
                        self.drop()
                        problem = str(error).strip().partition("\n")[0]
                        raise LogUnavailable(
                            f"this role may not use the log: {problem}\n  the owner of the tables lets it: "
                            f"{format_upgrade(self._address, '--role', 'NAME')}"
                        ) from None
                    if names & {"DiskFull", "IoError"}:
                        message = f"the PostgreSQL server cannot store the log: {error}"
                        raise StorageFailure(message) from None
                    self.drop()  # whatever it is, the connection may stand in a transaction that failed
                    if is_last_try or "OperationalError" not in names:
                        raise LogUnavailable(f"the PostgreSQL log cannot be used: {error}") from None
        raise AssertionError("two tries end in a value or an error")

    @contextlib.contextmanager
    def use(self) -> Iterator[psycopg.Connection[Any]]:
        """The open connection, for reads that take long; nobody else uses it in the block."""
        with self._lock:
            yield self._get_connection()

    def close_idle(self, seconds: float) -> None:
        """Close the connection where nobody has begun to use it for so long, or uses it now."""
        if self._lock.acquire(blocking=False):
            try:
                if time.monotonic() - self._used_at >= seconds:
                    self.drop()
            finally:
                self._lock.release()

    def drop(self) -> None:
        """Close the connection; the next use opens another."""
        if self._db is not None:
            self._db.close()
        self._db = None

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._lock:
            self.drop()


def begin_unsynced(db: Connection) -> None:
    """Let the present transaction end without waiting for the disk: the log of the server is in order."""
    db.execute("SET LOCAL synchronous_commit = off")


def read_time(db: Connection) -> float:
    """The time of the server, which all workers share: seconds since 1970."""
    row = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None
    return float(row[0])


class PostgresStore(SqlStore):
    """Keeps a log in tables of a database; reconnects after a broken connection.

    Args:
        address: `postgresql://...`.
        durable: whether a commit waits for the disk (`full`).
        read_only: whether the server refuses every write of this store.

    Raises:
        LogUnavailable: the extra `postgres` is not installed, or the server cannot be reached.
    """

    queries = QUERIES

    def __init__(self, address: str, *, durable: bool = True, read_only: bool = False) -> None:
        super().__init__("the database")
        self._durable = durable
        self._writing = Channel(address, read_only=read_only)
        self._reading = Channel(address, read_only=read_only)
        # With the connection that reads: one that only appends opens when there is something to append.
        self._reading.run(partial(check_schema, address=address))

    def read_time(self) -> float:
        """The clock of the server, which all workers share."""
        return self._reading.run(read_time)

    def _fetch(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        def fetch(db: Connection) -> list[Any]:
            return db.execute(query.encode(), parameters).fetchall()

        if any(isinstance(value, str) and _UNSTORABLE.search(value) for value in parameters):
            return []  # asked before the server: it would refuse the statement, and the connection would go
        return self._reading.run(fetch)

    def _iterate(self, query: str) -> Iterator[Any]:
        # A cursor with a name stays on the server and sends few rows at a time; it lives as long as its
        # transaction.
        with self._reading.use() as db, db.transaction(), db.cursor(name="toolchart_rows") as rows:
            rows.itersize = 16
            yield from rows.execute(query.encode())

    # -- writing ---------------------------------------------------------------------------------------

    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | None]:
        """Make changes in one transaction."""
        attempts = 0

        def attempt(db: Connection) -> list[LogConflict | None]:
            """One attempt at all changes; on a retry, lines that are already there are a success."""
            nonlocal attempts
            attempts += 1
            if attempts == 1 and self._append_quickly(db, changes, sync=sync and self._durable):
                return [None] * len(changes)
            with db.transaction():
                if not (sync and self._durable):
                    begin_unsynced(db)
                conflicts = self._make_changes(db, changes)
                if attempts > 1:
                    pairs = zip(changes, conflicts, strict=True)
                    conflicts = [None if self._has_lines(db, change) else fault for change, fault in pairs]
                return conflicts

        return self._writing.run(attempt)

    def _find_checked(self, db: Any, check: ValueCheck, lock: str) -> Any:
        if check.beginning is None:
            # There is no row to lock: two that expect none, and write one, wait for each other here.
            place = f"{check.conversation} {check.kind} {check.key}"
            db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (place,))
        return super()._find_checked(db, check, lock)

    def _insert_conversation(self, db: Any, conversation: str) -> int | None:
        db.execute(_INSERT_CONVERSATION, (conversation,))
        number, newest = db.execute(self.queries.find_end + " FOR UPDATE", (conversation,)).fetchone()
        return int(number) if newest is None else None

    def _has_lines(self, db: Connection, change: Change) -> bool:
        """Whether the newest records are exactly the lines of a change."""
        if not change.lines:
            return False
        place = (change.conversation, change.first_seq, change.conversation, len(change.lines) + 1)
        rows = db.execute(self.queries.read_page.encode(), place).fetchall()
        return [bytes(line) for _, line in rows] == [split_large_parts(line)[0] for line in change.lines]

    def _append_quickly(self, db: Connection, changes: Sequence[Change], *, sync: bool) -> bool:
        """Append in one or two messages; false, with nothing written, where one does not fit, or is no append
        under a lease.

        Args:
            sync: whether the commit waits for the disk.

        Raises:
            psycopg.Error: the connection broke; the changes may have been made.
        """
        if not all(_is_plain_append(change) for change in changes):
            return False
        # PgBouncer 1.18 sometimes keeps the session of a group that was sent at once for its client, although
        # the transaction has ended, and every other client waits. So behind a pooler a group takes the
        # careful way, statement by statement.
        split_lines = [[split_large_parts(line) for line in change.lines] for change in changes]
        try:
            if sync and _is_one_statement(changes, split_lines):
                return _insert_lines(db, changes[0], split_lines[0]).rowcount == len(changes[0].lines)
            return not is_known_as_pooled(db) and self._append_group(db, changes, split_lines, sync=sync)
        except Exception as error:
            names = {kind.__name__ for kind in type(error).__mro__}
            if not names & {"UniqueViolation", "NotSupportedError"}:
                raise
            db.rollback()  # another writer was there first, or an old library cannot send a group at once
            return False

    def _append_group(
        self, db: Connection, changes: Sequence[Change], split_lines: Sequence[_SplitLines], *, sync: bool
    ) -> bool:
        with db.pipeline() as pipeline:
            db.execute("BEGIN")
            if not sync:
                begin_unsynced(db)
            # Sorted by digest, so that two writers with common parts cannot deadlock.
            if parts := sorted(part for lines in split_lines for _, parts in lines for part in parts.items()):
                db.cursor().executemany(self.queries.write_part.encode(), parts)
            cursors = []
            for change, lines in zip(changes, split_lines, strict=True):
                if change.first_seq == 0:
                    db.execute(_INSERT_CONVERSATION, (change.conversation,))
                cursors.append(_insert_lines(db, change, lines))
                for value in change.values:
                    row = (value.conversation, value.kind, value.key, value.data, value.is_listed)
                    db.execute(self.queries.write_value.encode(), row)
            pipeline.sync()
            counts = [cursor.rowcount for cursor in cursors]
            fits = counts == [len(change.lines) for change in changes]
            db.execute("COMMIT" if fits else "ROLLBACK")
        return fits

    # -- the search index ------------------------------------------------------------------------------

    def write_index(self, entries: Sequence[IndexEntry]) -> bool:
        """Write to the search index in one commit."""

        def write(db: Connection) -> None:
            with db.transaction():
                begin_unsynced(db)  # what a crash takes away is written again
                self._write_index(db, entries)

        self._writing.run(write)
        return True

    def _match_words(self, term: SearchTerm) -> tuple[object, ...]:
        # Words are letters and digits only. The index knows no order, so several words in a row are looked
        # at once more.
        query = " & ".join(f"'{word}'" for word in term.words) + (":*" if term.is_prefix else "")
        run = f" {' '.join(term.words)}{'' if term.is_prefix else ' '}"
        return query, run if len(term.words) > 1 else ""

    def close_idle(self, seconds: float) -> None:
        """See `StoreBase.close_idle`."""
        self._writing.close_idle(seconds)
        self._reading.close_idle(seconds)

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._writing.close()
        self._reading.close()


_SplitLines = list[tuple[bytes, Mapping[bytes, bytes]]]
"""The stored lines of a change, each with its large parts."""


def _is_plain_append(change: Change) -> bool:
    """Whether a change only appends, where the value of its check has a beginning."""
    has_beginning = change.check is not None and change.check.beginning is not None
    return has_beginning and bool(change.lines)


def _is_one_statement(changes: Sequence[Change], split_lines: Sequence[_SplitLines]) -> bool:
    """Whether there is nothing to write but the lines of one change of a known conversation."""
    (change, *others), parts = changes, [parts for _, parts in split_lines[0] if parts]
    return not (others or parts or change.values) and change.first_seq > 0


def _insert_lines(db: Connection, change: Change, lines: _SplitLines) -> psycopg.Cursor[Any]:
    """Insert the lines of a change where its check and its number fit."""
    check = change.check
    assert check is not None
    beginning = check.beginning or b""
    place = (check.conversation, check.kind, check.key, len(beginning), beginning, change.first_seq)
    rows = [value for number, (line, _) in enumerate(lines, change.first_seq) for value in (number, line)]
    return db.execute(_build_insert(len(lines)), (change.conversation, *place, *rows))


@cache
def _build_insert(count: int) -> bytes:
    """The statement that inserts so many lines."""
    return _INSERT_LINES.format(", ".join(["(%s::bigint, %s::bytea)"] * count)).encode()


def open_postgres_store(address: str, *, create: bool = True, durable: bool = True) -> PostgresStore:
    """The store of a database; no table is made or changed.

    Args:
        create: has no meaning here: `toolchart database upgrade` makes the tables.

    Raises:
        ForeignLog: the database has no tables of a log.
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
