"""`list_directory` and `read_file`, confined to one folder.

A path is resolved, held against the root, and then opened part by part from the root without following
any link, so that neither `..` nor a symbolic link, nor one that is put there in between, leads out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from toolchart.tools.definition import ToolFailure

MOST_ENTRIES = 1000
MOST_BYTES = 5_000_000
"""Of a file that is read at all, up to the last wanted line."""
MOST_LINES = 2000

LIST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Folder, relative to the root; `.` is the root."},
        "pattern": {"type": "string", "description": "Glob over names, for instance `*.md`."},
    },
}
READ_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "File, relative to the root."},
        "start_line": {"type": "integer", "minimum": 1, "description": "First line, from 1."},
        "lines": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_LINES,
            "description": "How many lines at most.",
        },
    },
    "required": ["path"],
}


class Folder:
    """What tools may see of the file system: one folder and what is under it."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(os.path.realpath(root))

    def list_directory(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """`{path, entries: [{name, type, size}], more?}`, folders first.

        Raises:
            ToolFailure: outside the root, or no folder.
        """
        asked = arguments.get("path", ".")
        pattern = arguments.get("pattern", "*")
        with self._opened(asked, os.O_RDONLY) as handle:
            if not stat.S_ISDIR(os.fstat(handle).st_mode):
                raise ToolFailure(f"{asked!r} is no folder")
            with os.scandir(handle) as found:
                entries = [_entry(one) for one in found if fnmatchcase(one.name, pattern)]
        entries.sort(key=lambda entry: (entry["type"] != "folder", entry["name"]))
        told: dict[str, Any] = {"path": asked, "entries": entries[:MOST_ENTRIES]}
        if len(entries) > MOST_ENTRIES:
            told["more"] = len(entries) - MOST_ENTRIES
        return told

    def read_file(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """`{path, text, start_line, end_line, more}`.

        Raises:
            ToolFailure: outside the root, no ordinary file, no text, or the line is too far in.
        """
        asked = arguments["path"]
        start, count = arguments.get("start_line", 1), arguments.get("lines", MOST_LINES)
        with self._opened(asked, os.O_RDONLY) as handle:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ToolFailure(f"{asked!r} is no ordinary file")
            data = _read(handle)
        if b"\0" in data[:8192]:
            raise ToolFailure(f"{asked!r} is no text")
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        chosen = lines[start - 1 : start - 1 + count]
        if not chosen and start > 1:
            raise ToolFailure(f"{asked!r} has {len(lines)} lines that can be read")
        end = start - 1 + len(chosen)
        return {
            "path": asked,
            "text": "".join(chosen),
            "start_line": start,
            "end_line": end,
            "more": end < len(lines) or len(data) >= MOST_BYTES,
        }

    @contextmanager
    def _opened(self, asked: str, flags: int) -> Iterator[int]:
        """A file under the root, opened so that no link is followed on the way."""
        parts = self._inside(asked)
        # O_NONBLOCK: a pipe that somebody put there must not be waited for.
        safe = flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        here = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            for part in parts:
                inner = os.open(part, safe, dir_fd=here)
                os.close(here)
                here = inner
            yield here
        except OSError as error:
            words = error.strerror or type(error).__name__
            raise ToolFailure(f"{asked!r} cannot be opened: {words}") from None
        finally:
            os.close(here)

    def _inside(self, asked: str) -> tuple[str, ...]:
        """The parts of the real path below the root."""
        if "\0" in asked:
            raise ToolFailure("a path cannot contain a null character")
        try:
            real = Path(os.path.realpath(self._root / asked))
        except (OSError, ValueError) as error:
            raise ToolFailure(f"{asked!r} cannot be opened: {error}") from None
        if real != self._root and self._root not in real.parents:
            raise ToolFailure(f"{asked!r} lies outside the folder that this tool may see")
        return real.relative_to(self._root).parts


def _entry(found: os.DirEntry[str]) -> dict[str, Any]:
    if found.is_symlink():
        return {"name": found.name, "type": "link"}
    if found.is_dir(follow_symlinks=False):
        return {"name": found.name, "type": "folder"}
    return {"name": found.name, "type": "file", "size": found.stat(follow_symlinks=False).st_size}


def _read(handle: int) -> bytes:
    data = bytearray()
    while len(data) < MOST_BYTES:
        chunk = os.read(handle, min(1 << 20, MOST_BYTES - len(data)))
        if not chunk:
            break
        data += chunk
    return bytes(data)
