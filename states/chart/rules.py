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

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.guard_types import GuardProblem
from toolchart.states.chart.guards import check_guard
from toolchart.states.chart.regions import check_regions
from toolchart.states.chart.source_positions import SourcePosition, raise_error, shorten
from toolchart.states.chart.vocabulary import is_effect, is_event, list_effect_names, list_event_names
from toolchart.states.errors import suggest_name

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


def check_rules(chart: Chart) -> None:
    """Refuse a chart that is impure, names unknown things, or would be read differently than written.

    Raises:
        SpecError: the first rule that is broken, with file, line and key path.
    """
    _check_initial_state(chart)
    state_names = _check_state_names(chart)
    raised_events = frozenset(_find_raised_events(chart))
    for state, definition, position in walk_states(chart):
        _check_state(chart, definition, position)
        for row, row_position in _iterate_rows(definition, position):
            _check_row(chart, row, row_position, state_names, raised_events, state)
    check_regions(chart)


# -- the document --------------------------------------------------------------------------------


def _check_initial_state(chart: Chart) -> None:
    states = chart.document.get("states")
    initial = [n for n, s in (states or {}).items() if isinstance(s, Mapping) and s.get("initial")]
    if len(initial) > 1:
        raise_error(
            chart,
            ("states", initial[1], "initial"),
            f"two initial states, {initial[0]!r} and {initial[1]!r}",
            "keep one",
        )


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
            _check_name(chart, str(history), (*position, "history", history), first_positions)
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
    if not name.isidentifier() or name.startswith("_"):
        raise_error(
            chart,
            position,
            f"{name!r} is not a name for a state",
            "use letters, digits and underscores, and begin with a letter",
        )
    if name in _list_library_names() or is_event(name) or is_effect(name):
        meaning = "an event" if is_event(name) else "an effect" if is_effect(name) else "in use"
        raise_error(
            chart, position, f"{name!r} cannot name a state: the name is {meaning}", "choose another name"
        )
    if name.startswith(("on_", "before_", "after_", "prepare_")):
        raise_error(chart, position, f"{name!r} begins like a callback of the library", "choose another name")
    first_positions[name] = position


# -- states and rows -----------------------------------------------------------------------------


def _iterate_rows(
    definition: Mapping[str, Any], position: SourcePosition
) -> Iterator[tuple[dict[str, Any], SourcePosition]]:
    """Transitions of a state and of its history states."""
    for index, row in enumerate(definition.get("transitions") or []):
        yield row, (*position, "transitions", index)
    for name, history in (definition.get("history") or {}).items():
        for index, row in enumerate((history or {}).get("transitions") or []):
            yield row, (*position, "history", name, "transitions", index)


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
        if not is_effect(name):
            raise_error(
                chart, position, f"{name!r} is not an effect", suggest_name(name, list_effect_names())
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
    state: str,
) -> None:
    for event in str(row.get("event") or "").split():
        _check_event(chart, event, (*position, "event"), state_names, raised_events)
    for target in str(row.get("target") or "").split():
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
    if row.get("internal") and not _is_inside_state(chart, state, str(row.get("target") or "")):
        raise_error(
            chart,
            (*position, "internal"),
            "an internal transition stays in its own state",
            "target the state itself or one inside it, or leave `internal` out",
        )
    if not row.get("event") and row.get("target") == state and not row.get("cond"):
        raise_error(
            chart,
            position,
            "a transition without event and guard into its own state never rests",
            "give it an event or a guard",
        )


def _is_inside_state(chart: Chart, state: str, target: str) -> bool:
    """Whether the target is the state itself or a state inside it."""
    positions = {name: position for name, _, position in walk_states(chart)}
    outer, inner = positions[state], positions.get(target)
    return inner is not None and inner[: len(outer)] == outer


def _find_raised_events(chart: Chart) -> Iterator[str]:
    """Events that `raise` actions send to the chart itself."""

    def find_raises(action: Any) -> Iterator[str]:
        if isinstance(action, list):
            for entry in action:
                yield from find_raises(entry)
        elif isinstance(action, Mapping):
            for key, body in action.items():
                if key == "raise":
                    yield body if isinstance(body, str) else str(body.get("event"))
                else:
                    yield from find_raises(body)

    for _, definition, position in walk_states(chart):
        for holder in (definition, *(row for row, _ in _iterate_rows(definition, position))):
            for actions, _ in _iterate_action_lists(holder, ()):
                yield from find_raises(actions)


def _check_event(
    chart: Chart,
    event: str,
    position: SourcePosition,
    state_names: frozenset[str],
    raised_events: frozenset[str],
) -> None:
    if event == "*" or is_event(event) or event in raised_events:
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
    known_events = (*list_event_names(), *raised_events)
    raise_error(chart, position, f"nothing sends the event {event!r}", suggest_name(event, known_events))


# -- guards --------------------------------------------------------------------------------------


def _check_guard(
    chart: Chart, expression: str, position: SourcePosition, states: frozenset[str] | None = None
) -> None:
    try:
        check_guard(expression, states or _collect_state_names(chart))
    except GuardProblem as problem:
        raise_error(chart, position, problem.message, problem.hint)


def _collect_state_names(chart: Chart) -> frozenset[str]:
    return frozenset(name for name, _, _ in walk_states(chart))
