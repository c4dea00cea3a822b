"""Load a chart: read its YAML, resolve `extends`, and check its rules.

The format is python-statemachine's own, so its loader, its JSON Schema and its diagrams work on a
resolved chart unchanged. Toolchart adds one key, `extends: NAME`: it takes another chart and adds or
replaces states and rows. The key is resolved here. Logs, proofs and diagrams see the resolved chart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import yaml

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.rules import check_rules
from toolchart.states.chart.source_positions import (
    SourcePosition,
    convert_yaml_error,
    format_key_path,
    map_source_lines,
)
from toolchart.states.errors import SpecError

__all__ = ["Chart", "SourcePosition", "format_key_path", "make_chart", "parse_chart", "walk_states"]

ChartResolver = Callable[[str], str]
"""Returns the YAML text of the chart that `extends` names; raises SpecError for an unknown name."""

_MAX_EXTENSION_DEPTH = 8


def parse_chart(text: str, *, source: str | None = None, resolve: ChartResolver | None = None) -> Chart:
    """The chart of a YAML text.

    Raises:
        SpecError: the text is not YAML, not a chart, or breaks a rule; with file and line.
    """
    document, lines = _read_document(text, source)
    return make_chart(document, source=source, lines=lines, resolve=resolve)


def make_chart(
    document: Mapping[str, Any],
    *,
    source: str | None = None,
    lines: Mapping[SourcePosition, int] | None = None,
    resolve: ChartResolver | None = None,
) -> Chart:
    """The chart of a parsed document, for instance one that stands inline in a spec.

    Raises:
        SpecError: the document breaks a rule.
    """
    resolved_document = _resolve_extends(dict(document), source, dict(lines or {}), resolve, 0)
    lines = _map_resolved_lines(document, resolved_document, lines or {})
    chart = Chart(
        name=str(resolved_document.get("name") or source or "chart"),
        document=resolved_document,
        source=source,
        lines=lines,
        # Not canonical JSON, because the order of states has a meaning.
        digest=hashlib.sha256(orjson.dumps(resolved_document)).hexdigest(),
    )
    check_rules(chart)
    return chart


# -- reading -------------------------------------------------------------------------------------


def _read_document(text: str, source: str | None) -> tuple[dict[str, Any], dict[SourcePosition, int]]:
    # The library's own loader keeps `on`, `off`, `yes` and `no` as text. Plain safe_load would turn the
    # key `on:` into True.
    from statemachine.io.yaml.reader import _make_loader

    try:
        loader = _make_loader(yaml)(text)  # a SafeLoader
        node = loader.get_single_node()
        document = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise convert_yaml_error(error, source) from None
    if node is None or not isinstance(document, dict):
        raise SpecError(
            "a chart is a mapping with the key `states`",
            file=source,
            line=1,
            hint="start from a shipped chart: toolchart draw tool_loop --format yaml",
        )
    return document, map_source_lines(node, source)


# -- extending -----------------------------------------------------------------------------------


def _resolve_extends(
    document: dict[str, Any],
    source: str | None,
    lines: dict[SourcePosition, int],
    resolve: ChartResolver | None,
    depth: int,
) -> dict[str, Any]:
    """The document merged into the chart that it extends, recursively."""
    if "extends" not in document:
        return document
    base_name = document["extends"]
    line = lines.get(("extends",))
    if not isinstance(base_name, str) or resolve is None:
        raise SpecError(
            "`extends` takes the name or path of one chart", file=source, line=line, path="extends"
        )
    if depth >= _MAX_EXTENSION_DEPTH:
        raise SpecError(
            "charts extend each other in a circle or too deeply", file=source, line=line, path="extends"
        )
    base, base_lines = _read_document(resolve(base_name), base_name)
    base = _resolve_extends(base, base_name, base_lines, resolve, depth + 1)
    return _merge_mappings(base, {key: item for key, item in document.items() if key != "extends"})


def _merge_mappings(base: Mapping[str, Any], extension: Mapping[str, Any]) -> dict[str, Any]:
    """Merge an extension into its base: mappings key by key, rows by `_merge_rows`.

    Anything else is replaced, and a key that is set to null is removed.
    """
    result = dict(base)
    for key, item in extension.items():
        base_item = result.get(key)
        if item is None and key in result:
            del result[key]
        elif key == "transitions" and isinstance(base_item, list) and isinstance(item, list):
            result[key] = _merge_rows(base_item, item)
        elif isinstance(base_item, Mapping) and isinstance(item, Mapping):
            result[key] = _merge_mappings(base_item, item)
        else:
            result[key] = item
    return result


def _merge_rows(base: list[Any], extension: list[Any]) -> list[Any]:
    """Merge the rows of a state.

    A row with the event and the guards of a base row replaces it in place. Any other row is put before
    the base rows of its event, so that its guard is evaluated first.
    """
    result = list(base)
    for row in extension:
        replaced_index = next(
            (i for i, old in enumerate(result) if _get_trigger(old) == _get_trigger(row)), None
        )
        if replaced_index is not None:
            result[replaced_index] = row
            continue
        event = row.get("event") if isinstance(row, Mapping) else None
        same_event_indexes = [i for i, old in enumerate(result) if _get_event(old) == event and old in base]
        result.insert(same_event_indexes[0] if same_event_indexes else len(result), row)
    return result


def _get_event(row: Any) -> Any:
    return row.get("event") if isinstance(row, Mapping) else None


def _get_trigger(row: Any) -> Any:
    if not isinstance(row, Mapping):
        return row
    return row.get("event"), str(row.get("cond")), str(row.get("unless"))


def _map_resolved_lines(
    document: Mapping[str, Any], resolved_document: Mapping[str, Any], lines: Mapping[SourcePosition, int]
) -> dict[SourcePosition, int]:
    """The lines of a chart's own entries, by their positions in the resolved chart."""
    resolved_lines = (
        (_find_resolved_position(position, document, resolved_document), line)
        for position, line in lines.items()
    )
    return {position: line for position, line in resolved_lines if position is not None}


def _find_resolved_position(
    position: SourcePosition, base_item: Any, resolved_node: Any
) -> SourcePosition | None:
    """Where an entry of the document stands in the resolved chart: merging moves rows and nothing else."""
    resolved_position: list[str | int] = []
    for part in position:
        if isinstance(part, int) and isinstance(base_item, list) and isinstance(resolved_node, list):
            row = base_item[part]
            number = next((i for i, other in enumerate(resolved_node) if other is row), None)
            if number is None:
                return None
            resolved_position.append(number)
            base_item, resolved_node = row, resolved_node[number]
            continue
        resolved_position.append(part)
        base_item, resolved_node = _get_child(base_item, part), _get_child(resolved_node, part)
    return tuple(resolved_position)


def _get_child(node: Any, part: str | int) -> Any:
    if isinstance(node, list) and isinstance(part, int) and part < len(node):
        return node[part]
    return node.get(part) if isinstance(node, Mapping) else None
