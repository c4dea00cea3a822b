"""The machine: the table answers as python-statemachine does, quickly, and keeps nothing back."""

from __future__ import annotations

import contextlib
import textwrap
from collections import defaultdict
from typing import Any

import pytest

from toolchart.specs.charts import load_chart, shipped
from toolchart.states.chart.loading import parse_chart
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.machine import Machine, machine_of


def facts(**given: Any) -> defaultdict[str, Any]:
    """Facts with zero for everything that is not given."""
    return defaultdict(int, given)


def machine(text: str) -> Machine:
    """The machine of a chart written in a test."""
    return Machine(parse_chart(textwrap.dedent(text), source="test.yaml"))


def test_walks_the_six_states() -> None:
    """The card: prompting, awaiting_tools, executing, prompting, finished, by the finish reason."""
    loop = Machine(load_chart("tool_loop"))
    now = facts(finish_reason="tool_calls", max_iterations=5)
    seen = [loop.start(now)]
    for event in ("replied", "reviewed", "tool_finished"):
        seen.append(loop.advance(seen[-1].configuration, event, now))
    seen.append(loop.advance(seen[-1].configuration, "replied", facts(finish_reason="stop")))
    assert [move.configuration.label for move in seen] == [
        "prompting",
        "awaiting_tools",
        "executing",
        "prompting",
        "finished",
    ]
    assert [move.effects for move in seen] == [
        ("call_model",),
        ("review_calls",),
        ("run_tools",),
        ("call_model",),
        ("answer",),
    ]
    assert seen[-1].configuration.terminated


def test_says_why() -> None:
    """A move names every guard that was asked, in order, with its truth."""
    loop = Machine(load_chart("tool_loop"))
    start = loop.start(facts()).configuration
    move = loop.advance(start, "replied", facts(finish_reason="length"))
    assert move.guards == {
        "finish_reason == 'tool_calls'": False,
        "finish_reason == 'stop'": False,
    }
    assert move.configuration.label == "error"
    assert [(taken.source, taken.targets, taken.row) for taken in move.taken] == [
        ("prompting", ("error",), 2)
    ]


def test_an_event_that_nothing_takes_is_illegal() -> None:
    """The error names state, event, the guards that were false and the events that would be legal."""
    chart = machine(
        """
        name: gate
        states:
          waiting_room:
            initial: true
            transitions:
              - {event: replied, target: done_room, cond: "iteration > 2"}
              - {event: failed, target: done_room}
          done_room: {final: true}
        """
    )
    start = chart.start(facts()).configuration
    with pytest.raises(IllegalEvent) as caught:
        chart.advance(start, "replied", facts(iteration=1))
    assert caught.value.state == "waiting_room"
    assert caught.value.refused == ("iteration > 2",)
    assert caught.value.legal == ("replied", "failed")
    ended = chart.advance(start, "failed", facts()).configuration
    with pytest.raises(IllegalEvent, match="final"):
        chart.advance(ended, "failed", facts())


def test_asks_the_library_once() -> None:
    """The same question is answered from the table: the library is not started again."""
    loop = Machine(load_chart("tool_loop"))
    start = loop.start(facts()).configuration
    first = loop.advance(start, "replied", facts(finish_reason="stop"))
    loop._class = None  # whoever asks the library now fails
    assert loop.advance(start, "replied", facts(finish_reason="stop")) is first
    with pytest.raises(TypeError):
        loop.advance(start, "replied", facts(finish_reason="length"))


def test_one_machine_per_chart() -> None:
    """Equal charts share one machine, since the library never frees a class."""
    assert machine_of(load_chart("tool_loop")) is machine_of(load_chart("tool_loop"))
    assert machine_of(load_chart("tool_loop")) is not machine_of(load_chart("full"))


@pytest.mark.parametrize("name", shipped())
def test_tables_of_shipped_charts_stay_small(name: str) -> None:
    """However often a shipped chart is asked, its table has a few dozen answers."""
    chart = Machine(load_chart(name))
    frontier, seen = [chart.start(facts()).configuration], set()
    worlds = [
        facts(
            finish_reason=word,
            pending_calls=pending,
            iteration=iteration,
            max_iterations=2,
            undecided_calls=undecided,
            retryable=retry,
            max_attempts=1,
            tools_sent=True,
            error_kind="bad_request",
            budget_spent=spent,
            max_tool_only_streak=1,
            max_repeats=1,
            repeated_calls=repeats,
        )
        for word in ("stop", "tool_calls", "length")
        for pending in (0, 1)
        for iteration in (0, 2)
        for undecided in (0, 1)
        for retry in (False, True)
        for spent in (False, True)
        for repeats in (0, 2)
    ]
    while frontier:
        here = frontier.pop()
        if here in seen:
            continue
        seen.add(here)
        for event in chart.legal_events(here):
            for world in worlds:
                with contextlib.suppress(IllegalEvent):
                    frontier.append(chart.advance(here, event, world).configuration)
    assert len(seen) == sum(1 for _ in chart._by_id) - (name == "planner")
    assert chart.table_size <= 64


def test_history_and_parallel_regions_survive_a_restart() -> None:
    """Each step starts a fresh machine, and order, history and termination come along."""
    chart = machine(
        """
        name: nest
        states:
          outer:
            initial: true
            states:
              first: {initial: true, transitions: [{event: replied, target: second}]}
              second: {}
            history: {memory: {type: deep}}
            transitions: [{event: failed, target: aside}]
          aside:
            transitions:
              - {event: waited, target: memory}
              - {event: cancelled, target: both}
          both:
            parallel: true
            states:
              left:
                states:
                  left_open: {initial: true, transitions: [{event: replied, target: left_shut}]}
                  left_shut: {final: true}
              right:
                states:
                  right_open: {initial: true, transitions: [{event: failed, target: right_shut}]}
                  right_shut: {final: true}
            transitions: [{event: done.state.both, target: over}]
          over: {final: true, enter: answer}
        """
    )
    here = chart.start(facts()).configuration
    for event, label in (
        ("replied", "second"),
        ("failed", "aside"),
        ("waited", "second"),
        ("failed", "aside"),
        ("cancelled", "left_open+right_open"),
        ("failed", "left_open+right_shut"),
        ("replied", "over"),
    ):
        move = chart.advance(here, event, facts())
        here = move.configuration
        assert here.label == label
    assert here.terminated
    assert move.effects == ("answer",)


def test_a_chart_that_never_rests_is_refused() -> None:
    """Eventless transitions that chase each other end in an error, not in a hung process."""
    with pytest.raises(SpecError, match="never rests"):
        machine(
            """
            name: spin
            states:
              one: {initial: true, transitions: [{target: two}]}
              two: {transitions: [{target: one}]}
            """
        )


def test_a_saved_configuration_is_checked() -> None:
    """A configuration that names states the chart does not have is refused; a true one comes back."""
    loop = Machine(load_chart("planner"))
    here = loop.start(facts()).configuration
    plain = {"states": list(here.states), "history": [], "terminated": False}
    assert loop.restore(plain) == here
    with pytest.raises(SpecError, match="no state 'elsewhere'"):
        loop.restore({"states": ["elsewhere"]})
