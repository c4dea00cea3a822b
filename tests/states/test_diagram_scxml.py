"""SCXML: what the library reads from our document is the same chart, in form and in what it does."""

from __future__ import annotations

import html
from collections import defaultdict
from typing import Any

import pytest
from effort import choose_count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_charts import EVENTS, charts, worlds
from statemachine.io import model
from statemachine.io.evaluators import normalize_cond
from statemachine.io.scxml.reader import parse_scxml

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.diagram import draw
from toolchart.states.diagram.scxml import write_ecmascript
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.machine import Machine


def read_back(text: str) -> dict[str, Any]:
    """A native chart document of an SCXML text, as the library's own reader understands it."""
    definition = parse_scxml(text)
    initial_names = set(definition.initial_states)
    states = {name: _convert_state(body, initial_names) for name, body in definition.states.items()}
    return {"name": definition.name, "states": states}


def _convert_state(state: model.State, initial_names: set[str]) -> dict[str, Any]:
    child_state = {item.target for item in state.transitions if item.initial}
    return _drop_empty_values(
        initial=state.initial or state.id in initial_names,
        final=state.final,
        parallel=state.parallel,
        enter=[_convert_action(item) for block in state.onentry for item in block.actions],
        exit=[_convert_action(item) for block in state.onexit for item in block.actions],
        transitions=[_convert_row(item) for item in state.transitions if not item.initial],
        states={
            name: _convert_state(child, initial_names | child_state) for name, child in state.states.items()
        },
        history={
            name: {
                "type": history_state.type,
                "transitions": [_convert_row(item) for item in history_state.transitions],
            }
            for name, history_state in state.history.items()
        },
    )


def _convert_row(row: model.Transition) -> dict[str, Any]:
    actions = [_convert_action(item) for item in row.on.actions] if row.on else []
    return _drop_empty_values(
        event=row.event, target=row.target, cond=_convert_guard(row.cond), internal=row.internal, on=actions
    )


def _convert_guard(text: str | None) -> str | None:
    """A condition as the library turns it into Python."""
    return normalize_cond(text) if text else None


def _convert_action(action: model.Action) -> Any:
    match action:
        case model.SendAction(event=str(event)):
            return event.removeprefix("effect.")
        case model.RaiseAction(event=event):
            return {"raise": event}
        case model.IfAction(branches=[initial_names, *_]):
            return {
                "if": {
                    "cond": _convert_guard(initial_names.cond),
                    "then": [_convert_action(item) for item in initial_names.actions],
                }
            }
    raise AssertionError(f"no chart writes {action}")


