"""Positions in a YAML document: key paths, the lines where they stand, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from toolchart.states.errors import SpecError

SourcePosition = tuple[str | int, ...]
"""The keys and indexes that lead to an entry, for instance `("states", "prompting", "transitions", 0)`."""


def map_source_lines(node: yaml.Node | None, source: str | None = None) -> dict[SourcePosition, int]:
    """The one-based line of every key and entry below a composed node.

    Raises:
        SpecError: a key occurs twice in one mapping. YAML readers accept this and keep the last one.
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
            key_position = (*position, str(key.value))
            line = key.start_mark.line + 1
            if key_position in lines and key.value != "<<":
                raise SpecError(
                    f"the key {key.value!r} occurs twice, first in line {lines[key_position]}",
                    file=source,
                    line=line,
                    path=format_key_path(position),
                    hint="keep one of them",
                )
            lines[key_position] = line
            _collect_lines(value, key_position, lines, source)


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
        key_path += f"[{part}]" if isinstance(part, int) else f".{part}" if key_path else str(part)
    return key_path or None


def convert_yaml_error(error: yaml.YAMLError, source: str | None) -> SpecError:
    """A YAML parser's error as a `SpecError` with its line."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error).split("\n")[0]
    hint = "indent with spaces, never with tabs" if "\\t" in problem else None
    column = f" (column {mark.column + 1})" if mark else ""
    line = mark.line + 1 if mark else None
    return SpecError(f"not valid YAML: {problem}{column}", file=source, line=line, hint=hint)
