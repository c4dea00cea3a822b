"""The JSONL store: a folder with one file per conversation, one record a line, synced when acknowledged.

A crash can leave a torn last line: bytes without a line end. Nothing of it was acknowledged, so it is
cut off before the next append, and reading stops before it. Two processes that append at once are kept
apart by a lock on the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from toolchart.states.errors import LogConflict, LogUnavailable

_SUFFIX = ".jsonl"
_SAFE = re.compile(r"[^A-Za-z0-9_-]")


class JsonlStore:
    """Keeps records in `FOLDER/CONVERSATION.jsonl`.

    Args:
        durable: whether `append` syncs before it returns (`full`); else the system does when it likes.

    Raises:
        LogUnavailable: the folder cannot be made or is a file.
    """

    def __init__(self, folder: str | Path, *, create: bool = True, durable: bool = True) -> None:
        self.folder = Path(folder)
        self._durable = durable
        self._ends: dict[str, tuple[int, int]] = {}
        """Records and bytes of the files that this store wrote last."""
        if not create and not self.folder.is_dir():
            raise LogUnavailable(f"there is no log at {self.folder}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogUnavailable(f"the log {self.folder} cannot be used: {error}") from None

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; synced to the disk on return."""
        path = self._path(conversation)
        fresh = not path.exists()
        if fresh and first_seq != 0:
            raise LogConflict(
                f"conversation {conversation}: record {first_seq} cannot be appended, the log has 0"
            )
        try:
            with path.open("r+b" if not fresh else "x+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                count, end = self._whole(conversation, file.fileno())
                if count != first_seq:
                    raise LogConflict(
                        f"conversation {conversation}: record {first_seq} cannot be appended, "
                        f"the log has {count}"
                    )
                self._write(file.fileno(), end, b"".join(line + b"\n" for line in lines))
                size = end + sum(len(line) + 1 for line in lines)
                self._ends[conversation] = (count + len(lines), size)
        except FileExistsError:
            raise LogConflict(f"another writer began conversation {conversation} first") from None
        except OSError as error:
            raise LogUnavailable(f"the log {path} cannot be written: {error}") from None
        if fresh and self._durable:
            self._sync_folder()

    def _write(self, handle: int, end: int, data: bytes) -> None:
        """Write after the last whole line; on a fault the file is as it was."""
        os.ftruncate(handle, end)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(handle, data[done:], end + done)
            if self._durable:
                os.fdatasync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, end)
            raise

    def _whole(self, conversation: str, handle: int) -> tuple[int, int]:
        """Number of whole lines, and where the last one ends."""
        size = os.fstat(handle).st_size
        known = self._ends.get(conversation)
        if known is not None and known[1] == size:
            return known
        data = os.pread(handle, size, 0)
        return data.count(b"\n"), data.rfind(b"\n") + 1

    def _sync_folder(self) -> None:
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The whole lines from `start` on; a torn last line is no record."""
        path = self._path(conversation)
        if not path.is_file():
            return
        with path.open("rb") as file:
            for seq, line in enumerate(file):
                if not line.endswith(b"\n"):
                    return
                if seq >= start:
                    yield line[:-1]

    def last(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        count, newest = 0, None
        for line in self.read(conversation):
            count, newest = count + 1, line
        return None if newest is None else (count - 1, newest)

    def conversations(self) -> Iterable[str]:
        """Every conversation's id, the oldest first; a file without a whole line has none yet."""
        begun = [(born, path) for path in self.folder.glob(f"*{_SUFFIX}") if (born := _born(path))]
        return [unquote(path.name.removesuffix(_SUFFIX)) for _, path in sorted(begun)]

    def delete(self, conversation: str) -> None:
        """Forget a whole conversation."""
        path = self._path(conversation)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise LogUnavailable(f"the log {path} cannot be deleted: {error}") from None
        self._ends.pop(conversation, None)
        if self._durable:
            self._sync_folder()

    def close(self) -> None:
        """Nothing is kept open."""

    def _path(self, conversation: str) -> Path:
        # Every name is one plain file name: no separator, no dot, whatever the conversation is called.
        return self.folder / (_SAFE.sub(lambda m: _escaped(m.group(0)), conversation) + _SUFFIX)


def _escaped(character: str) -> str:
    return quote(character, safe="") if character != "." else "%2E"


def _born(path: Path) -> str:
    """Time of the first record, which no copying changes; empty where there is no record."""
    with path.open("rb") as file:
        first = file.readline()
    if not first.endswith(b"\n"):
        return ""
    match = re.search(rb'"at":"([^"]*)"', first)
    return match.group(1).decode() if match else "(unreadable)"
