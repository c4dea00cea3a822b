"""Load a chart: read its YAML, resolve `extends`, and check its rules.

The format is python-statemachine's own, so its loader, its JSON Schema and its diagrams work on a
resolved chart unchanged. Toolchart adds one key, `extends: NAME`: it takes another chart and adds or
replaces states and rows. The key is resolved here. Logs, proofs and diagrams see the resolved chart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from toolchart.states.canonical_json import encode_canonical_text, is_whole_number
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.rules import check_rules
from toolchart.states.chart.shape import check_shape, normalise_flags
from toolchart.states.chart.vocabulary import GENERAL_VOCABULARY, Vocabulary, read_declarations
from toolchart.states.chart.yaml_document import (
    CHART_LIMITS,
    Document,
    LocatedDocument,
    MisreadWords,
    SourcePosition,
    copy_plain_data,
    format_key_path,
    raise_error,
    read_yaml,
)
from toolchart.states.errors import SpecError
from toolchart.states.flows.times import TIME_HINT, is_time

__all__ = [
    "Chart",
    "SourcePosition",
    "format_key_path",
    "make_chart",
    "parse_chart",
    "parse_recorded_chart",
    "read_chart_document",
    "walk_states",
]

ChartResolver = Callable[[str], str]
"""Returns the YAML text of the chart that `extends` names; raises SpecError for an unknown name."""

EffectDeclarations = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns the declared effects that are in force, from those of a chart: a spec overrides and adds."""

_MAX_EXTENSION_DEPTH = 8


def parse_chart(
    text: str,
    *,
    source: str | None = None,
    resolve: ChartResolver | None = None,
    effects: EffectDeclarations | None = None,
    is_recorded: bool = False,
) -> Chart:
    """The chart of a YAML text.

    Args:
        effects: returns the effects that are in force, from those that the chart declares.
        is_recorded: whether Toolchart wrote the text, so that nothing in it lacks quotes.

    Raises:
        SpecError: the text is not YAML, not a chart, or breaks a rule; with file and line.
    """
    return _build_chart(_read_document(text, source, is_recorded), resolve, effects)


def parse_recorded_chart(text: str, effects: Mapping[str, Any] | None = None) -> Chart:
    """The resolved chart of a log, for reading. Its rules may be another release's and are not checked.

    Args:
        effects: the effects that the log says it declares.

    Raises:
        SpecError: the text is not a chart at all.
    """
    document = _read_document(text, "the log's chart", is_recorded=True)
    if not isinstance(document.data.get("states"), dict):
        raise SpecError("a chart is a mapping with the key `states`", file=document.source)
    return Chart(
        name=str(document.data.get("name") or "chart"),
        document=document.data,
        source=document.source,
        lines=document.lines,
        digest=_compute_digest(document.data, effects or {}),
        effects=effects or {},
        vocabulary=_read_recorded_vocabulary(effects, document),
    )


def _read_recorded_vocabulary(effects: Mapping[str, Any] | None, document: Document) -> Vocabulary:
    """The vocabulary of a recorded chart; that of no chart where this release does not know its effects."""
    try:
        return read_declarations(effects, document)
    except SpecError:
        return GENERAL_VOCABULARY


def read_chart_document(
    chart: str | Mapping[str, Any], *, source: str | None = None, resolve: ChartResolver | None = None
) -> dict[str, Any]:
    """The data of a chart, `extends` resolved: nothing that it names is loaded, and no rule is checked.

    Args:
        chart: its YAML text, or the parsed document.

    Raises:
        SpecError: it is no mapping of plain data, or extends a chart that there is not.
    """
    document = _read_document(chart, source) if isinstance(chart, str) else _copy_document(chart, source)
    return _resolve_extends(document, resolve, 0)


def make_chart(
    document: Mapping[str, Any],
    *,
    source: str | None = None,
    lines: Mapping[SourcePosition, int] | None = None,
    resolve: ChartResolver | None = None,
    effects: EffectDeclarations | None = None,
) -> Chart:
    """The chart of a parsed document, for instance one that stands inline in a spec.

    Args:
        effects: returns the effects that are in force, from those that the chart declares.

    Raises:
        SpecError: the document is not a chart or breaks a rule.
    """
    return _build_chart(_copy_document(document, source, lines), resolve, effects)


