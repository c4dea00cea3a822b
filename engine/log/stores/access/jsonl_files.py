"""Files of the JSONL store: names, locks, and writing that leaves a file as it was after an error."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from toolchart.states.errors import LogBusy

BLOCK_BYTES = 1 << 16

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


def lock_file(handle: int, *, wait: bool) -> None:
    """Take the lock of a file, until it is closed.

    Raises:
        LogBusy: another process has it, and `wait` is false.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LogBusy("another process writes to the conversation") from None


@contextlib.contextmanager
def open_locked(path: Path, flags: int = os.O_RDWR | os.O_CREAT, *, wait: bool = True) -> Iterator[int]:
    """A file with its lock, within the block; one that was deleted before it was locked is opened again."""
    while True:
        handle = open_private(path, flags)
        try:
            lock_file(handle, wait=wait)
            if os.fstat(handle).st_nlink:
                yield handle
                return
        finally:
            os.close(handle)


def write_at(handle: int, end: int, data: bytes, size: int | None = None) -> None:
    """Write after byte `end`, where the last complete line ends; after an error the file is as before.

    Args:
        size: of the file, where it is known: one that ends there already is not cut.
    """
    if size != end:
        os.ftruncate(handle, end)
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


def find_complete_size(file: BinaryIO) -> int:
    """The bytes of a file up to the end of its last complete line."""
    position = file.seek(0, os.SEEK_END)
    while position:
        start = max(0, position - BLOCK_BYTES)
        file.seek(start)
        line_end = file.read(position - start).rfind(b"\n")
        if line_end >= 0:
            return start + line_end + 1
        position = start
    return 0


def read_lines_backwards(file: BinaryIO, end: int) -> Iterator[bytes]:
    """The lines before byte `end`, the last one first, without their line ends."""
    rest = b""
    while end:
        start = max(0, end - BLOCK_BYTES)
        file.seek(start)
        block = file.read(end - start) + rest
        lines = block.split(b"\n")
        rest, end = lines[0], start
        yield from (line for line in reversed(lines[1:]) if line)
    if rest:
        yield rest
