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
from typing import Any, NoReturn

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.guards import find_guard_problem
from toolchart.states.chart.source_positions import SourcePosition, format_key_path
from toolchart.states.effects import EFFECTS
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.events import CHART_EVENTS

_IMPURE_ACTIONS = ("assign", "log", "foreach", "send", "cancel", "script")
"""Actions that compute, print, sleep or run code inside the machine."""

_IMPURE_KEYS = ("datamodel", "invoke", "donedata")

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
    _check_schema(chart)
    _check_initial_state(chart)
    state_names = _check_state_names(chart)
    raised_events = frozenset(_find_raised_events(chart))
    for state, definition, position in walk_states(chart):
        _check_state(chart, definition, position)
        for row, row_position in _iterate_rows(definition, position):
            _check_row(chart, row, row_position, state_names, raised_events, state)


def _raise_error(chart: Chart, position: SourcePosition, message: str, hint: str | None = None) -> NoReturn:
    raise SpecError(
        message, file=chart.source, line=chart.find_line(position), path=format_key_path(position), hint=hint
    )


# -- the document --------------------------------------------------------------------------------


@cache
def _build_schema_validator() -> Any:
    from jsonschema import Draft202012Validator
    from statemachine.io.validation import load_schema

    return Draft202012Validator(load_schema())


def _check_schema(chart: Chart) -> None:
    for key in _IMPURE_KEYS:
        for position in _find_key_positions(chart.document, key):
            _raise_error(
                chart,
                position,
                f"`{key}` keeps state inside the machine; a chart is pure",
                "facts come in with events; a chart only decides",
            )
    for key in _IMPURE_ACTIONS:
        for position in _find_action_positions(chart, key):
            _raise_error(
                chart,
                position,
                f"the action `{key}` is not pure",
                "name an effect instead: " + ", ".join(EFFECTS),
            )
    error = next(
        iter(sorted(_build_schema_validator().iter_errors(chart.document), key=_sort_deepest_first)), None
    )
    if error is not None:
        _raise_error(chart, tuple(error.absolute_path), _shorten_message(error.message))


def _sort_deepest_first(error: Any) -> int:
    return -len(error.absolute_path)


def _shorten_message(text: str) -> str:
    line = text.splitlines()[0]
    return line if len(line) < 200 else line[:197] + "..."


def _find_key_positions(document: Any, key: str, position: SourcePosition = ()) -> Iterator[SourcePosition]:
    """Where a structural key stands. A state with the name of the key does not count."""
    if not isinstance(document, Mapping):
        return
    if key in document:
        yield (*position, key)
    for name, state in (document.get("states") or {}).items():
        yield from _find_key_positions(state, key, (*position, "states", name))


def _find_action_positions(chart: Chart, key: str) -> Iterator[SourcePosition]:
    for _, definition, position in walk_states(chart):
        if isinstance(definition, Mapping):
            for holder, holder_position in [(definition, position), *_iterate_rows(definition, position)]:
                for actions, actions_position in _iterate_action_lists(holder, holder_position):
                    yield from _find_nested_actions(actions, actions_position, key)


def _find_nested_actions(actions: Any, position: SourcePosition, key: str) -> Iterator[SourcePosition]:
    """Positions of an action key anywhere below an action list, inside `if` too."""
    if isinstance(actions, list):
        for index, action in enumerate(actions):
            yield from _find_nested_actions(action, (*position, index), key)
    elif isinstance(actions, Mapping):
        for name, body in actions.items():
            if name == key:
                yield (*position, name)
            elif name in ("if", "then", "elif", "else"):
                yield from _find_nested_actions(body, (*position, name), key)


def _check_initial_state(chart: Chart) -> None:
    states = chart.document.get("states")
    initial = [n for n, s in (states or {}).items() if isinstance(s, Mapping) and s.get("initial")]
    if len(initial) > 1:
        _raise_error(
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
        _raise_error(
            chart,
            position,
            f"the state {name!r} occurs twice, first in line {first_line}",
            "a state's name is unique in the whole chart, at every level",
        )
    if not name.isidentifier() or name.startswith("_"):
        _raise_error(
            chart,
            position,
            f"{name!r} is not a name for a state",
            "use letters, digits and underscores, and begin with a letter",
        )
    if name in _list_library_names() or name in CHART_EVENTS or name in EFFECTS:
        meaning = "an event" if name in CHART_EVENTS else "an effect" if name in EFFECTS else "in use"
        _raise_error(
            chart, position, f"{name!r} cannot name a state: the name is {meaning}", "choose another name"
        )
    if name.startswith(("on_", "before_", "after_", "prepare_")):
        _raise_error(
            chart, position, f"{name!r} begins like a callback of the library", "choose another name"
        )
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
        if name not in EFFECTS:
            _raise_error(chart, position, f"{name!r} is not an effect", suggest_name(name, EFFECTS))
        if effect_names.count(name) > 1:
            _raise_error(
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
            _raise_error(
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
        _raise_error(
            chart,
            (*position, "internal"),
            "an internal transition stays in its own state",
            "target the state itself or one inside it, or leave `internal` out",
        )
    if not row.get("event") and row.get("target") == state and not row.get("cond"):
        _raise_error(
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
    if event == "*" or event in CHART_EVENTS or event in raised_events:
        return
    if event.startswith("done.state."):
        finished_state = event.removeprefix("done.state.")
        if finished_state not in state_names:
            _raise_error(
                chart,
                position,
                f"the state {finished_state!r} does not exist",
                suggest_name(finished_state, state_names),
            )
        return
    known_events = (*CHART_EVENTS, *raised_events)
    _raise_error(chart, position, f"nothing sends the event {event!r}", suggest_name(event, known_events))


# -- guards --------------------------------------------------------------------------------------


def _check_guard(
    chart: Chart, expression: str, position: SourcePosition, states: frozenset[str] | None = None
) -> None:
    problem, hint = find_guard_problem(expression, states or _collect_state_names(chart))
    if problem:
        _raise_error(chart, position, problem, hint)


def _collect_state_names(chart: Chart) -> frozenset[str]:
    return frozenset(name for name, _, _ in walk_states(chart))
