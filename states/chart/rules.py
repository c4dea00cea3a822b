"""What a chart may not contain, each rule with the line that breaks it.

A chart is data and the core is pure, so whatever would compute, remember, send, wait or print inside
python-statemachine is refused here, when the chart is loaded; so is everything that the library would
accept in silence and then do something else with. Each rule has a regression test, so that an upgrade
of the library says which one it changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NoReturn

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.guards import guard_problem
from toolchart.states.chart.source_positions import Place, dotted
from toolchart.states.effects import EFFECTS
from toolchart.states.errors import SpecError
from toolchart.states.events import CHART_EVENTS
from toolchart.states.suggestions import nearest

_IMPURE = ("assign", "log", "foreach", "send", "cancel", "script")
"""Actions that compute, print, sleep or run code inside the machine."""

_IMPURE_KEYS = ("datamodel", "invoke", "donedata")

_TAKEN = frozenset(
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
"""Names that the library uses for itself; a state so called is lost in silence."""


def check_rules(chart: Chart) -> None:
    """Refuse a chart that is not pure, not in the vocabulary, or read differently than written.

    Raises:
        SpecError: the first rule that is broken, with file, line and key path.
    """
    _check_schema(chart)
    _check_top(chart)
    names = _check_state_names(chart)
    raised = frozenset(_raised_events(chart))
    for state, definition, place in walk_states(chart):
        _check_state(chart, definition, place)
        for row, row_place in _rows(definition, place):
            _check_row(chart, row, row_place, names, raised, state)


def _fail(chart: Chart, place: Place, message: str, hint: str | None = None) -> NoReturn:
    raise SpecError(
        message, file=chart.source, line=chart.line(place), path=dotted(place), hint=hint
    )


# -- the document --------------------------------------------------------------------------------


@cache
def _schema_validator() -> Any:
    from jsonschema import Draft202012Validator
    from statemachine.io.validation import load_schema

    return Draft202012Validator(load_schema())


def _check_schema(chart: Chart) -> None:
    for key in _IMPURE_KEYS:
        for place in _places_of(chart.document, key):
            _fail(
                chart,
                place,
                f"`{key}` keeps state inside the machine; a chart is pure",
                "facts come in with events; a chart only decides",
            )
    for key in _IMPURE:
        for place in _action_places(chart, key):
            _fail(
                chart,
                place,
                f"the action `{key}` is not pure",
                "name an effect instead: " + ", ".join(EFFECTS),
            )
    error = next(iter(sorted(_schema_validator().iter_errors(chart.document), key=_depth)), None)
    if error is not None:
        _fail(chart, tuple(error.absolute_path), _first_line(error.message))


def _depth(error: Any) -> int:
    return -len(error.absolute_path)


def _first_line(text: str) -> str:
    line = text.splitlines()[0]
    return line if len(line) < 200 else line[:197] + "..."


def _places_of(document: Any, key: str, place: Place = ()) -> Iterator[Place]:
    """Where a structural key stands; names of states are not structural."""
    if not isinstance(document, Mapping):
        return
    if key in document:
        yield (*place, key)
    for name, state in (document.get("states") or {}).items():
        yield from _places_of(state, key, (*place, "states", name))


def _action_places(chart: Chart, key: str) -> Iterator[Place]:
    for _, definition, place in walk_states(chart):
        if isinstance(definition, Mapping):
            for holder, holder_place in [(definition, place), *_rows(definition, place)]:
                for actions, where in _action_lists(holder, holder_place):
                    yield from _nested(actions, where, key)


def _nested(actions: Any, place: Place, key: str) -> Iterator[Place]:
    """Places of an action key anywhere below an action list, inside `if` too."""
    if isinstance(actions, list):
        for index, action in enumerate(actions):
            yield from _nested(action, (*place, index), key)
    elif isinstance(actions, Mapping):
        for name, body in actions.items():
            if name == key:
                yield (*place, name)
            elif name in ("if", "then", "elif", "else"):
                yield from _nested(body, (*place, name), key)


def _check_top(chart: Chart) -> None:
    states = chart.document.get("states")
    initial = [n for n, s in (states or {}).items() if isinstance(s, Mapping) and s.get("initial")]
    if len(initial) > 1:
        _fail(
            chart,
            ("states", initial[1], "initial"),
            f"two initial states, {initial[0]!r} and {initial[1]!r}",
            "keep one",
        )


# -- names ---------------------------------------------------------------------------------------


@cache
def _library_names() -> frozenset[str]:
    from statemachine import StateChart

    return frozenset(dir(StateChart)) | _TAKEN


def _check_state_names(chart: Chart) -> frozenset[str]:
    """Every state id: a plain name, once in the whole chart, and no name with another meaning."""
    seen: dict[str, Place] = {}
    for name, definition, place in walk_states(chart):
        _check_name(chart, name, place, seen)
        for history in definition.get("history") or {}:
            _check_name(chart, str(history), (*place, "history", history), seen)
    return frozenset(seen)


def _check_name(chart: Chart, name: str, place: Place, seen: dict[str, Place]) -> None:
    if name in seen:
        first = chart.line(seen[name])
        _fail(
            chart,
            place,
            f"the state {name!r} stands twice, first in line {first}",
            "a state's name is unique in the whole chart, at every level",
        )
    if not name.isidentifier() or name.startswith("_"):
        _fail(
            chart,
            place,
            f"{name!r} is not a name for a state",
            "use letters, digits and underscores, and begin with a letter",
        )
    if name in _library_names() or name in CHART_EVENTS or name in EFFECTS:
        kind = "an event" if name in CHART_EVENTS else "an effect" if name in EFFECTS else "in use"
        _fail(
            chart, place, f"{name!r} cannot name a state: the name is {kind}", "choose another name"
        )
    if name.startswith(("on_", "before_", "after_", "prepare_")):
        _fail(
            chart, place, f"{name!r} begins like a callback of the library", "choose another name"
        )
    seen[name] = place


# -- states and rows -----------------------------------------------------------------------------


def _rows(definition: Mapping[str, Any], place: Place) -> Iterator[tuple[dict[str, Any], Place]]:
    """Transitions of a state and of its history states."""
    for index, row in enumerate(definition.get("transitions") or []):
        yield row, (*place, "transitions", index)
    for name, history in (definition.get("history") or {}).items():
        for index, row in enumerate((history or {}).get("transitions") or []):
            yield row, (*place, "history", name, "transitions", index)


def _action_lists(holder: Mapping[str, Any], place: Place) -> Iterator[tuple[list[Any], Place]]:
    for slot in ("enter", "exit", "on", "before", "after"):
        if slot in holder:
            value = holder[slot]
            yield (value if isinstance(value, list) else [value]), (*place, slot)


def _check_state(chart: Chart, definition: Mapping[str, Any], place: Place) -> None:
    for actions, where in _action_lists(definition, place):
        _check_actions(chart, actions, where)


def _check_actions(chart: Chart, actions: list[Any], place: Place) -> None:
    names = [action for action in actions if isinstance(action, str)]
    for name in names:
        if name not in EFFECTS:
            _fail(chart, place, f"{name!r} is not an effect", nearest(name, EFFECTS))
        if names.count(name) > 1:
            _fail(
                chart,
                place,
                f"the effect {name!r} stands twice in one list",
                "the library would run it once; name it once",
            )
    for action in actions:
        for expression in _guards_inside(action):
            _check_guard(chart, expression, place)


def _guards_inside(action: Any) -> Iterator[str]:
    """Guards of an `if` action, nested ones included."""
    if isinstance(action, list):
        for entry in action:
            yield from _guards_inside(entry)
    elif isinstance(action, Mapping):
        for key, body in action.items():
            if key == "cond" and isinstance(body, str):
                yield body
            else:
                yield from _guards_inside(body)


def _check_row(
    chart: Chart,
    row: Mapping[str, Any],
    place: Place,
    names: frozenset[str],
    raised: frozenset[str],
    state: str,
) -> None:
    for event in str(row.get("event") or "").split():
        _check_event(chart, event, (*place, "event"), names, raised)
    for target in str(row.get("target") or "").split():
        if target not in names:
            _fail(
                chart,
                (*place, "target"),
                f"the state {target!r} does not exist",
                nearest(target, names),
            )
    for key in ("cond", "unless"):
        guards = row.get(key)
        for expression in guards if isinstance(guards, list) else [guards] if guards else []:
            _check_guard(chart, expression, (*place, key), names)
    for actions, where in _action_lists(row, place):
        _check_actions(chart, actions, where)
    if row.get("internal") and not _inside(chart, state, str(row.get("target") or "")):
        _fail(
            chart,
            (*place, "internal"),
            "an internal transition stays in its own state",
            "target the state itself or one inside it, or leave `internal` out",
        )
    if not row.get("event") and row.get("target") == state and not row.get("cond"):
        _fail(
            chart,
            place,
            "a transition without event and guard into its own state never rests",
            "give it an event or a guard",
        )


def _inside(chart: Chart, state: str, target: str) -> bool:
    """Whether the target is the state itself or below it."""
    place = next(place for name, _, place in walk_states(chart) if name == state)
    return any(
        name == target and where[: len(place)] == place for name, _, where in walk_states(chart)
    )


def _raised_events(chart: Chart) -> Iterator[str]:
    """Events that `raise` actions of the chart send to the chart itself."""

    def inside(action: Any) -> Iterator[str]:
        if isinstance(action, list):
            for entry in action:
                yield from inside(entry)
        elif isinstance(action, Mapping):
            for key, body in action.items():
                if key == "raise":
                    yield body if isinstance(body, str) else str(body.get("event"))
                else:
                    yield from inside(body)

    for _, definition, place in walk_states(chart):
        for holder in (definition, *(row for row, _ in _rows(definition, place))):
            for actions, _ in _action_lists(holder, ()):
                yield from inside(actions)


def _check_event(
    chart: Chart, event: str, place: Place, names: frozenset[str], raised: frozenset[str]
) -> None:
    if event == "*" or event in CHART_EVENTS or event in raised:
        return
    if event.startswith("done.state."):
        finished = event.removeprefix("done.state.")
        if finished not in names:
            _fail(chart, place, f"the state {finished!r} does not exist", nearest(finished, names))
        return
    known = (*CHART_EVENTS, *raised)
    _fail(chart, place, f"nothing sends the event {event!r}", nearest(event, known))


# -- guards --------------------------------------------------------------------------------------


def _check_guard(
    chart: Chart, expression: str, place: Place, states: frozenset[str] | None = None
) -> None:
    problem, hint = guard_problem(expression, states or _all_names(chart))
    if problem:
        _fail(chart, place, problem, hint)


def _all_names(chart: Chart) -> frozenset[str]:
    return frozenset(name for name, _, _ in walk_states(chart))
