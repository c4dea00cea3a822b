"""The SQLite log, opened for reading alone: what commands use that check, show or export a log."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from toolchart.engine.log.stores.large_parts import join_large_parts
from toolchart.engine.log.stores.sqlite import SCHEMA, SCHEMA_VERSION, ErrorTranslation, SqliteStore
from toolchart.engine.log.stores.sqlite_checks import SEQ_BITS, check_identity, find_sqlite_damage
from toolchart.engine.log.stores.sqlite_opening import ReadOnlyDatabase
from toolchart.states.errors import LogDamaged, LogUnavailable
from toolchart.states.ports import Store

_PAGE_SIZE = 256
_MAX_SEQ = 2**SEQ_BITS - 1


class SqliteReader:
    """Reads one state of a SQLite log; whatever others append meanwhile is not seen.

    Raises:
        LogUnavailable: there is no such file, or it cannot be read.
        ForeignLog, NewerLog: it is no log, or one of a later release.
        LogDamaged: it is not as a store leaves it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._errors = ErrorTranslation(self.path)
        with self._errors:
            self._file = ReadOnlyDatabase(self.path)
        self._db = self._file.connection
        try:
            with self._errors:
                self.version = check_identity(self._db, self.path, SCHEMA_VERSION)
        except BaseException:
            self.close()
            raise

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The lines from number `start` on, read page by page."""
        first_id = self._find_number(conversation) << SEQ_BITS
        while True:
            with self._lock, self._errors:
                rows = self._db.execute(
                    "SELECT id, line FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
                    (first_id + start, first_id + _MAX_SEQ, _PAGE_SIZE),
                ).fetchall()
            for record_id, line in rows:
                if record_id - first_id != start:
                    raise LogDamaged("it is missing", conversation=conversation, seq=start)
                yield self._join_parts(line, conversation, start)
                start += 1
            if len(rows) < _PAGE_SIZE:
                return

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        first_id = self._find_number(conversation) << SEQ_BITS
        with self._lock, self._errors:
            row = self._db.execute(
                "SELECT id, line FROM records WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1",
                (first_id, first_id + _MAX_SEQ),
            ).fetchone()
        if row is None:
            return None
        return row[0] - first_id, self._join_parts(row[1], conversation, row[0] - first_id)

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, the oldest first."""
        with self._lock, self._errors:
            rows = self._db.execute("SELECT id FROM conversations ORDER BY number").fetchall()
        return [str(row[0]) for row in rows]

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first."""
        with self._lock, self._errors:
            rows = self._db.execute(
                "SELECT seq, data FROM checkpoints WHERE conversation = ? AND seq <= ? ORDER BY seq DESC",
                (self._find_number(conversation), 2**62 if newest is None else newest),
            )
            for seq, data in rows:
                yield seq, _read_bytes(data)

    def check_storage(self) -> Iterator[LogDamaged]:
        """Everything in the file that is not as a store leaves it."""
        return find_sqlite_damage(self._db, self.path, SCHEMA)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Refused: the log is open for reading."""
        raise LogUnavailable(f"the log {self.path} is open for reading only")

    def delete(self, conversation: str) -> None:
        """Refused: the log is open for reading."""
        raise LogUnavailable(f"the log {self.path} is open for reading only")

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Refused: the log is open for reading."""
        raise LogUnavailable(f"the log {self.path} is open for reading only")

    def _find_number(self, conversation: str) -> int:
        """The number of a conversation in the tables; 0, the number of none, where it is not there."""
        try:
            conversation.encode()
        except UnicodeEncodeError:  # no id that SQLite could hold
            return 0
        with self._lock, self._errors:
            row = self._db.execute(
                "SELECT number FROM conversations WHERE id = ?", (conversation,)
            ).fetchone()
        return int(row[0]) if row is not None else 0

    def _join_parts(self, line: bytes | str, conversation: str, seq: int) -> bytes:
        joined_line = join_large_parts(_read_bytes(line), self._read_part)
        if joined_line is None:
            raise LogDamaged("a part of it is missing", conversation=conversation, seq=seq)
        return joined_line

    def _read_part(self, digest: bytes) -> bytes | None:
        with self._lock, self._errors:
            row = self._db.execute("SELECT data FROM parts WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else _read_bytes(row[0])


def _read_bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def open_sqlite_for_reading(address: str) -> Store:
    """The log of a SQLite file, for reading. One of an older schema is read from an upgraded private copy.

    Raises:
        LogUnavailable, ForeignLog, NewerLog, LogDamaged: see `SqliteReader`.
    """
    reader = SqliteReader(address)
    if reader.version == SCHEMA_VERSION:
        return reader
    try:
        return _UpgradedCopy(reader._db)
    finally:
        reader.close()


class _UpgradedCopy(SqliteStore):
    """A private copy of a log, in the schema of this release; removed when it is closed."""

    def __init__(self, source: sqlite3.Connection) -> None:
        self._folder = tempfile.mkdtemp(prefix="toolchart-")
        path = Path(self._folder) / "log.db"
        target = sqlite3.connect(path)
        source.backup(target)
        target.close()
        super().__init__(path, durable=False)

    def close(self) -> None:
        """Close and remove the copy; safe to call twice."""
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)
