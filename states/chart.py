"""A chart as data: read from YAML, extended, checked, and plain native YAML again.

The format is python-statemachine's own, so that its loader, its JSON Schema and its diagrams work on
a chart unchanged. One key is ours: `extends: NAME`, which takes another chart and adds or replaces
states and rows; it is resolved here, and what is logged, checked and drawn is the resolved chart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from toolchart.states.errors import SpecError
from toolchart.states.jsonvalue import canonical

Place = tuple[str | int, ...]
"""A key path in a document, for instance `("states", "prompting", "transitions", 0)`."""

Resolve = Callable[[str], str]
"""Gives the text of the chart that `extends` names; raises SpecError for an unknown name."""

_DEEPEST_EXTENSION = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A resolved chart that has passed every rule that can be checked without running it."""

    name: str
    document: dict[str, Any]
    """Plain native YAML data, `extends` resolved."""
    source: str | None = None
    """File or name it came from."""
    lines: Mapping[Place, int] = field(default_factory=dict, compare=False, repr=False)
    """One-based line of every key and entry that stands in the source itself."""
    digest: str = ""
    """SHA-256 of the document's canonical JSON."""

    def line(self, place: Place) -> int | None:
        """The line of a place, or of the nearest thing around it."""
        for length in range(len(place), -1, -1):
            if place[:length] in self.lines:
                return self.lines[place[:length]]
        return None


def parse_chart(text: str, *, source: str | None = None, resolve: Resolve | None = None) -> Chart:
    """The chart of a YAML text.

    Raises:
        SpecError: not YAML, not a chart, or a chart that breaks a rule; with file and line.
    """
    document, lines = _read(text, source)
    return make_chart(document, source=source, lines=lines, resolve=resolve)


def make_chart(
    document: Mapping[str, Any],
    *,
    source: str | None = None,
    lines: Mapping[Place, int] | None = None,
    resolve: Resolve | None = None,
) -> Chart:
    """The chart of a document that is data already (inline in a spec, or from a log)."""
    from toolchart.states.chart_rules import check_rules

    resolved = _extended(dict(document), source, dict(lines or {}), resolve, 0)
    chart = Chart(
        name=str(resolved.get("name") or source or "chart"),
        document=resolved,
        source=source,
        lines=lines or {},
        digest=hashlib.sha256(canonical(resolved)).hexdigest(),
    )
    check_rules(chart)
    return chart


def walk_states(chart: Chart) -> Iterator[tuple[str, dict[str, Any], Place]]:
    """Every state with its definition and place, parents before children, in document order."""
    yield from _walk(chart.document.get("states") or {}, ("states",))


def _walk(states: Mapping[str, Any], place: Place) -> Iterator[tuple[str, dict[str, Any], Place]]:
    for name, definition in states.items():
        here = (*place, name)
        body = definition or {}
        yield str(name), body, here
        yield from _walk(body.get("states") or {}, (*here, "states"))


# -- reading -------------------------------------------------------------------------------------


def _read(text: str, source: str | None) -> tuple[dict[str, Any], dict[Place, int]]:
    # The library's own loader keeps `on`, `off`, `yes` and `no` as text; plain safe_load would turn
    # the key `on:` into True.
    from statemachine.io.yaml.reader import _make_loader

    loader = _make_loader(yaml)
    try:
        node = yaml.compose(text, Loader=loader)
        document = yaml.load(text, Loader=loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise _not_yaml(error, source) from None
    if node is None or not isinstance(document, dict):
        raise SpecError(
            "a chart is a mapping with the key `states`", file=source, line=1,
            hint="start from a shipped chart: toolchart draw tool_loop --format yaml",
        )  # fmt: skip
    lines: dict[Place, int] = {}
    _mark(node, (), lines, source)
    return document, lines


def _not_yaml(error: yaml.YAMLError, source: str | None) -> SpecError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not readable"
    hint = "indent with spaces, never with tabs" if "\\t" in str(problem) else None
    line = mark.line + 1 if mark else None
    return SpecError(f"not valid YAML: {problem}", file=source, line=line, hint=hint)


def _mark(node: yaml.Node, place: Place, lines: dict[Place, int], source: str | None) -> None:
    """Note the line of every key and entry; refuse a key that stands twice."""
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            _mark(entry, (*place, index), lines, source)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*place, str(key.value))
            line = key.start_mark.line + 1
            if here in lines:
                raise SpecError(
                    f"the key {key.value!r} stands twice, first in line {lines[here]}",
                    file=source, line=line, path=dotted(place), hint="keep one of them",
                )  # fmt: skip
            lines[here] = line
            _mark(value, here, lines, source)


def dotted(place: Place) -> str | None:
    """A place as people write it: `states.prompting.transitions[0]`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or None


# -- extending -----------------------------------------------------------------------------------


def _extended(
    document: dict[str, Any],
    source: str | None,
    lines: dict[Place, int],
    resolve: Resolve | None,
    depth: int,
) -> dict[str, Any]:
    """The document merged over the chart that it extends, and so on to the root."""
    if "extends" not in document:
        return document
    base_name = document["extends"]
    line = lines.get(("extends",))
    if not isinstance(base_name, str) or resolve is None:
        raise SpecError(
            "`extends` takes the name or path of one chart", file=source, line=line, path="extends"
        )
    if depth >= _DEEPEST_EXTENSION:
        raise SpecError(
            "charts extend each other in a circle or too deeply",
            file=source, line=line, path="extends",
        )  # fmt: skip
    base, base_lines = _read(resolve(base_name), base_name)
    base = _extended(base, base_name, base_lines, resolve, depth + 1)
    return _merged(base, {key: item for key, item in document.items() if key != "extends"})


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; rows merge by `_merged_rows`; anything else is replaced.

    A state that is set to null is taken out.
    """
    result = dict(base)
    for key, item in over.items():
        before = result.get(key)
        if item is None and key in result:
            del result[key]
        elif key == "transitions" and isinstance(before, list) and isinstance(item, list):
            result[key] = _merged_rows(before, item)
        elif isinstance(before, Mapping) and isinstance(item, Mapping):
            result[key] = _merged(before, item)
        else:
            result[key] = item
    return result


def _merged_rows(base: list[Any], over: list[Any]) -> list[Any]:
    """New rows stand before the old rows of the same event, so that they are asked first.

    A new row with the event and the guards of an old one replaces it in place.
    """
    result = list(base)
    for row in over:
        same = next((i for i, old in enumerate(result) if _trigger(old) == _trigger(row)), None)
        if same is not None:
            result[same] = row
            continue
        event = row.get("event") if isinstance(row, Mapping) else None
        fresh = [i for i, old in enumerate(result) if _event(old) == event and old in base]
        result.insert(fresh[0] if fresh else len(result), row)
    return result


def _event(row: Any) -> Any:
    return row.get("event") if isinstance(row, Mapping) else None


def _trigger(row: Any) -> Any:
    if not isinstance(row, Mapping):
        return row
    return row.get("event"), str(row.get("cond")), str(row.get("unless"))
