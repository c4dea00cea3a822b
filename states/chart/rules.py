"""Rules for charts, checked when a chart is loaded. An error names the line that breaks the rule.

Two kinds of rules:

- A chart is pure. Whatever would compute, store, send, wait or print inside python-statemachine is
  refused.
- A chart means what it says. Whatever the library would accept and then treat as something else is
  refused: reserved names, repeated effects, rewritten guards.

Each rule has a regression test, so that an upgrade of the library shows which rule it affects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from toolchart.states.chart.assigned_results import check_assigned_results
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.effect_rules import check_effect_rules
from toolchart.states.chart.guards import GuardProblem, check_guard
from toolchart.states.chart.structure import check_structure, iterate_rows, list_targets, map_state_positions
from toolchart.states.chart.yaml_document import SourcePosition, raise_error, shorten
from toolchart.states.errors import suggest_name
from toolchart.states.vocabulary import list_chart_events

_RESERVED_NAMES = frozenset(
    [
        "models",
        "states",
        "send",
        "configuration",
        "prepare",
        "history_values",
        "state_field",
        "states_map",
        "listeners",
        "current_state_value",
        "model",
        "name",
    ]
)
"""Names that the library uses itself. It drops a state with such a name without an error."""


_CALLBACK_PREFIXES = ("on_", "before_", "after_", "prepare_")

_MAX_NAME_CHARACTERS = 100


def check_rules(chart: Chart) -> None:
    """Refuse a chart that is impure, names unknown things, or would be read differently than written.

    Raises:
        SpecError: the first rule that is broken, with file, line and key path.
    """
    _check_effect_names(chart)
    state_names = _check_state_names(chart)
    raised_events = _check_raised_events(chart, state_names)
    for _, definition, position in walk_states(chart):
        _check_state(chart, definition, position)
        for row, row_position in iterate_rows(definition, position):
            _check_row(chart, row, row_position, state_names, raised_events)
    check_structure(chart)
    check_effect_rules(chart)
    check_regions(chart)
    check_assigned_results(chart)


# -- the document --------------------------------------------------------------------------------


# -- names ---------------------------------------------------------------------------------------


@cache
def _list_library_names() -> frozenset[str]:
    from statemachine import StateChart

    return frozenset(dir(StateChart)) | _RESERVED_NAMES


def _check_state_names(chart: Chart) -> frozenset[str]:
    """Check every state name: an identifier, unique in the chart, and without another meaning."""
    first_positions: dict[str, SourcePosition] = {}
    for name, definition, position in walk_states(chart):
        _check_name(chart, name, position, first_positions)
        for history in definition.get("history") or {}:
            _check_name(chart, history, (*position, "history", history), first_positions)
    return frozenset(first_positions)


def _check_name(
    chart: Chart, name: str, position: SourcePosition, first_positions: dict[str, SourcePosition]
) -> None:
    if name in first_positions:
        first_line = chart.find_line(first_positions[name])
        raise_error(
            chart,
            position,
            f"the state {name!r} occurs twice, first in line {first_line}",
            "a state's name is unique in the whole chart, at every level",
        )
    if not name.isidentifier() or name.startswith("_") or len(name) > _MAX_NAME_CHARACTERS:
        raise_error(
            chart,
            position,
            f"{shorten(name)!r} is not a name for a state",
            f"use up to {_MAX_NAME_CHARACTERS} letters, digits and underscores, and begin with a letter",
        )
    meaning = _find_meaning(chart, name)
    if meaning:
        raise_error(
            chart, position, f"{name!r} cannot name a state: the name is {meaning}", "choose another name"
        )
    if name.startswith(_CALLBACK_PREFIXES):
        raise_error(chart, position, f"{name!r} begins like a callback of the library", "choose another name")
    first_positions[name] = position


def _find_meaning(chart: Chart, name: str) -> str:
    """What a word means already, so that it cannot name a state; empty for a free one."""
    if name in list_chart_events():
        return "an event"
    if chart.vocabulary.is_effect(name):
        return "an effect"
    return "in use" if name in _list_library_names() else ""


def _check_effect_names(chart: Chart) -> None:
    """Refuse declared effects whose names the library reads as something else."""
    for name in chart.vocabulary.declared:
        if name in _list_library_names() or name in ("state", "In") or name.startswith(_CALLBACK_PREFIXES):
            raise_error(
                chart,
                ("effects", name),
                f"{name!r} cannot name an effect: the library uses the name",
                "choose another name, a verb",
            )


# -- states and rows -----------------------------------------------------------------------------


def _iterate_action_lists(
    holder: Mapping[str, Any], position: SourcePosition
) -> Iterator[tuple[list[Any], SourcePosition]]:
    for slot in ("enter", "exit", "on", "before", "after"):
        if slot in holder:
            value = holder[slot]
            yield (value if isinstance(value, list) else [value]), (*position, slot)


def _check_state(chart: Chart, definition: Mapping[str, Any], position: SourcePosition) -> None:
    for actions, actions_position in _iterate_action_lists(definition, position):
        _check_actions(chart, actions, actions_position)


def _check_actions(chart: Chart, actions: list[Any], position: SourcePosition) -> None:
    effect_names = [action for action in actions if isinstance(action, str)]
    for name in effect_names:
        if not chart.vocabulary.is_effect(name):
            raise_error(
                chart,
                position,
                f"{name!r} is not an effect",
                suggest_name(name, chart.vocabulary.list_effect_names()),
            )
        if effect_names.count(name) > 1:
            raise_error(
                chart,
                position,
                f"the effect {name!r} occurs twice in one list",
                "the library would run it once; name it once",
            )
    for action in actions:
        for expression in _find_action_guards(action):
            _check_guard(chart, expression, position)


def _find_action_guards(action: Any) -> Iterator[str]:
    """Guards of an `if` action, nested ones included."""
    if isinstance(action, list):
        for entry in action:
            yield from _find_action_guards(entry)
    elif isinstance(action, Mapping):
        for key, body in action.items():
            if key == "cond" and isinstance(body, str):
                yield body
            else:
                yield from _find_action_guards(body)


def _check_row(
    chart: Chart,
    row: Mapping[str, Any],
    position: SourcePosition,
    state_names: frozenset[str],
    raised_events: frozenset[str],
) -> None:
    for event in (row.get("event") or "").split():
        _check_event(chart, event, (*position, "event"), state_names, raised_events)
    for target in list_targets(row):
        if target not in state_names:
            raise_error(
                chart,
                (*position, "target"),
                f"the state {target!r} does not exist",
                suggest_name(target, state_names),
            )
    for key in ("cond", "unless"):
        guards = row.get(key)
        for expression in guards if isinstance(guards, list) else [guards] if guards else []:
            _check_guard(chart, expression, (*position, key), state_names)
    for actions, actions_position in _iterate_action_lists(row, position):
        _check_actions(chart, actions, actions_position)


def _check_raised_events(chart: Chart, state_names: frozenset[str]) -> frozenset[str]:
    """The events that `raise` actions send to the chart itself, each with a name that means only that."""
    events: set[str] = set()
    for event, position in find_raised_events(chart):
        problem = _find_raise_problem(chart, event, state_names)
        if problem:
            raise_error(
                chart, position, f"{shorten(event)!r} cannot be raised: {problem}", "choose another name"
            )
        events.add(event)
    return frozenset(events)


def _find_raise_problem(chart: Chart, event: str, state_names: frozenset[str]) -> str | None:
    if not all(part.isidentifier() for part in event.split(".")) or len(event) > _MAX_NAME_CHARACTERS:
        return "an event is one word of letters, digits and underscores, or several with dots"
    if event in state_names:
        return "the name is a state"
    if chart.vocabulary.is_effect(event):
        return "the name is an effect"
    reserved = (*_CALLBACK_PREFIXES, "_", "done.", "error.")
    if event in _list_library_names() or event.startswith(reserved):
        return "the name is in use"
    return None


def find_raised_events(chart: Chart) -> Iterator[tuple[str, SourcePosition]]:
    """The events that `raise` actions name, with the position of the action list."""

    def find_raises(action: Any) -> Iterator[str]:
        if isinstance(action, list):
            for entry in action:
                yield from find_raises(entry)
        elif isinstance(action, Mapping):
            for key, body in action.items():
                if key == "raise":
                    yield body if isinstance(body, str) else body["event"]
                else:
                    yield from find_raises(body)

    for _, definition, position in walk_states(chart):
        for holder, holder_position in ((definition, position), *iterate_rows(definition, position)):
            for actions, actions_position in _iterate_action_lists(holder, holder_position):
                for event in find_raises(actions):
                    yield event, actions_position


def _check_event(
    chart: Chart,
    event: str,
    position: SourcePosition,
    state_names: frozenset[str],
    raised_events: frozenset[str],
) -> None:
    if event == "*" or event in raised_events or chart.vocabulary.is_event(event):
        return
    if event.startswith("done.state."):
        finished_state = event.removeprefix("done.state.")
        if finished_state not in state_names:
            raise_error(
                chart,
                position,
                f"the state {finished_state!r} does not exist",
                suggest_name(finished_state, state_names),
            )
        return
    known_events = (*list_chart_events(), *raised_events)
    raise_error(chart, position, f"nothing sends the event {event!r}", suggest_name(event, known_events))


# -- guards --------------------------------------------------------------------------------------


def _check_guard(
    chart: Chart, expression: str, position: SourcePosition, states: frozenset[str] | None = None
) -> None:
    try:
        check_guard(expression, states or _collect_state_names(chart), chart.vocabulary)
    except GuardProblem as problem:
        raise_error(chart, position, problem.message, problem.hint)


def _collect_state_names(chart: Chart) -> frozenset[str]:
    return frozenset(name for name, _, _ in walk_states(chart))


# -- transitions of parallel regions that conflict -----------------------------------------------------
#
# Regions of a parallel state receive every event together. Where two of them take the same event and one
# leaves the parallel state, only one of the two can fire. SCXML prefers the region that stands first in the
# document, python-statemachine the one that was entered first. So a chart must not depend on it.

_EVENTLESS = ""
"""Stands for the first word of a row without an event."""


class _Row(msgspec.Struct, frozen=True):
    """One row with a target inside a region."""

    position: SourcePosition
    events: tuple[tuple[str, ...], ...]
    """The events that it takes, each split at its dots; one empty event for a row without."""
    leaves: bool
    """Whether it leaves the parallel state of the region."""


def check_regions(chart: Chart) -> None:
    """Refuse a chart in which two regions take the same event and one of the rows leaves both.

    Raises:
        SpecError: the first such pair, with the lines of both rows.
    """
    positions = map_state_positions(chart)
    for name, definition, position in walk_states(chart):
        if definition.get("parallel"):
            regions = [
                list(_iterate_rows(definition["states"], region, position, positions))
                for region in definition.get("states") or {}
            ]
            _check_parallel_state(chart, name, regions)


def _iterate_rows(
    states: Mapping[str, Any], name: str, parallel: SourcePosition, positions: Mapping[str, SourcePosition]
) -> Iterator[_Row]:
    """The rows that exit something, of a state and of the states inside it."""
    state = states[name]
    position = positions[name]
    rows: list[Mapping[str, Any]] = state.get("transitions") or []
    for index, row in enumerate(rows):
        targets = [positions[target] for target in list_targets(row)]
        events = [_split_event(event) for event in (row.get("event") or "").split()] or [()]
        stays = row.get("internal") and targets == [position] and not state.get("states")
        if targets and not stays and not row.get("initial"):
            yield _Row(
                (*position, "transitions", index),
                tuple(events),
                _leaves(position, targets, len(parallel) + 2, bool(row.get("internal"))),
            )
    for child in state.get("states") or {}:
        yield from _iterate_rows(state["states"], child, parallel, positions)


def _leaves(source: SourcePosition, targets: list[SourcePosition], depth: int, internal: bool) -> bool:
    """Whether a row exits every region: its domain, the innermost compound state around source and targets,
    is not inside one of them.

    A region is the domain only of rows between states strictly inside it. A row from the region itself
    leaves the parallel state too, except an internal one to states inside the region.

    Args:
        depth: length of the position of a region.
    """
    region = source[:depth]
    if len(source) == depth and not internal:
        return True
    return not all(len(target) > depth and target[:depth] == region for target in targets)


def _split_event(event: str) -> tuple[str, ...]:
    return tuple(event.removesuffix(".*").removesuffix(".").split("."))


def _check_parallel_state(chart: Chart, name: str, regions: list[list[_Row]]) -> None:
    """Compare each row that leaves the parallel state with the rows of the other regions."""
    rows_by_word: dict[str, list[tuple[int, _Row]]] = defaultdict(list)
    for index, rows in enumerate(regions):
        for row in rows:
            for word in {event[0] if event else _EVENTLESS for event in row.events}:
                rows_by_word[word].append((index, row))
    for index, rows in enumerate(regions):
        for row in rows:
            if not row.leaves:
                continue
            for other_index, other in _list_candidates(row, rows_by_word):
                if other_index != index and _share_event(row, other):
                    _refuse_pair(chart, name, row, other)


def _list_candidates(row: _Row, rows_by_word: Mapping[str, list[tuple[int, _Row]]]) -> list[tuple[int, _Row]]:
    """Rows that may share an event with this one, by the first word of their events."""
    words = {event[0] if event else _EVENTLESS for event in row.events}
    if "*" in words:
        return [entry for entries in rows_by_word.values() for entry in entries]
    return [entry for word in (*words, "*") for entry in rows_by_word.get(word, ())]


def _share_event(row: _Row, other: _Row) -> bool:
    return any(_overlap(a, b) for a in row.events for b in other.events)


def _overlap(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether some event matches both: one is the beginning of the other, or `*`. Rows without an event
    match no event, only each other's turn."""
    if not a or not b:
        return a == b
    length = min(len(a), len(b))
    return a == ("*",) or b == ("*",) or a[:length] == b[:length]


def _refuse_pair(chart: Chart, name: str, row: _Row, other: _Row) -> None:
    first, second = sorted((row, other), key=lambda entry: chart.find_line(entry.position) or 0)
    first_line = chart.find_line(first.position)
    line = f" in line {first_line}" if first_line else ""
    state, other_state = _get_state(second), _get_state(first)
    raise_error(
        chart,
        second.position,
        f"this transition of {state!r} and one of {other_state!r}{line} take the same event in two regions "
        f"of {name!r}, and one of them leaves {name!r}: only one can fire",
        f"put a transition that leaves {name!r} on {name!r} itself, or give the two different events",
    )


def _get_state(row: _Row) -> str:
    return str(row.position[-3])