def _build_chart(
    document: Document, resolve: ChartResolver | None, declare: EffectDeclarations | None
) -> Chart:
    data = _resolve_extends(document, resolve, 0)
    lines = _map_resolved_lines(document.data, data, document.lines)
    resolved_document = Document(data=data, source=document.source, lines=lines)
    native_document = {key: item for key, item in data.items() if key != "effects"}
    declared = data.get("effects") or {}
    if not isinstance(declared, dict):
        raise_error(resolved_document, ("effects",), "`effects` is a mapping of names to declarations")
    native_document, effects = expand_deadlines(native_document, declared, resolved_document)
    if declare is not None:
        effects = declare(effects)
    vocabulary = read_declarations(effects, resolved_document)
    check_shape(native_document, resolved_document, vocabulary)
    normalise_flags(native_document)
    chart = Chart(
        name=native_document.get("name") or document.source or "chart",
        document=native_document,
        source=document.source,
        lines=lines,
        digest=_compute_digest(native_document, effects),
        effects=effects,
        vocabulary=vocabulary,
    )
    check_rules(chart)
    return chart


def _compute_digest(document: Mapping[str, Any], effects: Mapping[str, Any]) -> str:
    # Not canonical JSON, because the order of states has a meaning.
    digest = hashlib.sha256(orjson.dumps(document))
    if effects:
        digest.update(encode_canonical_text(effects).encode())
    return digest.hexdigest()


# -- reading -------------------------------------------------------------------------------------


def _read_document(text: str, source: str | None, is_recorded: bool = False) -> Document:
    misread_words: MisreadWords = "keep" if is_recorded else "refuse"
    document = read_yaml(text, source, limits=CHART_LIMITS, misread_words=misread_words)
    if not isinstance(document.data, dict):
        raise SpecError(
            "a chart is a mapping with the key `states`",
            file=source,
            line=1,
            hint="start from a shipped chart: toolchart draw tool_loop --format yaml",
        )
    return _copy_document(document.data, source, document.lines)


def _copy_document(
    data: Any, source: str | None, lines: Mapping[SourcePosition, int] | None = None
) -> Document:
    """A document of plain data that nobody else has.

    Raises:
        SpecError: it is more, or something else, than a chart may hold.
    """
    document = Document(data=data, source=source, lines=lines or {})
    return replace(document, data=copy_plain_data(data, document))


# -- extending -----------------------------------------------------------------------------------


def _resolve_extends(document: Document, resolve: ChartResolver | None, depth: int) -> dict[str, Any]:
    """The data of the document merged into the chart that it extends, recursively."""
    data: dict[str, Any] = document.data
    if "extends" not in data:
        return data
    base_name = data["extends"]
    if not isinstance(base_name, str) or resolve is None:
        raise_error(document, ("extends",), "`extends` takes the name or path of one chart")
    if depth >= _MAX_EXTENSION_DEPTH:
        raise_error(document, ("extends",), "charts extend each other in a circle or too deeply")
    base = _resolve_extends(_read_base(base_name, document, resolve), resolve, depth + 1)
    return _merge_mappings(base, {key: item for key, item in data.items() if key != "extends"})


def _read_base(name: str, document: Document, resolve: ChartResolver) -> Document:
    """The chart that `extends` names; if there is none, the error names the line of `extends`."""
    try:
        text = resolve(name)
    except SpecError as error:
        raise_error(document, ("extends",), error.message, error.hint)
    return _read_document(text, name)


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
    triggers = [_get_trigger(row) for row in base]
    is_base_row = [True] * len(base)
    for row in extension:
        trigger, event = _get_trigger(row), _get_event(row)
        if trigger in triggers:
            index = triggers.index(trigger)
            result[index], is_base_row[index] = row, False
            continue
        same_event = (i for i, old in enumerate(result) if is_base_row[i] and _get_event(old) == event)
        index = next(same_event, len(result))
        result.insert(index, row)
        triggers.insert(index, trigger)
        is_base_row.insert(index, False)
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
    if resolved_document is document:
        return dict(lines)
    indexes: dict[int, dict[int, int]] = {}
    resolved_lines = (
        (_find_resolved_position(position, document, resolved_document, indexes), line)
        for position, line in lines.items()
    )
    return {position: line for position, line in resolved_lines if position is not None}


