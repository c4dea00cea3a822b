"""The SQLite store: the schema and the reads and writes of a log in one SQLite file.

The file uses SQLite's write-ahead log. With `full` durability each commit is synced before it returns.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from toolchart.engine.log.stores.large_parts import join_large_parts, list_part_digests, split_large_parts
from toolchart.engine.log.stores.sqlite_checks import check_identity, find_sqlite_damage
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable
from toolchart.states.ports import RecordBatch

SCHEMA_VERSION = 4
"""Version of the schema. Version 1 had no table of parts, version 2 none of checkpoints, version 3 kept
conversation and number of a record in two columns; they are upgraded when the file is opened."""

_PARTS = """
CREATE TABLE parts (
    digest BLOB PRIMARY KEY,
    data BLOB NOT NULL,
    uses INTEGER NOT NULL
) WITHOUT ROWID;
"""
"""Large parts of records, each stored once (see `large_parts.py`)."""

_CHECKPOINTS = """
CREATE TABLE checkpoints (
    conversation INTEGER NOT NULL REFERENCES conversations(number),
    seq INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (conversation, seq)
) WITHOUT ROWID;
"""

_CONVERSATIONS = """
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE
);
"""

_RECORDS = """
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    line BLOB NOT NULL
);
"""
"""`id` is the number of the conversation times 2**32 plus the number of the record. SQLite appends to a table
with an integer key by writing one page, where a key of two columns rewrites several each time one is full."""

SCHEMA = _CONVERSATIONS + _PARTS + _CHECKPOINTS + _RECORDS
"""The statements that create the tables of the newest version."""

_SET_RECORDS_ASIDE = "ALTER TABLE records RENAME TO old_records;"

_TAKE_RECORDS_OVER = """
INSERT INTO records SELECT (conversation << 32) + seq, line FROM old_records ORDER BY conversation, seq;
DROP TABLE old_records;
"""

_SEQ_BITS = 32

_BUSY_TIMEOUT_S = 10.0
"""Seconds to wait while another process writes."""

_DAMAGE_MESSAGES = (
    "malformed",
    "not a database",
    "Could not decode",
    "unsupported file format",
    "no such column",
    "no such table",
)
"""Parts of the error messages by which SQLite and its Python module report a damaged file."""

_PAGE_SIZE = 256
"""Records per read, so that a long log is never in memory as a whole."""


class SqliteStore:
    """Keeps records in a SQLite file; the file and its folder are created when they are missing.

    Args:
        create: whether the file may be created.
        durable: whether a commit is synced to the disk (`full`); else the system writes it later
            (`normal`): it survives a crash of the process, but not always one of the machine.

    Raises:
        LogUnavailable: the file cannot be opened or is not a Toolchart log.
    """

    def __init__(self, path: str | Path, *, create: bool = True, durable: bool = True) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._errors = ErrorTranslation(self.path)
        self._durable = durable
        self._numbers: dict[str, int] = {}
        if not create and not self.path.is_file():
            raise LogUnavailable(
                f"there is no log at {self.path}\n"
                "  run a conversation first, or name the file with --log or TOOLCHART_LOG"
            )
        with self._errors:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._transaction = _Transaction(self._db)
            self._prepare_schema()

    def _prepare_schema(self) -> None:
        """Set the durability, and create or upgrade the tables."""
        db = self._db
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            check_identity(db, self.path, SCHEMA_VERSION)  # before anything is written into it
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        version = self._read_schema_version()
        if version < SCHEMA_VERSION:
            with self._transaction:
                version = self._read_schema_version()  # may have changed meanwhile
                groups = (_CONVERSATIONS, _PARTS, _CHECKPOINTS, _RECORDS)  # new in version 1, 2, 3 and 4
                tables = "".join(groups[version:])
                if 0 < version < SCHEMA_VERSION:
                    tables = _SET_RECORDS_ASIDE + tables + _TAKE_RECORDS_OVER
                for statement in tables.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise LogUnavailable(
                f"{self.path} has log version {version}; this Toolchart reads {SCHEMA_VERSION}"
            )

    def _read_schema_version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; durable on return."""
        with self._lock, self._errors, self._transaction:
            self._insert_lines(conversation, first_seq, lines)

    def append_many(self, batches: Sequence[RecordBatch]) -> Sequence[LogConflict | None]:
        """Append for several conversations in one transaction; the conflict of each, or None."""
        conflicts: list[LogConflict | None] = []
        with self._lock, self._errors, self._transaction:
            for batch in batches:
                try:
                    self._insert_lines(*batch)
                    conflicts.append(None)
                except LogConflict as error:  # raised before any of its lines is written
                    conflicts.append(error)
        return conflicts

    def _insert_lines(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Insert lines after checking that the first number is the next one."""
        number = self._find_conversation_number(conversation, create=first_seq == 0) or 0
        first_id, last_id = _get_id_range(number)
        newest = self._db.execute(
            "SELECT max(id) FROM records WHERE id BETWEEN ? AND ?", (first_id, last_id)
        ).fetchone()[0]
        next_seq = 0 if newest is None else newest - first_id + 1
        if next_seq != first_seq:
            raise LogConflict(
                f"conversation {conversation}: record {first_seq} cannot be appended, the log has {next_seq}"
            )
        rows = []
        for offset, line in enumerate(lines):
            stored_line, parts = split_large_parts(line)
            rows.append((first_id + first_seq + offset, stored_line))
            if parts:
                self._db.executemany(
                    "INSERT INTO parts VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET uses = uses + 1",
                    list(parts.items()),
                )
        self._db.executemany("INSERT INTO records VALUES (?, ?)", rows)

    def _find_conversation_number(self, conversation: str, *, create: bool = False) -> int | None:
        """The number of a conversation in the tables; None where there is none."""
        cached_number = self._numbers.get(conversation)
        if cached_number is not None:
            return cached_number
        row = self._db.execute("SELECT number FROM conversations WHERE id = ?", (conversation,)).fetchone()
        if row is None and create:
            cursor = self._db.execute("INSERT INTO conversations (id) VALUES (?)", (conversation,))
            return cursor.lastrowid
        if row is None:
            return None
        self._numbers[conversation] = int(row[0])
        return int(row[0])

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on, read page by page."""
        while True:
            with self._lock, self._errors:
                first_id, last_id = _get_id_range(self._find_conversation_number(conversation) or 0)
                rows = self._db.execute(
                    "SELECT id, line FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
                    (first_id + start, last_id, _PAGE_SIZE),
                ).fetchall()
            for record_id, line in rows:
                seq = record_id - first_id
                if seq != start:
                    raise LogDamaged("it is missing", conversation=conversation, seq=start)
                yield self._join_parts(line, conversation, seq)
                start += 1
            if len(rows) < _PAGE_SIZE:
                return

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        with self._lock, self._errors:
            id_range = _get_id_range(self._find_conversation_number(conversation) or 0)
            row = self._db.execute(
                "SELECT id, line FROM records WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1", id_range
            ).fetchone()
        if row is None:
            return None
        seq = row[0] - id_range[0]
        return seq, self._join_parts(row[1], conversation, seq)

    def _join_parts(self, line: bytes | str, conversation: str, seq: int) -> bytes:
        """The original line of a stored one."""
        stored_line = line if isinstance(line, bytes) else str(line).encode()
        joined_line = join_large_parts(stored_line, self._read_part)
        if joined_line is None:
            raise LogDamaged("a part of it is missing", conversation=conversation, seq=seq)
        return joined_line

    def _read_part(self, digest: bytes) -> bytes | None:
        """The large part with this digest; None where it is missing."""
        with self._lock, self._errors:
            row = self._db.execute("SELECT data FROM parts WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            return None
        return row[0] if isinstance(row[0], bytes) else str(row[0]).encode()

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        with self._lock, self._errors:
            rows = self._db.execute("SELECT id FROM conversations ORDER BY number").fetchall()
        return [str(row[0]) for row in rows]

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation; SQLite reuses its pages."""
        with self._lock, self._errors, self._transaction:
            number = self._find_conversation_number(conversation)
            self._numbers.pop(conversation, None)
            id_range = _get_id_range(number or 0)
            rows = self._db.execute(
                "SELECT line FROM records WHERE id BETWEEN ? AND ? AND instr(line, x'00')", id_range
            )
            digests = [(digest,) for (line,) in rows.fetchall() for digest in list_part_digests(line)]
            self._db.executemany("UPDATE parts SET uses = uses - 1 WHERE digest = ?", digests)
            self._db.execute("DELETE FROM parts WHERE uses < 1")
            self._db.execute("DELETE FROM checkpoints WHERE conversation = ?", (number,))
            self._db.execute("DELETE FROM records WHERE id BETWEEN ? AND ?", id_range)
            self._db.execute("DELETE FROM conversations WHERE number = ?", (number,))

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record; it is synced with the next append, or earlier."""
        with self._lock, self._errors:
            number = self._find_conversation_number(conversation)
            # Without a sync of its own: the file is written in order, so the sync of a later append covers
            # it.
            self._db.execute("PRAGMA synchronous = NORMAL")
            try:
                self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", (number, seq, data))
            finally:
                if self._durable:
                    self._db.execute("PRAGMA synchronous = FULL")

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first: one, and then page by page, because most readers want one."""
        before, limit = newest + 1 if newest is not None else 2**62, 1
        while True:
            with self._lock, self._errors:
                rows = self._db.execute(
                    "SELECT seq, data FROM checkpoints WHERE conversation = ? AND seq < ? "
                    "ORDER BY seq DESC LIMIT ?",
                    (self._find_conversation_number(conversation), before, limit),
                ).fetchall()
            for seq, data in rows:
                yield seq, data if isinstance(data, bytes) else str(data).encode()
            if len(rows) < limit:
                return
            before, limit = rows[-1][0], _PAGE_SIZE

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the file that is not as a store leaves it."""
        return find_sqlite_damage(self._db, self.path, SCHEMA)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock:
            self._db.close()


# Classes, not generator context managers: an append is short, and the generator would double its cost.


class ErrorTranslation:
    """A block that converts SQLite's exceptions into errors of the log."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case None:
                return
            case sqlite3.IntegrityError():
                raise LogConflict(f"another writer appended to this conversation first ({error})") from None
            case sqlite3.DatabaseError() if any(sign in str(error) for sign in _DAMAGE_MESSAGES):
                raise LogDamaged(f"{self._path} cannot be read as a SQLite file: {error}") from None
            case UnicodeDecodeError():
                raise LogDamaged(f"{self._path} holds text that is not UTF-8: {error}") from None
            case sqlite3.DatabaseError() | OSError():
                raise LogUnavailable(f"the log {self._path} cannot be used: {error}") from None


class _Transaction:
    """A transaction: commits at the end of its block, rolls back after an exception."""

    __slots__ = ("_db",)

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._db.execute("COMMIT")
        elif self._db.in_transaction:
            self._db.execute("ROLLBACK")


def _get_id_range(number: int) -> tuple[int, int]:
    """The first and the last id that records of a conversation may have; 0 is the number of none."""
    first_id = number << _SEQ_BITS
    return first_id, first_id + 2**_SEQ_BITS - 1
