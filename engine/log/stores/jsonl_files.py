"""Files of the JSONL store: names, the lock, and writing that leaves a file as it was after an error."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import resource
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from toolchart.engine.log.stores.replaced_files import Identity, get_identity
from toolchart.states.errors import LogBusy

BLOCK_BYTES = 1 << 18

_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 180
"""Characters of a file name without its suffix; most systems allow 255 bytes."""


def build_file_name(conversation: str) -> str:
    """A plain file name for any id: without separators and points, and of limited length.

    A long one ends in `~` and a hash; its id stands in a file of its own.
    """
    name = _UNSAFE_CHARACTER.sub(lambda match: _escape_character(match.group(0)), conversation)
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[:100].rstrip('%')}~{hashlib.sha256(conversation.encode()).hexdigest()}"


def is_long(file_name: str) -> bool:
    """Whether a file name stands for a longer id."""
    return "~" in file_name


def read_file_name(file_name: str) -> str:
    """The id of a file name that is not long."""
    return unquote(file_name)


def _escape_character(character: str) -> str:
    return quote(character, safe="") if character != "." else "%2E"


def open_private(path: Path, flags: int) -> int:
    """Open a file; one that is created can be read by its owner only."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def lock_folder(folder: Path, *, wait: bool) -> Iterator[None]:
    """Within the block nobody else has the lock of a folder.

    It is given back by name and not only by closing its descriptor: a child that was forked meanwhile has
    that descriptor too, and would keep the lock for as long as it lives.

    Raises:
        LogBusy: another process has it, and `wait` is false.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise LogBusy("another process writes to the log") from None
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def write_at(handle: int, end: int, data: bytes, size: int | None = None) -> None:
    """Write after byte `end`, where the last line that counts ends; after an error the file is as before.

    What stands behind it is cut off first, and that is made durable: else a loss of power could leave the new
    bytes with an end of the old ones behind them, which is a line that nobody wrote.

    Args:
        size: of the file, where it is known.
    """
    if (os.fstat(handle).st_size if size is None else size) != end:
        os.ftruncate(handle, end)
        os.fdatasync(handle)
    try:
        written_bytes = 0
        while written_bytes < len(data):
            written_bytes += os.pwrite(handle, data[written_bytes:], end + written_bytes)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, end)
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a new or deleted file is durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


MORE = b" "
"""What stands between a line and its line end where the next line belongs to the same change. A crash within
the write of several lines leaves some of them, the last one of which says that it is not all: none counts."""


NOT_WRITTEN = b"\0"
"""A byte that no line has. After a failed sync and a loss of power a file can have some pages of a change and
not others, which read as zeros. Such a change at the end of a file does not count either; anywhere else it is
damage."""


def join_lines(lines: Sequence[bytes]) -> bytes:
    """The lines of one change, as they stand in a file."""
    return (MORE + b"\n").join(lines) + b"\n"


def count_lines(handle: int, size: int) -> tuple[int, int]:
    """The lines of a file that count, and the byte after the last one."""
    count = end = position = 0
    has_gap = False
    while position < size and (block := os.pread(handle, BLOCK_BYTES, position)):
        lines = block.count(b"\n")
        if lines:
            count, end = count + lines, position + block.rindex(b"\n") + 1
        has_gap = has_gap or NOT_WRITTEN in block
        position += len(block)
    if end > 1 and (has_gap or os.pread(handle, 1, end - 2) == MORE):  # a change may be there in part
        lines_there = os.pread(handle, end, 0).splitlines(keepends=True)
        while lines_there and not _is_last(lines_there[-1]):
            lines_there.pop()
        start = len(lines_there) - 1  # of the last change
        while start > 0 and not _is_last(lines_there[start - 1]):
            start -= 1
        if any(NOT_WRITTEN in line for line in lines_there[max(start, 0) :]):
            del lines_there[start:]
        count, end = len(lines_there), sum(map(len, lines_there))
    return count, end


def _is_last(line: bytes) -> bool:
    """Whether a line is the last one of its change."""
    return not line.endswith(MORE + b"\n")


def read_lines_backwards(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that count, without line feeds, the last one first, each with the byte after it."""
    lines = _read_complete_lines_backwards(file)
    change: list[tuple[int, bytes]] = []
    for end, line in lines:
        if line.endswith(MORE) and not change:
            continue  # a crash has cut off what follows it
        if change and not line.endswith(MORE):
            if not any(NOT_WRITTEN in part for _, part in change):
                yield from change
            change = []
            yield end, line
            yield from lines
            return
        change.append((end, line))
    if not any(NOT_WRITTEN in part for _, part in change):
        yield from change


