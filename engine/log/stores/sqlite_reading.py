"""The SQLite log, opened for reading alone: what commands use that check, show or export a log."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from toolchart.engine.log.stores.access.sqlite_connection import ErrorTranslation
from toolchart.engine.log.stores.access.sqlite_queries import SqliteQueries
from toolchart.engine.log.stores.access.sqlite_schema import SCHEMA_VERSION
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.stores.sqlite_checks import check_identity
from toolchart.engine.log.stores.sqlite_opening import ReadOnlyDatabase
from toolchart.states.errors import LogUnavailable
from toolchart.states.ports import Store


class SqliteReader(SqliteQueries):
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
                self.version = check_identity(self._reader, self.path, SCHEMA_VERSION)
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection that reads."""
        return self._reader

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


def open_sqlite_for_reading(address: str) -> Store:
    """The log of a SQLite file, for reading. One of an older schema is read from an upgraded private copy.

    Raises:
        LogUnavailable, ForeignLog, NewerLog, LogDamaged: see `SqliteReader`.
    """
    reader = SqliteReader(address)
    if reader.version == SCHEMA_VERSION:
        return reader
    try:
        return _UpgradedCopy(reader.connection)
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
