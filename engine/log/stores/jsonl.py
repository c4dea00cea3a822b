"""The JSONL store: a folder with one file per conversation and one record per line.

A crash can leave an incomplete last line, without a line end. It was never acknowledged, so reading
stops before it and the next append cuts it off. A lock on the file keeps two processes from appending at
the same time.

Checkpoints stand in a second file beside the first, `CONVERSATION.checkpoints`, one per line: the number of
the record, the byte at which the record's line ends, and the checkpoint. The byte lets a reader start there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable

_SUFFIX = ".jsonl"
_CHECKPOINT_SUFFIX = ".checkpoints"
_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_BLOCK_BYTES = 1 << 16


class JsonlStore:
    """Keeps records in `FOLDER/CONVERSATION.jsonl` and checkpoints beside them.

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
        self._unsynced_checkpoints: set[str] = set()
        """Conversations with a checkpoint that the next append must sync first."""
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
            self._sync_checkpoints(conversation)
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
        count, start = self._find_start(conversation, size, None)
        data = os.pread(handle, size - start, start)
        return count + data.count(b"\n"), start + data.rfind(b"\n") + 1

    def _find_start(self, conversation: str, size: int, seq: int | None) -> tuple[int, int]:
        """A record number, at most `seq`, and the byte at which its line begins; from the checkpoints."""
        with contextlib.suppress(LogDamaged):  # damage of a checkpoint is reported to those who read it
            for checkpoint_seq, end, _ in self._read_checkpoint_lines(conversation):
                is_early = seq is None or checkpoint_seq < seq
                if is_early and end <= size and self._has_record_end(conversation, checkpoint_seq, end):
                    return checkpoint_seq + 1, end
        return 0, 0

    def _has_record_end(self, conversation: str, seq: int, end: int) -> bool:
        """Whether the line of record `seq` ends at byte `end`; not so where the file was cut and
        continued."""
        with self._build_path(conversation).open("rb") as file:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                return False
            return next(_read_lines_backwards(file, end)).startswith(b'{"seq":%d,' % seq)

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
            first, offset = self._find_start(conversation, path.stat().st_size, start) if start else (0, 0)
            file.seek(offset)
            for seq, line in enumerate(file, first):
                if not line.endswith(b"\n"):
                    return
                if seq >= start:
                    yield line[:-1]

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        path = self._build_path(conversation)
        if not path.is_file():
            return None
        first, offset = self._find_start(conversation, path.stat().st_size, None)
        newest = None
        with path.open("rb") as file:
            file.seek(offset)
            for seq, line in enumerate(file, first):
                if line.endswith(b"\n"):
                    newest = (seq, line[:-1])
            if newest is None and first:
                file.seek(0)
                head = next(_read_lines_backwards(file, offset))
                newest = (first - 1, head)
        return newest

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations that have a complete line, the oldest first."""
        files = [
            (began_at, path)
            for path in self.folder.glob(f"*{_SUFFIX}")
            if path.is_file() and (began_at := _read_begin_time(path))
        ]
        return [unquote(path.name.removesuffix(_SUFFIX)) for _, path in sorted(files)]

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation with its checkpoints."""
        path = self._build_path(conversation)
        try:
            # The checkpoints first: they are worth nothing without the records.
            self._build_path(conversation, _CHECKPOINT_SUFFIX).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        except OSError as error:
            raise LogUnavailable(f"the log {path} cannot be deleted: {error}") from None
        self._known_ends.pop(conversation, None)
        self._unsynced_checkpoints.discard(conversation)
        if self._durable:
            self._sync_folder()

    def close(self) -> None:
        """Nothing to close: files are open only during a call."""

    # -- checkpoints -----------------------------------------------------------------------------

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record; the next append syncs it."""
        path = self._build_path(conversation, _CHECKPOINT_SUFFIX)
        known_end = self._known_ends.get(conversation)
        if known_end is None or known_end[0] != seq + 1:
            return  # another writer has appended meanwhile: this checkpoint is not the newest any more
        try:
            is_new = not path.exists()
            with path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                os.ftruncate(file.fileno(), _find_complete_size(file))
                file.write(b"%d %d %b\n" % (seq, known_end[1], data))
        except OSError as error:
            raise LogUnavailable(f"the file {path} cannot be written: {error}") from None
        self._unsynced_checkpoints.add(conversation)
        if is_new and self._durable:
            self._sync_folder()

    def _sync_checkpoints(self, conversation: str) -> None:
        """Make the checkpoints durable before a record that may name one."""
        if conversation in self._unsynced_checkpoints:
            if self._durable:
                with self._build_path(conversation, _CHECKPOINT_SUFFIX).open("rb") as file:
                    os.fdatasync(file.fileno())
            self._unsynced_checkpoints.discard(conversation)

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The checkpoints, the newest first."""
        for seq, _, data in self._read_checkpoint_lines(conversation):
            if newest is None or seq <= newest:
                yield seq, data

    def _read_checkpoint_lines(self, conversation: str) -> Iterator[tuple[int, int, bytes]]:
        """Record number, end of the record's line and data of each checkpoint, the newest first."""
        path = self._build_path(conversation, _CHECKPOINT_SUFFIX)
        if not path.is_file():
            return
        with path.open("rb") as file:
            for line in _read_lines_backwards(file, _find_complete_size(file)):
                seq, _, rest = line.partition(b" ")
                end, _, data = rest.partition(b" ")
                if not (seq.isdigit() and end.isdigit()):
                    raise LogDamaged(f"{path} has a line that is no checkpoint", conversation=conversation)
                yield int(seq), int(end), data

    def check_storage(self) -> Iterator[LogDamaged]:
        """Files of the folder that no store has written, and checkpoints without records."""
        for path in sorted(self.folder.iterdir()):
            if path.suffix == _CHECKPOINT_SUFFIX and not path.with_suffix(_SUFFIX).is_file():
                yield LogDamaged(f"{path} has checkpoints of a conversation that has no records")
            if path.suffix in (_SUFFIX, _CHECKPOINT_SUFFIX):
                name = unquote(path.name.removesuffix(path.suffix))
                if self._build_path(name, path.suffix) != path or not path.is_file():
                    yield LogDamaged(f"{path} is no file of this log")

    def _build_path(self, conversation: str, suffix: str = _SUFFIX) -> Path:
        """The path of a conversation's file."""
        # Escaped, so that any id gives a plain file name without separators and dots.
        return self.folder / (
            _UNSAFE_CHARACTER.sub(lambda m: _escape_character(m.group(0)), conversation) + suffix
        )


def _find_complete_size(file: BinaryIO) -> int:
    """The bytes of a file up to the end of its last complete line."""
    position = file.seek(0, os.SEEK_END)
    while position:
        start = max(0, position - _BLOCK_BYTES)
        file.seek(start)
        line_end = file.read(position - start).rfind(b"\n")
        if line_end >= 0:
            return start + line_end + 1
        position = start
    return 0


def _read_lines_backwards(file: BinaryIO, end: int) -> Iterator[bytes]:
    """The lines before byte `end`, the last one first, without their line ends."""
    rest = b""
    while end:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        block = file.read(end - start) + rest
        lines = block.split(b"\n")
        rest, end = lines[0], start
        yield from (line for line in reversed(lines[1:]) if line)
    if rest:
        yield rest


def _escape_character(character: str) -> str:
    return quote(character, safe="") if character != "." else "%2E"


def _read_begin_time(path: Path) -> str:
    """Time of the first record; empty where there is none. Unlike file times, copying keeps it."""
    with path.open("rb") as file:
        first = file.readline()
    if not first.endswith(b"\n"):
        return ""
    match = re.search(rb'"at":"([^"]*)"', first)
    return match.group(1).decode("utf-8", "replace") if match else "(unreadable)"