def _drop_empty_values(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


def normalise_document(document: dict[str, Any]) -> Any:
    """A chart document in normal form: actions as lists, guards as one expression, no empty keys."""
    return {
        name: _normalise_state(body or {}, is_initial)
        for is_initial, (name, body) in _mark_initial_states(document)
    }


def _mark_initial_states(holder: dict[str, Any]) -> Any:
    states = holder.get("states") or {}
    has_initial = any((body or {}).get("initial") for body in states.values())
    return [(not has_initial and n == 0, item) for n, item in enumerate(states.items())]


def _normalise_state(body: dict[str, Any], initial_names: bool) -> Any:
    history = {
        name: (
            history_state.get("type", "shallow"),
            [_normalise_row(row) for row in history_state["transitions"]],
        )
        for name, history_state in (body.get("history") or {}).items()
    }
    return (
        bool(body.get("initial") or initial_names),
        bool(body.get("final")),
        bool(body.get("parallel")),
        _to_list(body.get("enter")),
        _to_list(body.get("exit")),
        [_normalise_row(row) for row in body.get("transitions") or ()],
        history,
        {
            name: _normalise_state(child or {}, is_initial)
            for is_initial, (name, child) in _mark_initial_states(body)
        },
    )


def _normalise_row(row: dict[str, Any]) -> Any:
    conditions = [f"({text})" for text in _to_list(row.get("cond"))]
    conditions += [f"(not ({text}))" for text in _to_list(row.get("unless"))]
    guard = write_ecmascript(" and ".join(conditions)) if conditions else ""
    items = [item for slot in ("before", "on", "after") for item in _to_list(row.get(slot))]
    actions = [_normalise_action(item) for item in items]
    return row.get("event"), row.get("target"), guard, bool(row.get("internal")), actions


def _normalise_action(action: Any) -> Any:
    if isinstance(action, dict) and "if" in action:
        return {"if": {**action["if"], "cond": write_ecmascript(action["if"]["cond"])}}
    return action


def _to_list(value: Any) -> list[Any]:
    return [] if not value else value if isinstance(value, list) else [value]


def scxml(chart: Any) -> str:
    """The SCXML of a chart."""
    text = draw(chart, "scxml")
    assert isinstance(text, str)
    return text


def ignore_initial_regions(states: dict[str, Any]) -> dict[str, Any]:
    """The same states without initial marks on parallel regions, because SCXML has none there."""
    return {
        name: (
            *body[:7],
            {
                child: (False, *child_state[1:]) if body[2] else child_state
                for child, child_state in ignore_initial_regions(body[7]).items()
            },
        )
        for name, body in states.items()
    }


@pytest.mark.parametrize(
    "text", ["a +", "a in b", "a ** 2", "~a", "a[0]", "f'{a}'", "f()", "f(a)", "(" * 300, "a) or (b"]
)
def test_a_text_that_is_no_guard_stays_as_it_is(text: str) -> None:
    """The chart of a log, whose rules are not checked, is drawn: what cannot be read is not translated."""
    document = {"states": {"begin": {"transitions": [{"event": "failed", "cond": [text, "has_content"]}]}}}
    chart = Chart(name="recorded", document=document)
    assert write_ecmascript(text) == text
    assert f'cond="({html.escape(text, quote=False)}) &amp;&amp; (has_content)"' in scxml(chart)


@pytest.mark.parametrize("name", list_shipped_charts())
def test_shipped_charts_come_back_equal(name: str) -> None:
    """A shipped chart that is written as SCXML and read back is equal to the original."""
    chart = load_chart(name)
    assert normalise_document(read_back(scxml(chart))) == normalise_document(chart.document)


@settings(
    max_examples=choose_count(short=40, long=150),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(document=charts())
def test_any_chart_comes_back_equal(document: dict[str, Any]) -> None:
    """A random chart that is written as SCXML and read back is equal to the original."""
    chart = make_chart(document)
    chart_from_scxml = read_back(scxml(chart))
    assert ignore_initial_regions(normalise_document(chart_from_scxml)) == ignore_initial_regions(
        normalise_document(chart.document)
    )


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@given(document=charts(), steps=st.lists(st.tuples(st.sampled_from(EVENTS), worlds), max_size=6))
def test_any_chart_comes_back_doing_the_same(
    document: dict[str, Any], steps: list[tuple[str, dict[str, Any]]]
) -> None:
    """A chart that was read back from SCXML makes the same moves as the original."""
    chart = make_chart(document)
    moves, chart_from_scxml = (
        walk_chart(chart, steps),
        walk_chart(make_chart(read_back(scxml(chart))), steps),
    )
    assert moves == chart_from_scxml


def walk_chart(chart: Any, steps: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """States and effects after each event, up to the first error."""
    outcomes: list[Any] = []
    try:
        machine = Machine(chart)
        move = machine.start(defaultdict(int))
        for event, world in steps:
            outcomes.append((sorted(move.configuration.states), move.effects))
            move = machine.advance(move.configuration, event, defaultdict(int, world))
        outcomes.append((sorted(move.configuration.states), move.effects))
    except IllegalEvent as refusal:
        outcomes.append(refusal.event)
    except SpecError:
        outcomes.append("spins")
    return outcomes
