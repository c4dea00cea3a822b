"""The JSONL store: a folder with one file per conversation and one record per line.

A crash can leave an incomplete last line, without a line end. It was never acknowledged, so reading
stops before it and the next append cuts it off. A lock on the file keeps two processes from appending at
the same time.
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
_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


class JsonlStore:
    """Keeps records in `FOLDER/CONVERSATION.jsonl`.

    Args:
        create: whether the folder may be created.
        durable: whether `append` syncs before it returns (`full`); else the system syncs later.

    Raises:
        LogUnavailable: the folder cannot be made or is a file.
    """

    def __init__(self, folder: str | Path, *, create: bool = True, durable: bool = True) -> None:
        self.folder = Path(folder)
        self._durable = durable
        self._known_ends: dict[str, tuple[int, int]] = {}
        """Number of records and bytes of each file, after this store's last append to it."""
        if not create and not self.folder.is_dir():
            raise LogUnavailable(f"there is no log at {self.folder}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogUnavailable(f"the log {self.folder} cannot be used: {error}") from None

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append lines, all or none; durable on return."""
        path = self._build_path(conversation)
        is_new = not path.exists()
        if is_new and first_seq != 0:
            raise LogConflict(
                f"conversation {conversation}: record {first_seq} cannot be appended, the log has 0"
            )
        try:
            with path.open("r+b" if not is_new else "x+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                count, end = self._find_last_line_end(conversation, file.fileno())
                if count != first_seq:
                    raise LogConflict(
                        f"conversation {conversation}: record {first_seq} cannot be appended, "
                        f"the log has {count}"
                    )
                self._write_lines(file.fileno(), end, b"".join(line + b"\n" for line in lines))
                size = end + sum(len(line) + 1 for line in lines)
                self._known_ends[conversation] = (count + len(lines), size)
        except FileExistsError:
            raise LogConflict(f"another writer began conversation {conversation} first") from None
        except OSError as error:
            raise LogUnavailable(f"the log {path} cannot be written: {error}") from None
        if is_new and self._durable:
            self._sync_folder()

    def _write_lines(self, handle: int, end: int, data: bytes) -> None:
        """Write after the last complete line; after an error the file is as before."""
        os.ftruncate(handle, end)
        try:
            written_bytes = 0
            while written_bytes < len(data):
                written_bytes += os.pwrite(handle, data[written_bytes:], end + written_bytes)
            if self._durable:
                os.fdatasync(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, end)
            raise

    def _find_last_line_end(self, conversation: str, handle: int) -> tuple[int, int]:
        """Number of complete lines, and the byte offset at which the last one ends."""
        size = os.fstat(handle).st_size
        end = self._known_ends.get(conversation)
        if end is not None and end[1] == size:
            return end
        data = os.pread(handle, size, 0)
        return data.count(b"\n"), data.rfind(b"\n") + 1

    def _sync_folder(self) -> None:
        """Sync the folder, so that a new or deleted file is durable."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The complete lines from number `start` on."""
        path = self._build_path(conversation)
        if not path.is_file():
            return
        with path.open("rb") as file:
            for seq, line in enumerate(file):
                if not line.endswith(b"\n"):
                    return
                if seq >= start:
                    yield line[:-1]

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        count, newest = 0, None
        for line in self.read_lines(conversation):
            count, newest = count + 1, line
        return None if newest is None else (count - 1, newest)

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations that have a complete line, the oldest first."""
        files = [
            (began_at, path)
            for path in self.folder.glob(f"*{_SUFFIX}")
            if (began_at := _read_begin_time(path))
        ]
        return [unquote(path.name.removesuffix(_SUFFIX)) for _, path in sorted(files)]

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation."""
        path = self._build_path(conversation)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise LogUnavailable(f"the log {path} cannot be deleted: {error}") from None
        self._known_ends.pop(conversation, None)
        if self._durable:
            self._sync_folder()

    def close(self) -> None:
        """Nothing to close: files are open only during a call."""

    def _build_path(self, conversation: str) -> Path:
        """The path of a conversation's file."""
        # Escaped, so that any id gives a plain file name without separators and dots.
        return self.folder / (
            _UNSAFE_CHARACTER.sub(lambda m: _escape_character(m.group(0)), conversation) + _SUFFIX
        )


def _escape_character(character: str) -> str:
    return quote(character, safe="") if character != "." else "%2E"


def _read_begin_time(path: Path) -> str:
    """Time of the first record; empty where there is none. Unlike file times, copying keeps it."""
    with path.open("rb") as file:
        first = file.readline()
    if not first.endswith(b"\n"):
        return ""
    match = re.search(rb'"at":"([^"]*)"', first)
    return match.group(1).decode() if match else "(unreadable)"
