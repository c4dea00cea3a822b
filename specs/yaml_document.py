"""Reads YAML and JSON files and keeps the line of every key, so that errors can name it: errors of a spec get
its file and line from their key path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolchart.states.chart.source_positions import SourcePosition, find_nearest_line
from toolchart.states.chart.yaml_reading import SPEC_LIMITS, read_yaml
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from toolchart.specs.models import AgentSpec

_KEY_PATH = re.compile(r"[\w-]+(?:\.[\w-]+|\[\d+\])*")
_STEP = re.compile(r"([\w-]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The content of a file, and the line of each of its parts."""

    data: dict[str, Any]
    source: str | None = None
    lines: Mapping[SourcePosition, int] = field(default_factory=dict, repr=False)

    def find_line(self, position: SourcePosition) -> int | None:
        """Return the line of a part, or of the nearest part that contains it."""
        return find_nearest_line(self.lines, position)


def read_document(path: Path, *, expected_keys: str = "`llms` and `responses`") -> Document:
    """The document of a file; `holds` are the keys that it should have, for an error's words.

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
    if path.is_dir():
        raise SpecError("this is a folder, not a file", file=source)
    try:
        return path.read_text("utf-8-sig")
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


def _suggest_file(path: Path) -> str | None:
    """The file of the same folder with the nearest name, or that there is no such folder."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    names = [file.name for file in folder.iterdir() if file.suffix == path.suffix]
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"the folder is {folder.resolve()}"


def parse_document(
    text: str, source: str | None, *, json_only: bool = False, expected_keys: str = "`llms` and `responses`"
) -> Document:
    """Parse a text as JSON if `json_only`, else as YAML, which includes JSON.

    Raises:
        SpecError: not a YAML or JSON mapping.
    """
    if json_only:
        _check_json(text, source)
        # YAML allows no tabs between JSON's tokens; JSON allows no raw tab inside a string.
        text = text.replace("\t", " ")
    try:
        data, lines = read_yaml(text, source, limits=SPEC_LIMITS)
        if json_only:
            data = json.loads(text)
    except RecursionError:
        raise SpecError("nested too deeply", file=source, line=1) from None
    if data is None:
        raise SpecError(
            "the file is empty", file=source, line=1, hint=f"write a mapping with {expected_keys}"
        )
    if not isinstance(data, dict):
        raise SpecError(
            f"expected a mapping with {expected_keys}, found a {type(data).__name__}", file=source, line=1
        )
    return Document(data=data, source=source, lines=lines)


def _check_json(text: str, source: str | None) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"not valid JSON: {error.msg} (column {error.colno})", file=source, line=error.lineno
        ) from None
    except ValueError as error:
        raise SpecError(f"not valid JSON: {error}", file=source, line=1) from None
    except RecursionError:
        raise SpecError("nested too deeply", file=source, line=1) from None


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
                hint=f"a spec has at most {SPEC_LIMITS.depth} levels and {SPEC_LIMITS.entries:,} entries",
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


def parse_key_path(path: str) -> SourcePosition:
    """Split a key path into keys and list positions.

    >>> parse_key_path("approval[1].tools")
    ('approval', 1, 'tools')
    """
    return tuple(int(number) if number else key for key, number in _STEP.findall(path))