def _read_complete_lines_backwards(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    position = file.seek(0, os.SEEK_END)
    rest, is_complete = b"", False
    while position:
        size = min(position, BLOCK_BYTES)
        position -= size
        file.seek(position)
        rest = file.read(size) + rest
        stop = len(rest)
        if not is_complete:  # what stands after the last line feed is a line that a crash has cut off
            stop = rest.rfind(b"\n") + 1
            is_complete = stop > 0
        while stop and (start := rest.rfind(b"\n", 0, stop - 1)) >= 0:
            yield position + stop, rest[start + 1 : stop - 1]
            stop = start + 1
        if is_complete:
            rest = rest[:stop]
    if rest and is_complete:
        yield len(rest), rest[:-1]


_NUMBER = re.compile(rb'\{"seq":([0-9]+),')


def read_last_number(file: BinaryIO) -> tuple[int, bytes] | None:
    """Number and line of the last record, where its line says the number; an encrypted one does not."""
    for _, line in read_lines_backwards(file):
        match = _NUMBER.match(line)
        return (int(match[1]), line) if match else None  # the last one that counts has no mark
    return None


def find_line_near_end(file: BinaryIO, number: int) -> bool | None:
    """Go to the beginning of a line from the end of the file; whether it is there.

    None where the line is nearer to the beginning, or where the records do not say their numbers.
    Going on with a conversation reads its newest records: that must not cost what its length does.
    """
    last = read_last_number(file)
    if last is None or number < last[0] - number:
        return None
    if number > last[0]:
        return False
    for end, line in islice(read_lines_backwards(file), last[0] - number, None):
        file.seek(end - len(line) - 1)
        return True
    return None


def find_line(file: BinaryIO, number: int) -> bool:
    """Go to the beginning of a line of a file; whether it may be there."""
    position = 0
    while number:
        block = file.read(BLOCK_BYTES)
        if not block:
            return False
        lines = block.count(b"\n")
        if lines < number:
            position, number = position + len(block), number - lines
            continue
        end = -1
        for _ in range(number):
            end = block.index(b"\n", end + 1)
        position, number = position + end + 1, 0
    file.seek(position)
    return True


_MOST = 512
_SHARE = 4
"""At most so many files, and at most this part of those that the process may open."""


class KeptFiles:
    """The files of records that stay open from one append to the next, because opening one costs more than
    writing to it; and those that a commit opens for itself. One thread at a time uses them.

    A kept file is looked at before it is used again: another process may have deleted the conversation or
    written it anew, or somebody has restored a backup. Then it is opened by its path again.
    """

    def __init__(self) -> None:
        self._handles: OrderedDict[str, tuple[int, Identity]] = OrderedDict()
        """Handle and identity of the file of each conversation."""
        self._once: list[int] = []
        self.most = min(_MOST, max(8, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE))

    def open(self, conversation: str, path: Path) -> tuple[int, int]:
        """The file at a path and its size; -1 and 0 where there is none."""
        status = self._find_in_place(conversation, path)
        if status is None:
            self.forget(conversation)
            try:
                handle = open_private(path, os.O_RDWR)
            except FileNotFoundError:
                return -1, 0
            status = self._keep(conversation, handle)
        self._handles.move_to_end(conversation)
        return self._handles[conversation][0], status.st_size

    def _keep(self, conversation: str, handle: int) -> os.stat_result:
        status = os.fstat(handle)
        self._handles[conversation] = handle, get_identity(status)
        return status

    def _find_in_place(self, conversation: str, path: Path) -> os.stat_result | None:
        """What stands at the path, where it is the file of the conversation that is open."""
        kept = self._handles.get(conversation)
        if kept is None:
            return None
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status if get_identity(status) == kept[1] else None

    def create(self, conversation: str, path: Path) -> int:
        """A new file, which must not exist."""
        handle = open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._keep(conversation, handle)
        return handle

    def open_once(self, path: Path) -> int:
        """A file, created where it is missing, that is open until the end of the commit."""
        handle = open_private(path, os.O_RDWR | os.O_CREAT)
        self._once.append(handle)
        return handle

    def is_in_place(self, conversation: str, path: Path) -> bool:
        """Whether the file of a conversation is open, and is the one at its path."""
        return self._find_in_place(conversation, path) is not None

    def forget(self, conversation: str) -> None:
        """Close the file of a conversation."""
        kept = self._handles.pop(conversation, None)
        if kept is not None:
            os.close(kept[0])

    def close_oldest(self) -> None:
        """End a commit: close what it opened for itself, and what was not used for longest."""
        while self._once:
            os.close(self._once.pop())
        while len(self._handles) > self.most:
            os.close(self._handles.popitem(last=False)[1][0])

    def close(self) -> None:
        """Close every file."""
        while self._handles:
            os.close(self._handles.popitem()[1][0])
