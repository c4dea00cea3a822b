"""SCXML: what the library reads from our document is the same chart, in form and in what it does."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_charts import EVENTS, charts, worlds
from statemachine.io import model
from statemachine.io.scxml.reader import parse_scxml

from toolchart.specs.charts import load_chart, shipped
from toolchart.states.chart.loading import make_chart
from toolchart.states.diagram import draw
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.machine import Machine


def read_back(text: str) -> dict[str, Any]:
    """A native chart document of an SCXML text, as the library's own reader understands it."""
    definition = parse_scxml(text)
    first = set(definition.initial_states)
    states = {name: _state(body, first) for name, body in definition.states.items()}
    return {"name": definition.name, "states": states}


def _state(state: model.State, first: set[str]) -> dict[str, Any]:
    inner = {one.target for one in state.transitions if one.initial}
    return _present(
        initial=state.initial or state.id in first,
        final=state.final,
        parallel=state.parallel,
        enter=[_action(one) for block in state.onentry for one in block.actions],
        exit=[_action(one) for block in state.onexit for one in block.actions],
        transitions=[_row(one) for one in state.transitions if not one.initial],
        states={name: _state(child, first | inner) for name, child in state.states.items()},
        history={
            name: {"type": kept.type, "transitions": [_row(one) for one in kept.transitions]}
            for name, kept in state.history.items()
        },
    )


def _row(row: model.Transition) -> dict[str, Any]:
    actions = [_action(one) for one in row.on.actions] if row.on else []
    return _present(
        event=row.event, target=row.target, cond=row.cond, internal=row.internal, on=actions
    )


def _action(action: model.Action) -> Any:
    match action:
        case model.SendAction(event=str(event)):
            return event.removeprefix("effect.")
        case model.RaiseAction(event=event):
            return {"raise": event}
        case model.IfAction(branches=[first, *_]):
            return {"if": {"cond": first.cond, "then": [_action(one) for one in first.actions]}}
    raise AssertionError(f"no chart writes {action}")


def _present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def normal(document: dict[str, Any]) -> Any:
    """A document without its liberties: lists for single actions, guards as one, no empty keys."""
    return {name: _normal_state(body or {}, place) for place, (name, body) in _marked(document)}


def _marked(holder: dict[str, Any]) -> Any:
    states = holder.get("states") or {}
    marked = any((body or {}).get("initial") for body in states.values())
    return [(not marked and n == 0, item) for n, item in enumerate(states.items())]


def _normal_state(body: dict[str, Any], first: bool) -> Any:
    history = {
        name: (kept.get("type", "shallow"), [_normal_row(row) for row in kept["transitions"]])
        for name, kept in (body.get("history") or {}).items()
    }
    return (
        bool(body.get("initial") or first),
        bool(body.get("final")),
        bool(body.get("parallel")),
        _listed(body.get("enter")),
        _listed(body.get("exit")),
        [_normal_row(row) for row in body.get("transitions") or ()],
        history,
        {name: _normal_state(child or {}, place) for place, (name, child) in _marked(body)},
    )


def _normal_row(row: dict[str, Any]) -> Any:
    wanted = [f"({text})" for text in _listed(row.get("cond"))]
    refused = [f"not ({text})" for text in _listed(row.get("unless"))]
    guard = " and ".join(wanted + refused)
    if len(wanted) == 1 and not refused:
        guard = guard[1:-1]
    actions = [one for slot in ("before", "on", "after") for one in _listed(row.get(slot))]
    return row.get("event"), row.get("target"), guard, bool(row.get("internal")), actions


def _listed(value: Any) -> list[Any]:
    return [] if not value else value if isinstance(value, list) else [value]


def scxml(chart: Any) -> str:
    """The SCXML of a chart."""
    text = draw(chart, "scxml")
    assert isinstance(text, str)
    return text


def region_free(states: dict[str, Any]) -> dict[str, Any]:
    """Regions of a parallel state are all entered, and none of them is marked in SCXML."""
    return {
        name: (
            *body[:7],
            {
                child: (False, *inner[1:]) if body[2] else inner
                for child, inner in region_free(body[7]).items()
            },
        )
        for name, body in states.items()
    }


@pytest.mark.parametrize("name", shipped())
def test_shipped_charts_come_back_equal(name: str) -> None:
    """States, kinds, rows with events, guards and targets, effects, history: all come back."""
    chart = load_chart(name)
    assert normal(read_back(scxml(chart))) == normal(chart.document)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=charts())
def test_any_chart_comes_back_equal(document: dict[str, Any]) -> None:
    """Random charts, nested, parallel, with history, raised events and conditions, come back equal."""
    chart = make_chart(document)
    back = read_back(scxml(chart))
    assert region_free(normal(back)) == region_free(normal(chart.document))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=charts(), steps=st.lists(st.tuples(st.sampled_from(EVENTS), worlds), max_size=6))
def test_any_chart_comes_back_doing_the_same(
    document: dict[str, Any], steps: list[tuple[str, dict[str, Any]]]
) -> None:
    """What was read from SCXML takes the same events to the same states with the same effects."""
    chart = make_chart(document)
    told, back = walked(chart, steps), walked(make_chart(read_back(scxml(chart))), steps)
    assert told == back


def walked(chart: Any, steps: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Where each event leads, and what it asks for; a chart that spins ends there."""
    seen: list[Any] = []
    try:
        machine = Machine(chart)
        move = machine.start(defaultdict(int))
        for event, world in steps:
            seen.append((sorted(move.configuration.states), move.effects))
            move = machine.advance(move.configuration, event, defaultdict(int, world))
        seen.append((sorted(move.configuration.states), move.effects))
    except IllegalEvent as refusal:
        seen.append(refusal.event)
    except SpecError:
        seen.append("spins")
    return seen