def _find_resolved_position(
    position: SourcePosition, base_item: Any, resolved_node: Any, indexes: dict[int, dict[int, int]]
) -> SourcePosition | None:
    """Where an entry of the document stands in the resolved chart: merging moves rows and nothing else.

    Args:
        indexes: for each list of the resolved chart the index of each of its rows, by identity; filled here.
    """
    resolved_position: list[str | int] = []
    for part in position:
        if isinstance(part, int) and isinstance(base_item, list) and isinstance(resolved_node, list):
            row = base_item[part]
            if id(resolved_node) not in indexes:
                indexes[id(resolved_node)] = {id(other): i for i, other in enumerate(resolved_node)}
            number = indexes[id(resolved_node)].get(id(row))
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


# -- `after` on a state: a timer and a row for its end, written as one key ----------------------------
#
#     waiting:
#       enter: ask_editor
#       after: {24h: expired}
#
# becomes native YAML: the state asks for a declared effect `timer_waiting` (`{wait: 24h}`) beside its own,
# and has the row `{event: elapsed.timer_waiting, target: expired}`. The timer ends with its state.

KEY = "after"


def expand_deadlines(
    document: Mapping[str, Any], effects: Mapping[str, Any], located: LocatedDocument
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document without `after` in its states, and the effects with the timers in its place.

    Raises:
        SpecError: an `after` is no mapping of times to targets.
    """
    timers = dict(effects)
    states = document.get("states")
    if not isinstance(states, Mapping):
        return dict(document), timers
    return {**document, "states": _expand_states(states, timers, located, ("states",))}, timers


def _expand_states(
    states: Mapping[str, Any], timers: dict[str, Any], located: LocatedDocument, position: SourcePosition
) -> dict[str, Any]:
    expanded: dict[str, Any] = {}
    for name, body in states.items():
        state_position = (*position, name)
        if isinstance(body, Mapping) and isinstance(body.get("states"), Mapping):
            inner = _expand_states(body["states"], timers, located, (*state_position, "states"))
            body = {**body, "states": inner}
        if isinstance(body, Mapping) and KEY in body:
            body = _expand_state(str(name), body, timers, located, (*state_position, KEY))
        expanded[name] = body
    return expanded


def _expand_state(
    name: str,
    body: Mapping[str, Any],
    timers: dict[str, Any],
    located: LocatedDocument,
    position: SourcePosition,
) -> dict[str, Any]:
    deadlines = body[KEY]
    if not isinstance(deadlines, Mapping) or not deadlines:
        raise_error(
            located,
            position,
            "`after` is a mapping of times to targets",
            "for instance `after: {24h: expired}`",
        )
    enter = body.get("enter", [])
    actions = list(enter) if isinstance(enter, list) else [enter]
    rows = list(body.get("transitions") or []) if isinstance(body.get("transitions", []), list) else []
    for time, row in deadlines.items():
        if not is_time(_read_number(time)):
            raise_error(located, (*position, time), f"{time!r} is no time", TIME_HINT)
        timer = _choose_name(name, timers)
        timers[timer] = {"wait": {"time": _read_number(time)}}
        actions.append(timer)
        rows.append({"event": f"elapsed.{timer}", **(row if isinstance(row, Mapping) else {"target": row})})
    rest = {key: item for key, item in body.items() if key != KEY}
    return {**rest, "enter": actions[0] if len(actions) == 1 else actions, "transitions": rows}


def _read_number(time: Any) -> Any:
    """A time as it was written: keys of a mapping are texts, so a number of seconds is one too."""
    text = str(time)
    return float(text) if is_whole_number(text.replace(".", "", 1)) else text


def _choose_name(state: str, timers: Mapping[str, Any]) -> str:
    """A name for a timer of a state that no effect has."""
    number, name = 2, f"timer_{state}"
    while name in timers:
        name, number = f"timer_{state}_{number}", number + 1
    return name
