"""Positions in a document: key paths, the lines where they stand, and how they are printed in errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import yaml

from toolchart.states.errors import PluginUnusable, SpecError

SourcePosition = tuple[str | int, ...]
"""The keys and indexes that lead to an entry, for instance `("states", "prompting", "transitions", 0)`."""

_MAX_KEY_CHARACTERS = 60
"""Characters of one key that a printed key path shows."""


class LocatedDocument(Protocol):
    """What an error needs to name a place: the source of a document and the lines of its entries."""

    @property
    def source(self) -> str | None:
        """File or name of the document."""

    def find_line(self, position: SourcePosition) -> int | None:
        """The one-based line of a position, or of the nearest entry that contains it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLines:
    """The lines of a document that is not a chart yet."""

    source: str | None = None
    lines: Mapping[SourcePosition, int] = field(default_factory=dict, repr=False)

    def find_line(self, position: SourcePosition) -> int | None:
        """The one-based line of a position, or of the nearest entry that contains it."""
        return find_nearest_line(self.lines, position)


def raise_error(
    document: LocatedDocument, position: SourcePosition, message: str, hint: str | None = None
) -> NoReturn:
    """Refuse an entry of a document.

    Raises:
        SpecError: always; with the file, the line and the key path of the entry.
    """
    raise SpecError(
        message,
        file=document.source,
        line=document.find_line(position),
        path=format_key_path(position),
        hint=hint,
    )


@contextmanager
def locate_plugin_fault(document: LocatedDocument, position: SourcePosition) -> Iterator[None]:
    """Say where a word of another package stands, if that package cannot be loaded.

    Raises:
        SpecError: with the file, the line and the key path of the entry, and what is wrong with the package.
    """
    try:
        yield
    except PluginUnusable as error:
        if error.file is not None or error.line is not None:
            raise
        raise PluginUnusable(
            error.message,
            file=document.source,
            line=document.find_line(position),
            path=format_key_path(position),
            hint=error.hint,
        ) from error


def map_source_lines(node: yaml.Node | None, source: str | None = None) -> dict[SourcePosition, int]:
    """The one-based line of every key and entry below a composed node.

    Raises:
        SpecError: a key is not a plain word, or occurs twice in one mapping. YAML readers accept the second
            and keep the last one.
    """
    lines: dict[SourcePosition, int] = {}
    if node is not None:
        _collect_lines(node, (), lines, source)
    return lines


def _collect_lines(
    node: yaml.Node, position: SourcePosition, lines: dict[SourcePosition, int], source: str | None
) -> None:
    lines.setdefault(position, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            _collect_lines(entry, (*position, index), lines, source)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _collect_key(key, position, lines, source)
            _collect_lines(value, (*position, key.value), lines, source)


def _collect_key(
    key: yaml.Node, position: SourcePosition, lines: dict[SourcePosition, int], source: str | None
) -> None:
    line = key.start_mark.line + 1
    path = format_key_path(position)
    if not isinstance(key, yaml.ScalarNode):
        raise SpecError("a key is a word, not a list or a mapping", file=source, line=line, path=path)
    key_position = (*position, key.value)
    if key_position in lines and key.value != "<<":
        raise SpecError(
            f"the key {key.value!r} occurs twice, first in line {lines[key_position]}",
            file=source,
            line=line,
            path=path,
            hint="keep one of them",
        )
    lines[key_position] = line


def find_nearest_line(lines: Mapping[SourcePosition, int], position: SourcePosition) -> int | None:
    """The line of a position, or of the nearest entry that contains it."""
    for length in range(len(position), -1, -1):
        if position[:length] in lines:
            return lines[position[:length]]
    return None


def format_key_path(position: SourcePosition) -> str | None:
    """A position as text, for instance `states.prompting.transitions[0]`; None for the whole document."""
    key_path = ""
    for part in position:
        key = shorten(str(part), _MAX_KEY_CHARACTERS)
        key_path += f"[{part}]" if isinstance(part, int) else f".{key}" if key_path else key
    return key_path or None


def shorten(text: str, most: int = 200) -> str:
    """The text, cut where it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


def convert_yaml_error(error: yaml.YAMLError, source: str | None, text: str = "") -> SpecError:
    """A YAML parser's error as a `SpecError` with its line; `text` is what was parsed."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if isinstance(error, yaml.reader.ReaderError):
        character = error.character if isinstance(error.character, int) else ord(error.character)
        return SpecError(
            f"not valid YAML: the character U+{character:04X} is not allowed",
            file=source,
            line=text.count("\n", 0, error.position) + 1,
        )
    problem = str(getattr(error, "problem", None) or error).split("\n")[0]
    if problem.startswith("but "):
        problem = f"{getattr(error, 'context', '')}, {problem}"
    problem = shorten(problem)
    hint = "indent with spaces, never with tabs" if "\\t" in problem else None
    column = f" (column {mark.column + 1})" if mark else ""
    line = mark.line + 1 if mark else None
    return SpecError(f"not valid YAML: {problem}{column}", file=source, line=line, hint=hint)
