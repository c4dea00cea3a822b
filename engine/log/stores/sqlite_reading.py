"""The SQLite log opened for reading alone: nothing is written, and nothing is created beside the file.

SQLite itself creates `-wal` and `-shm` when it reads a database in WAL mode, and cannot read one on a medium
that refuses that. So the way to open depends on what lies beside the file:

- `-shm` and `-wal` are there: another process has the file open, or one has crashed. `mode=ro` reads both.
- there is no `-wal`, or an empty one: everything stands in the file. `immutable=1` touches nothing else.
- a `-wal` alone, a rollback journal, or `mode=ro` fails: a private copy of all of them is read.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from toolchart.engine.log.stores.base import Change
from toolchart.engine.log.stores.record_file import PAGE_BEGINNING
from toolchart.engine.log.stores.sqlite import (
    ErrorTranslation,
    SqliteTables,
    build_empty_error,
    check_identity,
)
from toolchart.states.errors import ForeignLog, LogConflict, LogDamaged, LogUnavailable

_MAGIC = b"SQLite format 3\0"
_COMPANIONS = ("-wal", "-journal")
_MAX_COPIES = 5
"""How often a file is copied again that was written meanwhile."""

_OWN_WORDS = (b"CREATE TABLE conversations", b"CREATE TABLE records")
"""Text in every log of Toolchart, by which one with a damaged header is recognised."""


class SqliteReader(SqliteTables):
    """Reads one state of a SQLite log; whatever others append meanwhile is not seen.

    Raises:
        LogUnavailable: there is no such file, or it cannot be read.
        ForeignLog, NewerLog: it is no log, or one of a later release.
        LogDamaged: it is not as a store leaves it.
    """

    def __init__(self, path: str | Path) -> None:
        errors = ErrorTranslation(Path(path))
        with errors:
            self._file = ReadOnlyDatabase(Path(path))
        super().__init__(Path(path), self._file.connection)
        try:
            with errors:
                check_identity(self._reader, self.path)
        except BaseException:
            self.close()
            raise

    def commit(
        self, changes: Sequence[Change], *, wait: bool = True, sync: bool = True
    ) -> Sequence[LogConflict | None]:
        """Refused: the log is open for reading."""
        raise LogUnavailable(f"the log {self.path} is open for reading only")

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()


class ReadOnlyDatabase:
    """A SQLite file that is open for reading: a consistent state of it, as long as this object is open.

    Raises:
        LogUnavailable: there is no such file, or it cannot be read.
        ForeignLog: it is no SQLite file.
        LogDamaged: it was a log of Toolchart, and its beginning is destroyed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        if not path.is_file():
            raise LogUnavailable(
                f"there is no log at {path}\n"
                "  run a conversation first, or name the file with --log or TOOLCHART_LOG"
            )
        try:
            _check_header(path)
            self.connection = self._connect()
        except (OSError, sqlite3.OperationalError) as error:
            self.close()
            raise LogUnavailable(f"the log {path} cannot be read: {error}") from None

    def _connect(self) -> sqlite3.Connection:
        """A connection that has begun to read."""
        if _has_content(self.path, "-journal"):
            return self._connect_to_copy()
        if not _has_content(self.path, "-wal"):
            return _begin_reading(self.path, "immutable=1")
        if _get_companion(self.path, "-shm").is_file():
            try:
                return _begin_reading(self.path, "mode=ro")
            except sqlite3.OperationalError:  # a read-only medium: the index of the WAL cannot be repaired
                pass
        return self._connect_to_copy()

    def _connect_to_copy(self) -> sqlite3.Connection:
        self._copy = tempfile.TemporaryDirectory(prefix="toolchart-")
        target = Path(self._copy.name) / "log.db"
        for _ in range(_MAX_COPIES):
            state = _describe_files(self.path)
            for suffix in ("", *_COMPANIONS):
                source = _get_companion(self.path, suffix)
                if source.is_file():
                    shutil.copyfile(source, _get_companion(target, suffix))
            if state == _describe_files(self.path):
                return _begin_reading(target, "mode=rw")
        raise LogUnavailable(f"the log {self.path} is being written, and cannot be copied to be read")

    def close(self) -> None:
        """Close the file and remove a private copy; safe to call twice."""
        if hasattr(self, "connection"):
            self.connection.close()
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None


def _check_header(path: Path) -> None:
    """Check that a file begins as SQLite files do.

    Raises:
        LogDamaged, ForeignLog: it does not.
        LogUnavailable: it is empty.
    """
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith(_MAGIC):
        return
    if not head:
        raise build_empty_error(path)
    if all(words in head for words in _OWN_WORDS):
        raise LogDamaged(f"{path} does not begin as a SQLite file does")
    if head.lower().startswith(PAGE_BEGINNING):
        raise ForeignLog(
            f"{path} is no log of Toolchart: it is a page of HTML\n"
            f"  a run that was shared comes into a log first: toolchart import {path} --log FILE.db"
        )
    raise ForeignLog(f"{path} is no log of Toolchart: it is not a SQLite file")


def _begin_reading(path: Path, mode: str) -> sqlite3.Connection:
    """A connection with an open transaction, so that all reads see the same state."""
    db = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA trusted_schema = 0")  # views and triggers of a foreign file call no functions
        db.execute("PRAGMA cell_size_check = 1")
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db


def _get_companion(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _has_content(path: Path, suffix: str) -> bool:
    companion = _get_companion(path, suffix)
    return companion.is_file() and companion.stat().st_size > 0


def _describe_files(path: Path) -> list[tuple[int, int]]:
    """Size and time of change of a file and its companions."""
    files = [_get_companion(path, suffix) for suffix in ("", *_COMPANIONS)]
    return [(info.st_size, info.st_mtime_ns) for file in files if file.is_file() and (info := file.stat())]
