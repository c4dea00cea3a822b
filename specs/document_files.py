"""Files with YAML and JSON: read as documents, and named in errors of a spec with the line of a key path."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolchart.states.chart.yaml_document import SPEC_LIMITS, Document, parse_document, parse_key_path
from toolchart.states.errors import SpecError
from toolchart.states.reading_limits import READING, format_bytes, name_limit

if TYPE_CHECKING:
    from toolchart.specs.models import AgentSpec

_KEY_PATH = re.compile(r"[\w-]+(?:\.[\w-]+|\[\d+\])*")


def read_document(path: Path, *, expected_keys: str = "`llms` and `responses`") -> Document:
    """The document of a file, as `parse_document` reads it.

    Raises:
        SpecError: no such file, not readable, not UTF-8, or not a YAML or JSON mapping.
    """
    return parse_document(
        read_text(path), str(path), json_only=path.suffix == ".json", expected_keys=expected_keys
    )


def read_text(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        SpecError: no such file, not readable, or not UTF-8, with the line.
    """
    source = str(path)
    try:
        return read_regular_file(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise SpecError("there is no such file", file=source, hint=_suggest_file(path)) from None
    except UnicodeDecodeError as error:
        raise SpecError(
            f"not UTF-8 text ({error.reason} at byte {error.start})",
            file=source,
            line=error.object.count(b"\n", 0, error.start) + 1,
        ) from None
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", file=source) from None


def read_regular_file(path: Path) -> bytes:
    """The content of a file that a person named: a spec, a chart, a history, a file to import.

    A device or a pipe may never end, and opening a pipe waits for who writes into it. So nothing but a
    regular file is read, and what was opened is looked at: a name may mean something else a moment later.

    Raises:
        SpecError: it is a folder, a pipe or a device, or larger than a file may be.
        OSError: it cannot be opened or read.
    """
    if path.is_dir():
        raise SpecError("this is a folder, not a file", file=str(path))
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SpecError(
                "this is no regular file, and might never end",
                file=str(path),
                hint="write its content to a file first, and name that",
            )
        data = file.read(READING.file_bytes + 1)
    if len(data) > READING.file_bytes:
        problem = f"larger than {format_bytes(READING.file_bytes)}, which is not read"
        raise SpecError(f"{problem} {name_limit('file_bytes')}", file=str(path))
    return data


def _suggest_file(path: Path) -> str | None:
    """The file of the same folder with the nearest name, or that there is no such folder."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    names = [file.name for file in folder.iterdir() if file.suffix == path.suffix]
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"the folder is {folder.resolve()}"


def check_nesting(data: Any) -> None:
    """Refuse a value that nests too deeply or contains itself, so that later code may walk it.

    Raises:
        SpecError: it has too many entries or levels.
    """
    open_values = [(data, 0, "")]
    entries = 0
    while open_values:
        value, depth, key = open_values.pop()
        entries += 1
        if depth > SPEC_LIMITS.depth or entries > SPEC_LIMITS.entries:
            raise SpecError(
                "nested too deeply, or contains itself",
                file="(mapping)",
                path=key,
                hint=f"a spec has at most {SPEC_LIMITS.depth} levels and {SPEC_LIMITS.entries:,} entries"
                + SPEC_LIMITS.name("entries"),
            )
        if isinstance(value, Mapping):
            open_values.extend((item, depth + 1, key or str(name)) for name, item in value.items())
        elif isinstance(value, list | tuple):
            open_values.extend((item, depth + 1, key) for item in value)


# -- positions of errors -------------------------------------------------------------------------


@contextmanager
def locate_errors(spec: AgentSpec) -> Iterator[None]:
    """Add the spec's file, and the line of the key path, to a `SpecError` that names no file.

    Raises:
        SpecError: the same error with its position.
    """
    try:
        yield
    except SpecError as error:
        if error.file is not None or spec.source is None:
            raise
        raise SpecError(
            error.message,
            file=spec.source,
            line=find_spec_line(spec.source, error.path),
            path=error.path,
            hint=error.hint,
        ) from None


def find_spec_line(source: str | None, path: str | None) -> int | None:
    """Return the line of a key path such as `approval[1].tools`; None if there is no file that has it."""
    if source is None or path is None or not _KEY_PATH.fullmatch(path):
        return None
    try:
        return read_document(Path(source)).find_line(parse_key_path(path))
    except SpecError:
        return None
