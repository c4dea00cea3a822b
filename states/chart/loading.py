"""A chart as data: read from YAML, extended, checked, and plain native YAML again.

The format is python-statemachine's own, so that its loader, its JSON Schema and its diagrams work on
a chart unchanged. One key is ours: `extends: NAME`, which takes another chart and adds or replaces
states and rows; it is resolved here, and what is logged, checked and drawn is the resolved chart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import yaml

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.rules import check_rules
from toolchart.states.chart.source_positions import Place, dotted, lines_of, not_yaml
from toolchart.states.errors import SpecError

__all__ = ["Chart", "Place", "dotted", "make_chart", "parse_chart", "walk_states"]

Resolve = Callable[[str], str]
"""Gives the text of the chart that `extends` names; raises SpecError for an unknown name."""

_DEEPEST_EXTENSION = 8


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
    resolved = _extended(dict(document), source, dict(lines or {}), resolve, 0)
    lines = _moved_lines(document, resolved, lines or {})
    chart = Chart(
        name=str(resolved.get("name") or source or "chart"),
        document=resolved,
        source=source,
        lines=lines,
        # Not canonical JSON: the order of states is a part of what a chart means.
        digest=hashlib.sha256(orjson.dumps(resolved)).hexdigest(),
    )
    check_rules(chart)
    return chart


# -- reading -------------------------------------------------------------------------------------


def _read(text: str, source: str | None) -> tuple[dict[str, Any], dict[Place, int]]:
    # The library's own loader keeps `on`, `off`, `yes` and `no` as text; plain safe_load would turn
    # the key `on:` into True.
    from statemachine.io.yaml.reader import _make_loader

    try:
        loader = _make_loader(yaml)(text)  # a SafeLoader
        node = loader.get_single_node()
        document = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise not_yaml(error, source) from None
    if node is None or not isinstance(document, dict):
        raise SpecError(
            "a chart is a mapping with the key `states`",
            file=source,
            line=1,
            hint="start from a shipped chart: toolchart draw tool_loop --format yaml",
        )
    return document, lines_of(node, source)


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
            file=source,
            line=line,
            path="extends",
        )
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


def _moved_lines(
    document: Mapping[str, Any], resolved: Mapping[str, Any], lines: Mapping[Place, int]
) -> dict[Place, int]:
    """The lines of a chart's own rows under the numbers that they have in the resolved chart."""
    found = ((_moved(place, document, resolved), line) for place, line in lines.items())
    return {place: line for place, line in found if place is not None}


def _moved(place: Place, before: Any, after: Any) -> Place | None:
    """A place of the document in the resolved chart: merging moves rows and keeps everything else."""
    moved: list[str | int] = []
    for part in place:
        if isinstance(part, int) and isinstance(before, list) and isinstance(after, list):
            row = before[part]
            number = next((i for i, other in enumerate(after) if other is row), None)
            if number is None:
                return None
            moved.append(number)
            before, after = row, after[number]
            continue
        moved.append(part)
        before, after = _below(before, part), _below(after, part)
    return tuple(moved)


def _below(node: Any, part: str | int) -> Any:
    if isinstance(node, list) and isinstance(part, int) and part < len(node):
        return node[part]
    return node.get(part) if isinstance(node, Mapping) else None
