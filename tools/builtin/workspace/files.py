"""The tools `list_directory`, `read_file` and `search_files`, which see one folder and nothing outside it.

A path is resolved and compared with the root. Then it is opened part by part from the root, without
following any link. So neither `..` nor a symbolic link leads out of the folder, even if somebody puts the
link there between the check and the opening.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.tools.definition import ToolFailure
from toolchart.tools.execution.context import NO_CONVERSATION, CallContext

MAX_ENTRIES = 1000
MAX_BYTES = 5_000_000
"""Bytes that are read of a file; a longer file is cut there."""
MAX_LINES = 2000
FRAME = 300
"""Characters that the JSON around the text and the path needs."""

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
            "maximum": MAX_LINES,
            "description": "How many lines at most.",
        },
    },
    "required": ["path"],
}

SEARCH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "description": "Words to find, ignoring case."},
        "pattern": {"type": "string", "description": "Glob over file names, for instance `*.md`."},
    },
    "required": ["text"],
}
MAX_MATCHES = 200
MAX_SEARCHED_FILES = 20_000
_MAX_LINE = 300


class Folder:
    """The part of the file system that the tools may see: one folder and everything under it."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(os.path.realpath(root))

    def list_directory(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """List a folder: `{path, entries: [{name, type, size}], more?}`, folders first.

        `more` counts the entries beyond `MAX_ENTRIES`, which are left out.

        Raises:
            ToolFailure: the path lies outside the root, or it is not a folder.
        """
        path = arguments.get("path", ".")
        pattern = arguments.get("pattern", "*")
        with self._open_path(path, os.O_RDONLY) as handle:
            if not stat.S_ISDIR(os.fstat(handle).st_mode):
                raise ToolFailure(f"{path!r} is not a folder")
            with os.scandir(handle) as scan:
                entries = [_describe_entry(item) for item in scan if fnmatchcase(item.name, pattern)]
        entries.sort(key=lambda entry: (entry["type"] != "folder", entry["name"]))
        listing: dict[str, Any] = {"path": path, "entries": entries[:MAX_ENTRIES]}
        if len(entries) > MAX_ENTRIES:
            listing["more"] = len(entries) - MAX_ENTRIES
        return listing

    def read_file(
        self, arguments: Mapping[str, Any], context: CallContext = NO_CONVERSATION
    ) -> dict[str, Any]:
        """Read lines of a text file: `{path, text, start_line, end_line, more}`; as many as the model
        may see.

        Raises:
            ToolFailure: the path lies outside the root, it is not a regular text file, or the file
                ends before the first line.
        """
        path = arguments["path"]
        start, count = arguments.get("start_line", 1), arguments.get("lines", MAX_LINES)
        with self._open_path(path, os.O_RDONLY) as handle:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ToolFailure(f"{path!r} is not a regular file")
            data = _read_bytes(handle)
        if b"\0" in data[:8192]:
            raise ToolFailure(f"{path!r} is not a text file")
        lines = data.decode("utf-8", "replace").splitlines(keepends=True)
        selection = lines[start - 1 : start - 1 + count]
        if not selection and start > 1:
            raise ToolFailure(f"{path!r} has {len(lines)} lines that can be read")
        selection, is_cut = _select_lines(selection, context.max_characters)
        end = start - 1 + len(selection)
        return {
            "path": path,
            "text": "".join(selection),
            "start_line": start,
            "end_line": end,
            "more": is_cut or end < len(lines) or len(data) >= MAX_BYTES,
        }

    def search_files(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Find lines with a text in the text files of the folder: `{matches: [{path, line, text}], more}`.

        Links are not followed, and hidden folders are left out. `more` says whether something was left out.
        """
        text, pattern = arguments["text"].casefold(), arguments.get("pattern", "*")
        matches: list[dict[str, Any]] = []
        for number, path in enumerate(self._iterate_files(pattern)):
            if number >= MAX_SEARCHED_FILES or len(matches) > MAX_MATCHES:
                return {"matches": matches[:MAX_MATCHES], "more": True}
            with suppress(ToolFailure), self._open_path(path, os.O_RDONLY) as handle:
                data = _read_bytes(handle) if stat.S_ISREG(os.fstat(handle).st_mode) else b"\0"
                matches += _find_lines(path, data, text)
        return {"matches": matches[:MAX_MATCHES], "more": len(matches) > MAX_MATCHES}

    def _iterate_files(self, pattern: str) -> Iterator[str]:
        """Paths of the files below the root whose names match, sorted."""
        for folder, folders, names in os.walk(self._root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if fnmatchcase(name, pattern):
                    yield os.path.relpath(os.path.join(folder, name), self._root)

    @contextmanager
    def _open_path(self, path: str, flags: int) -> Iterator[int]:
        """Open a path under the root, part by part without following links; yields the handle."""
        parts = self._resolve_parts(path)
        # O_NONBLOCK: opening a named pipe must not block.
        safe = flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        current = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            for part in parts:
                inner = os.open(part, safe, dir_fd=current)
                os.close(current)
                current = inner
            yield current
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ToolFailure(f"{path!r} cannot be opened: {reason}") from None
        finally:
            os.close(current)

    def _resolve_parts(self, path: str) -> tuple[str, ...]:
        """The parts of the real path below the root.

        Raises:
            ToolFailure: the path lies outside the root.
        """
        if "\0" in path:
            raise ToolFailure("a path cannot contain a null character")
        try:
            real = Path(os.path.realpath(self._root / path))
        except (OSError, ValueError) as error:
            raise ToolFailure(f"{path!r} cannot be opened: {error}") from None
        if real != self._root and self._root not in real.parents:
            raise ToolFailure(f"{path!r} lies outside the folder that this tool may see")
        return real.relative_to(self._root).parts


def _find_lines(path: str, data: bytes, text: str) -> list[dict[str, Any]]:
    """The lines of a text file that contain a text; none of a binary file."""
    if b"\0" in data[:8192]:
        return []
    lines = data.decode("utf-8", "replace").splitlines()
    return [
        {"path": path, "line": number, "text": line.strip()[:_MAX_LINE]}
        for number, line in enumerate(lines, 1)
        if text in line.casefold()
    ]


def _describe_entry(entry: os.DirEntry[str]) -> dict[str, Any]:
    if entry.is_symlink():
        return {"name": entry.name, "type": "link"}
    if entry.is_dir(follow_symlinks=False):
        return {"name": entry.name, "type": "folder"}
    return {"name": entry.name, "type": "file", "size": entry.stat(follow_symlinks=False).st_size}


def _select_lines(lines: list[str], max_characters: int) -> tuple[list[str], bool]:
    """The first lines that the model may see, at least one, and whether something of them is left out.

    Args:
        max_characters: of the whole result as JSON; 0 for no limit.
    """
    if not max_characters:
        return lines, False
    remaining_characters = max_characters - FRAME
    for index, line in enumerate(lines):
        remaining_characters -= len(encode_canonical_text(line)) - 2
        if remaining_characters < 0:
            return lines[: max(1, index)], True
    return lines, False


def _read_bytes(handle: int) -> bytes:
    data = bytearray()
    while len(data) < MAX_BYTES:
        chunk = os.read(handle, min(1 << 20, MAX_BYTES - len(data)))
        if not chunk:
            break
        data += chunk
    return bytes(data)
