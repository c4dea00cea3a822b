"""Notices that the files of a log were replaced while a store has them open.

A store goes on with the file that it has opened, also where another one stands at its path by now: a backup
that was moved there, or nothing. What it commits then is in no log that anybody opens later. So the path is
looked at before a commit is acknowledged, which costs one `os.stat`: one to three microseconds. It is looked
at before a commit, too, so that nothing is added to files that may belong to a restored log by now. Whoever
has noticed it once writes no more: nobody knows what both files share.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from pathlib import Path

from toolchart.states.errors import LogUnavailable

log = logging.getLogger("toolchart.engine")

LOOK_EVERY_S = 0.05
"""Seconds between two looks before commits at `normal`, where a commit takes as long as ten of them."""

Identity = tuple[int, int]
"""Device and inode of a file: what tells it from another one at the same path."""


def _describe_file(status: os.stat_result) -> tuple[int, int, int, int]:
    """What changes where a file is replaced, and where it is written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _get_identity(status: os.stat_result) -> Identity:
    """The identity of a file."""
    return status.st_dev, status.st_ino


class ReplacementNotice:
    """Whether a log was found replaced; once it was, everything is refused until it is opened again.

    Args:
        path: of the log, for the message.
        companions: what else a restored backup must not find beside it, for the message.
    """

    __slots__ = ("_companions", "_path", "problem")

    def __init__(self, path: Path, companions: str) -> None:
        self._path = path
        self._companions = companions
        self.problem = ""
        """What happened; empty as long as nothing has."""

    def refuse(self, problem: str) -> None:
        """Note what happened, and raise it.

        Raises:
            LogUnavailable: always.
        """
        self.problem = self.problem or problem
        log.error("the log %s %s while it was in use; nothing more is written to it", self._path, problem)
        self.check()

    def check(self) -> None:
        """Return where nothing was noticed.

        Raises:
            LogUnavailable: the log was replaced.
        """
        if self.problem:
            raise LogUnavailable(
                f"the log {self._path} {self.problem} while it was in use; nothing more is written to it\n"
                "  stop every process that uses it, restore the backup again"
                f"{self._companions}, check it with: toolchart verify; then start again"
            )


class SqliteWatch:
    """Looks whether the SQLite file at a path is the one that a store has open, with the content that it had.

    Another file at the path has another inode. A file that was overwritten (`cp backup.db log.db`) has its
    inode, but its size or time of change differ. In WAL mode nothing but a checkpoint writes into the file
    itself, and each one, whoever does it, notes in the index of the write-ahead log (`-shm`) how far it is to
    get before it begins, and how far it got at its end. So a changed file without a new note was written by
    somebody else. (Source: https://sqlite.org/walformat.html. The salts, which are new for each beginning of
    the write-ahead log, stand at byte 32, `nBackfill` at byte 96, `nBackfillAttempted` at byte 128.)

    The write-ahead log must keep its inode too: SQLite deletes it only with its last connection.

    What it does not see: a file that is overwritten in the very moment of a checkpoint. Where the descriptor
    of the index cannot be found, an overwritten file is not noticed, only a replaced one.

    Args:
        db: an open connection to the file. It stays open as long as this object is used.
        every_s: seconds between two looks before a commit, and at the write-ahead log; 0 looks each time.
    """

    def __init__(self, path: Path, db: sqlite3.Connection, every_s: float = 0.0) -> None:
        self._every_s = every_s
        self._path = str(path)
        self._wal_path = f"{path}-wal"
        self._lock = threading.Lock()
        self.notice = ReplacementNotice(path, f" (without {path.name}-wal and {path.name}-shm beside it)")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the write-ahead log and its index
        self._index = _find_open_file(f"{path}-shm")
        self._note = self._read_note()
        self._state = _describe_file(os.stat(self._path))
        self._wal_identity: Identity | None = None
        with contextlib.suppress(FileNotFoundError):
            self._wal_identity = _get_identity(os.stat(self._wal_path))
        self._due = 0.0

    def look(self) -> None:
        """Return where the file at the path is the one that is open, and so is its write-ahead log.

        Raises:
            LogUnavailable: it was deleted, replaced or overwritten.
            OSError: it cannot be looked at.
        """
        self.look_at_file()
        self._look_at_wal()

    def look_before_commit(self) -> None:
        """`look`, where it was not done within `every_s`; else only refuse what was noticed before."""
        now = time.monotonic()
        if now < self._due:
            self.notice.check()
            return
        self._due = now + self._every_s
        self.look()

    def look_after_commit(self) -> None:
        """`look_at_file`, and at the write-ahead log where that is done at each commit."""
        self.look_at_file()
        if not self._every_s:
            self._look_at_wal()

    def look_at_file(self) -> None:
        """`look`, the write-ahead log aside."""
        self.notice.check()
        # First the note, then the file: a checkpoint whose note is kept has written before, or is at work.
        note = self._read_note()
        try:
            state = _describe_file(os.stat(self._path))
        except (FileNotFoundError, NotADirectoryError):
            self.notice.refuse("was deleted")
            return
        if state == self._state:
            self._note = note  # a beginning of the write-ahead log changes it, and not the file
        else:
            self._check_change()

    def _look_at_wal(self) -> None:
        try:
            identity = _get_identity(os.stat(self._wal_path)) if self._wal_identity is not None else None
        except FileNotFoundError:
            identity = (0, 0)
        if identity != self._wal_identity:
            self.notice.refuse("lost its write-ahead log, which was deleted")

    def _check_change(self) -> None:
        """Tell a checkpoint from another file, and from somebody who overwrote this one."""
        with self._lock:
            state = _describe_file(os.stat(self._path))
            if state == self._state:
                return  # another thread has looked meanwhile
            if state[:2] != self._state[:2]:
                self.notice.refuse("was replaced by another file")
            # First the file, then the note: whoever has written to it by a checkpoint has noted that before.
            note = self._read_note()
            is_at_work = note[8:12] != note[12:]  # or has died at it
            if note and note == self._note and not is_at_work:
                self.notice.refuse("was overwritten")
            self._note = note
            self._state = _describe_file(os.stat(self._path))

    def _read_note(self) -> bytes:
        """Salts, `nBackfill` and `nBackfillAttempted`; empty where the index is not found."""
        if self._index is None:
            return b""
        data = os.pread(self._index, 132, 0)
        return data[32:40] + data[96:100] + data[128:]


def _find_open_file(path: str) -> int | None:
    """The descriptor under which this process, that is SQLite, has a file open; None where it is not found.

    It must not be opened once more: closing any descriptor of a file drops all locks that the process has on
    it (POSIX), those of SQLite too.
    """
    try:
        identity = _get_identity(os.stat(path))
        names = os.listdir("/dev/fd")
    except OSError:
        return None
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            if _get_identity(os.fstat(int(name))) == identity:
                return int(name)
    return None
