"""Places in a YAML document: key paths, the lines where they stand, and how people write them."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from toolchart.states.errors import SpecError

Place = tuple[str | int, ...]
"""A key path in a document, for instance `("states", "prompting", "transitions", 0)`."""


def lines_of(node: yaml.Node | None, source: str | None = None) -> dict[Place, int]:
    """The one-based line of every key and entry below a composed node.

    Raises:
        SpecError: a key that stands twice in one mapping, which YAML readers let pass.
    """
    lines: dict[Place, int] = {}
    if node is not None:
        _mark(node, (), lines, source)
    return lines


def _mark(node: yaml.Node, place: Place, lines: dict[Place, int], source: str | None) -> None:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            _mark(entry, (*place, index), lines, source)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*place, str(key.value))
            line = key.start_mark.line + 1
            if here in lines and key.value != "<<":
                raise SpecError(
                    f"the key {key.value!r} stands twice, first in line {lines[here]}",
                    file=source,
                    line=line,
                    path=dotted(place),
                    hint="keep one of them",
                )
            lines[here] = line
            _mark(value, here, lines, source)


def nearest_line(lines: Mapping[Place, int], place: Place) -> int | None:
    """The line of a place, or of the nearest thing around it."""
    for length in range(len(place), -1, -1):
        if place[:length] in lines:
            return lines[place[:length]]
    return None


def dotted(place: Place) -> str | None:
    """A place as people write it: `states.prompting.transitions[0]`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or None


def not_yaml(error: yaml.YAMLError, source: str | None) -> SpecError:
    """A parser's complaint in our words, with its place."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or error).split("\n")[0]
    hint = "indent with spaces, never with tabs" if "\\t" in problem else None
    column = f" (column {mark.column + 1})" if mark else ""
    line = mark.line + 1 if mark else None
    return SpecError(f"not valid YAML: {problem}{column}", file=source, line=line, hint=hint)
