"""`after:` on a state: a timer of the state and a row for its end, written as one key.

    waiting:
      enter: ask_editor
      after: {24h: expired}

becomes native YAML: the state asks for a declared effect `timer_waiting` (`{wait: 24h}`) beside its own, and
has the row `{event: elapsed.timer_waiting, target: expired}`. The timer ends with its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.states.chart.source_positions import LocatedDocument, SourcePosition, raise_error
from toolchart.states.flows.times import TIME_HINT, is_time

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
    return float(text) if text.replace(".", "", 1).isdigit() else text


def _choose_name(state: str, timers: Mapping[str, Any]) -> str:
    """A name for a timer of a state that no effect has."""
    number, name = 2, f"timer_{state}"
    while name in timers:
        name, number = f"timer_{state}_{number}", number + 1
    return name
