"""The SQLite store: one file, write-ahead log, every commit synced before it is acknowledged."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from toolchart.engine.log.stores.large_parts import fold, folds, unfold
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable
from toolchart.states.ports import Batch

SCHEMA_VERSION = 2
"""Version 1 had no parts; it is brought up when it is opened."""

_PARTS = """
CREATE TABLE parts (
    digest BLOB PRIMARY KEY,
    data BLOB NOT NULL,
    uses INTEGER NOT NULL
) WITHOUT ROWID;
"""
"""Large parts of records, kept once (see `folding.py`)."""

_SCHEMA = """
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE
);
CREATE TABLE records (
    conversation INTEGER NOT NULL REFERENCES conversations(number),
    seq INTEGER NOT NULL,
    line BLOB NOT NULL,
    PRIMARY KEY (conversation, seq)
) WITHOUT ROWID;
"""

_BUSY_S = 10.0
"""Seconds to wait for another process that is writing."""

_DAMAGE = (
    "malformed",
    "not a database",
    "Could not decode",
    "unsupported file format",
    "no such column",
)
"""Words of SQLite and of its Python module for a file that is not what was written."""

_PAGE = 256
"""Records read at a time, so that a long log is never held whole."""


class SqliteStore:
    """Keeps records in a SQLite file; made with its folder when it is first written.

    Args:
        durable: whether a commit waits for the disk (`full`); else it is in the system's hands
            (`normal`), which survives the process but not always the machine.

    Raises:
        LogUnavailable: the file cannot be opened or is no Toolchart log.
    """

    def __init__(self, path: str | Path, *, create: bool = True, durable: bool = True) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._reported = _Reported(self.path)
        self._durable = durable
        self._numbers: dict[str, int] = {}
        if not create and not self.path.is_file():
            raise LogUnavailable(
                f"there is no log at {self.path}\n"
                "  run a conversation first, or name the file with --log or TOOLCHART_LOG"
            )
        with self._reported:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._transaction = _Transaction(self._db)
            self._prepare()

    def _prepare(self) -> None:
        db = self._db
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        version = self._version()
        if version in (0, 1):
            with self._transaction:
                version = self._version()  # another process may have been quicker
                added = {0: _SCHEMA + _PARTS, 1: _PARTS}.get(version, "")
                for statement in added.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise LogUnavailable(
                f"{self.path} has log version {version}; this Toolchart reads {SCHEMA_VERSION}"
            )

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; synced to the disk on return."""
        with self._lock, self._reported, self._transaction:
            self._insert(conversation, first_seq, lines)

    def append_many(self, batches: Sequence[Batch]) -> Sequence[LogConflict | None]:
        """Append for several conversations in one transaction; says which lost to another writer."""
        refused: list[LogConflict | None] = []
        with self._lock, self._reported, self._transaction:
            for batch in batches:
                try:
                    self._insert(*batch)
                    refused.append(None)
                except LogConflict as error:  # told before anything of it was written
                    refused.append(error)
        return refused

    def _insert(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        number = self._number(conversation, create=first_seq == 0)
        newest = self._db.execute(
            "SELECT max(seq) FROM records WHERE conversation = ?", (number,)
        ).fetchone()[0]
        expected = 0 if newest is None else newest + 1
        if expected != first_seq:
            raise LogConflict(
                f"conversation {conversation}: record {first_seq} cannot be appended, "
                f"the log has {expected}"
            )
        rows = []
        for place, line in enumerate(lines):
            folded, parts = fold(line)
            rows.append((number, first_seq + place, folded))
            if parts:
                self._db.executemany(
                    "INSERT INTO parts VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET uses = uses + 1",
                    list(parts.items()),
                )
        self._db.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)

    def _number(self, conversation: str, *, create: bool = False) -> int | None:
        known = self._numbers.get(conversation)
        if known is not None:
            return known
        row = self._db.execute(
            "SELECT number FROM conversations WHERE id = ?", (conversation,)
        ).fetchone()
        if row is None and create:
            added = self._db.execute("INSERT INTO conversations (id) VALUES (?)", (conversation,))
            return added.lastrowid
        if row is None:
            return None
        self._numbers[conversation] = int(row[0])
        return int(row[0])

    def read(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from `start` on, a page at a time."""
        while True:
            with self._lock, self._reported:
                rows = self._db.execute(
                    "SELECT seq, line FROM records WHERE conversation = ? AND seq >= ? "
                    "ORDER BY seq LIMIT ?",
                    (self._number(conversation), start, _PAGE),
                ).fetchall()
            for seq, line in rows:
                if seq != start:
                    raise LogDamaged("it is missing", conversation=conversation, seq=start)
                yield self._unfolded(line, conversation, seq)
                start += 1
            if len(rows) < _PAGE:
                return

    def last(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        with self._lock, self._reported:
            row = self._db.execute(
                "SELECT seq, line FROM records WHERE conversation = ? ORDER BY seq DESC LIMIT 1",
                (self._number(conversation),),
            ).fetchone()
        return (row[0], self._unfolded(row[1], conversation, row[0])) if row else None

    def _unfolded(self, line: bytes | str, conversation: str, seq: int) -> bytes:
        folded = line if isinstance(line, bytes) else str(line).encode()
        whole = unfold(folded, self._part)
        if whole is None:
            raise LogDamaged("a part of it is missing", conversation=conversation, seq=seq)
        return whole

    def _part(self, digest: bytes) -> bytes | None:
        with self._lock, self._reported:
            row = self._db.execute("SELECT data FROM parts WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            return None
        return row[0] if isinstance(row[0], bytes) else str(row[0]).encode()

    def conversations(self) -> Iterable[str]:
        """Every conversation's id, the oldest first."""
        with self._lock, self._reported:
            rows = self._db.execute("SELECT id FROM conversations ORDER BY number").fetchall()
        return [str(row[0]) for row in rows]

    def delete(self, conversation: str) -> None:
        """Forget a whole conversation; its pages are used again."""
        with self._lock, self._reported, self._transaction:
            number = self._number(conversation)
            self._numbers.pop(conversation, None)
            used = self._db.execute(
                "SELECT line FROM records WHERE conversation = ? AND instr(line, x'00')", (number,)
            )
            digests = [(digest,) for (line,) in used.fetchall() for digest in folds(line)]
            self._db.executemany("UPDATE parts SET uses = uses - 1 WHERE digest = ?", digests)
            self._db.execute("DELETE FROM parts WHERE uses < 1")
            self._db.execute("DELETE FROM records WHERE conversation = ?", (number,))
            self._db.execute("DELETE FROM conversations WHERE number = ?", (number,))

    def check(self) -> None:
        """Walk every row in the order of the file: a changed key would hide the rows after it.

        Raises:
            LogDamaged: names the first record that is not where it belongs.
        """
        number, newest = 0, -1
        with self._reported:
            names = dict(self._db.execute("SELECT number, id FROM conversations"))
            for found, seq in self._db.execute("SELECT conversation, seq FROM records"):
                if not _follows(found, seq, number, newest):
                    raise LogDamaged(
                        "another record stands in its place",
                        conversation=names.get(number),
                        seq=newest + 1,
                    )
                number, newest = found, seq

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock:
            self._db.close()


# Classes, not generators: an append is short, and a generator's context costs as much as its row.


class _Reported:
    """Turns what SQLite raises into errors of the log."""

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
                raise LogConflict(
                    f"another writer appended to this conversation first ({error})"
                ) from None
            case sqlite3.DatabaseError() if any(sign in str(error) for sign in _DAMAGE):
                raise LogDamaged(f"{self._path} cannot be read as a SQLite file: {error}") from None
            case UnicodeDecodeError():
                raise LogDamaged(f"{self._path} holds text that is not UTF-8: {error}") from None
            case sqlite3.DatabaseError() | OSError():
                raise LogUnavailable(f"the log {self._path} cannot be used: {error}") from None


class _Transaction:
    """Commits what was done in it; takes it back where something was raised."""

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


def _follows(number: object, seq: object, before: int, newest: int) -> bool:
    """Whether a row stands right after record `newest` of conversation `before`."""
    if not (isinstance(number, int) and isinstance(seq, int)):
        return False
    return (number, seq) == (before, newest + 1) or (number > before and seq == 0)
