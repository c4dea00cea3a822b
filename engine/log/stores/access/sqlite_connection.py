"""Connections of the SQLite store: opening, transactions, and SQLite's errors as errors of the log."""

from __future__ import annotations

import errno
import sqlite3
import threading
import time
from pathlib import Path

from toolchart.engine.log.stores.access.replaced_files import ReplacementNotice, SqliteWatch
from toolchart.states.errors import LogBusy, LogConflict, LogDamaged, LogUnavailable, StorageFailure

BUSY_TIMEOUT_S = 10.0
"""Seconds to wait while another process writes."""

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02

_DAMAGE_MESSAGES = (
    "malformed",
    "not a database",
    "Could not decode",
    "unsupported file format",
    "no such column",
    "no such table",
)
"""Parts of the error messages by which SQLite and its Python module report a damaged file."""

_FAILURE_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM)

_FAILURE_ERRNOS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG)


def connect(path: Path, *, reads_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode that several threads may use, one at a time.

    Args:
        reads_only: whether it refuses to write. It waits for a lock then; one that writes never does:
            `Transaction` waits.
    """
    timeout_s = BUSY_TIMEOUT_S if reads_only else 0.0
    db = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    if reads_only:
        db.execute("PRAGMA query_only = ON")
    return db


def is_busy(error: BaseException) -> bool:
    """Whether another connection holds the lock."""
    return (
        isinstance(error, sqlite3.OperationalError)
        and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    )


def build_os_failure(error: OSError, message: str) -> LogUnavailable:
    """The error for a system call that failed: of the machine, or of the path that was given."""
    kind = StorageFailure if error.errno in _FAILURE_ERRNOS else LogUnavailable
    return kind(message)


# Classes, not generator context managers: an append is short, and the generator would double its cost.


class ErrorTranslation:
    """A block that converts SQLite's exceptions into errors of the log.

    Args:
        notice: refuses the block where the file was found replaced.
    """

    __slots__ = ("_notice", "_path")

    def __init__(self, path: Path, notice: ReplacementNotice | None = None) -> None:
        self._path = path
        self._notice = notice

    def __enter__(self) -> None:
        if self._notice is not None:
            self._notice.check()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case None:
                return
            case sqlite3.IntegrityError():
                raise LogConflict(f"another writer appended to this conversation first ({error})") from None
            case sqlite3.DatabaseError() if any(sign in str(error) for sign in _DAMAGE_MESSAGES):
                raise LogDamaged(f"{self._path} cannot be read as a SQLite file: {error}") from None
            case OverflowError():
                raise LogDamaged(f"{self._path} has a number that no log has: {error}") from None
            case UnicodeDecodeError():
                raise LogDamaged(f"{self._path} holds text that is not UTF-8: {error}") from None
            case sqlite3.DatabaseError() if getattr(error, "sqlite_errorcode", 0) & 0xFF in _FAILURE_CODES:
                raise StorageFailure(
                    f"the log {self._path} cannot be read or written: {error}\n"
                    "  records that were acknowledged are intact; free space or mend the disk, then go on"
                ) from None
            case sqlite3.DatabaseError():
                raise LogUnavailable(f"the log {self._path} cannot be used: {error}") from None
            case OSError():
                raise build_os_failure(error, f"the log {self._path} cannot be used: {error}") from None


class Transaction:
    """A transaction: takes the connection and the lock of the file, commits at the end of its block, rolls
    back after an exception.

    Before it begins, and after its commit, it looks whether the file is still the one at its path. So nothing
    is written to a file that was found replaced, and nothing is acknowledged that went to one.

    Args:
        wait_s: how long it waits for another process that writes.
        watch: looks at the file.
        is_unsynced: whether its commit does not wait for the disk, in a file whose other commits do.
    """

    __slots__ = ("_db", "_is_unsynced", "_lock", "_wait_s", "_watch")

    def __init__(
        self,
        db: sqlite3.Connection,
        lock: threading.Lock,
        wait_s: float,
        watch: SqliteWatch | None = None,
        *,
        is_unsynced: bool = False,
    ) -> None:
        self._db = db
        self._lock = lock
        self._wait_s = wait_s
        self._watch = watch
        self._is_unsynced = is_unsynced

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=self._wait_s > 0):
            raise LogBusy("another thread writes to the log")
        try:
            if self._watch is not None:
                self._watch.look_before_commit()
            if self._is_unsynced:
                self._db.execute("PRAGMA synchronous = NORMAL")
            self._begin()
        except BaseException:
            self._end()
            raise

    def _begin(self) -> None:
        """Take the lock of the file.

        Raises:
            LogBusy: somebody else has it, and there is no time to wait.
        """
        pause_s, until = _FIRST_PAUSE_S, 0.0
        while True:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
            now = time.monotonic()
            until = until or now + self._wait_s
            if now >= until:
                waited = f" for {self._wait_s:g} s" if self._wait_s else ""
                raise LogBusy(f"the log is locked: another process has been writing{waited}")
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._db.execute("COMMIT")
                if self._watch is not None:
                    self._watch.look_after_commit()
        finally:
            self._end()

    def _end(self) -> None:
        """Roll back what was not committed, and give the lock back."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if self._is_unsynced:
                self._db.execute("PRAGMA synchronous = FULL")
        finally:
            self._lock.release()
