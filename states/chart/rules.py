"""Rules for charts, checked when a chart is loaded. An error names the line that breaks the rule.

Two kinds of rules:

- A chart is pure. Whatever would compute, store, send, wait or print inside python-statemachine is
  refused.
- A chart means what it says. Whatever the library would accept and then treat as something else is
  refused: reserved names, repeated effects, rewritten guards.

Each rule has a regression test, so that an upgrade of the library shows which rule it affects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from toolchart.states.chart.assigned_results import check_assigned_results
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.effect_rules import check_effect_rules
from toolchart.states.chart.guards.parsing import check_guard
from toolchart.states.chart.guards.types import GuardProblem
from toolchart.states.chart.regions import check_regions
from toolchart.states.chart.source_positions import SourcePosition, locate_plugin_fault, raise_error, shorten
from toolchart.states.chart.structure import check_structure, iterate_rows, list_targets
from toolchart.states.errors import suggest_name
from toolchart.states.vocabulary import EFFECTS, EVENTS, list_chart_events

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
    """What a word means already, so that it cannot name a state; empty for a free one.

    Words of other packages count only where the chart asks for them or waits for them: what is installed
    beside does not change which charts are right, and a name of a state loads nothing.
    """
    if name in list_chart_events():
        return "an event"
    if chart.vocabulary.is_own_effect(name):
        return "an effect"
    if name in _list_library_names():
        return "in use"
    if name not in _list_mentions(chart):
        return ""
    return "an event" if name in EVENTS else "an effect" if name in EFFECTS else ""


def _list_mentions(chart: Chart) -> frozenset[str]:
    """The words in action lists and in the events of rows, without the events that the chart raises."""
    names: set[str] = set()
    for _, definition, position in walk_states(chart):
        for holder, holder_position in ((definition, position), *iterate_rows(definition, position)):
            for actions, _ in _iterate_action_lists(holder, holder_position):
                names.update(action for action in actions if isinstance(action, str))
            names.update(word.partition(".")[0] for word in str(holder.get("event") or "").split())
    return frozenset(names.difference(event for event, _ in find_raised_events(chart)))


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
        with locate_plugin_fault(chart, position):
            is_effect = chart.vocabulary.is_effect(name)
        if not is_effect:
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
    if chart.vocabulary.is_own_effect(event):
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
    with locate_plugin_fault(chart, position):
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
    known_events = (*chart.vocabulary.list_event_names(), *raised_events)
    raise_error(chart, position, f"nothing sends the event {event!r}", suggest_name(event, known_events))


# -- guards --------------------------------------------------------------------------------------


def _check_guard(
    chart: Chart, expression: str, position: SourcePosition, states: frozenset[str] | None = None
) -> None:
    try:
        with locate_plugin_fault(chart, position):
            check_guard(expression, states or _collect_state_names(chart), chart.vocabulary)
    except GuardProblem as problem:
        raise_error(chart, position, problem.message, problem.hint)


def _collect_state_names(chart: Chart) -> frozenset[str]:
    return frozenset(name for name, _, _ in walk_states(chart))
