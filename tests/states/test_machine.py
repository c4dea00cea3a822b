"""The machine: the table gives the library's answers, and stays small."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import subprocess
import sys
import textwrap
from collections import defaultdict
from typing import Any

import pytest
from statemachine import StateChart

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import parse_chart
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.machine import Machine, get_machine


def facts(**values: Any) -> defaultdict[str, Any]:
    """Facts that are zero unless they are set."""
    return defaultdict(int, values)


def machine(text: str) -> Machine:
    """The machine of a chart written in a test."""
    return Machine(parse_chart(textwrap.dedent(text), source="test.yaml"))


def test_walks_the_six_states() -> None:
    """The tool loop walks its states by the finish reason: prompting, awaiting_tools, executing, finished."""
    loop = Machine(load_chart("tool_loop"))
    world = facts(finish_reason="tool_calls", max_iterations=5)
    seen = [loop.start(world)]
    for event in ("replied", "reviewed", "tool_finished"):
        seen.append(loop.advance(seen[-1].configuration, event, world))
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


def test_a_move_has_its_reason() -> None:
    """A move lists every guard that was evaluated, in order, with its truth."""
    loop = Machine(load_chart("tool_loop"))
    start = loop.start(facts()).configuration
    move = loop.advance(start, "replied", facts(finish_reason="length"))
    assert move.guards == {
        "finish_reason == 'tool_calls'": False,
        "finish_reason == 'stop'": False,
        "finish_reason == 'paused' and replies < max_iterations": False,
        "finish_reason == 'paused'": False,
    }
    assert move.configuration.label == "error"
    assert [(transition.source, transition.targets, transition.row) for transition in move.fired] == [
        ("prompting", ("error",), 4)
    ]


def test_an_event_without_a_transition_is_illegal() -> None:
    """The error names state, event, the false guards and the legal events."""
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
    assert caught.value.false_conditions == ("iteration > 2",)
    assert caught.value.legal == ("replied", "failed")
    final_configuration = chart.advance(start, "failed", facts()).configuration
    with pytest.raises(IllegalEvent, match="final"):
        chart.advance(final_configuration, "failed", facts())


def test_asks_the_library_once() -> None:
    """A repeated question is answered from the table, without the library."""
    loop = Machine(load_chart("tool_loop"))
    start = loop.start(facts()).configuration
    first = loop.advance(start, "replied", facts(finish_reason="stop"))
    loop._run_library = None  # asking the library fails from now on
    assert loop.advance(start, "replied", facts(finish_reason="stop")) is first
    with pytest.raises(TypeError):
        loop.advance(start, "replied", facts(finish_reason="length"))


def test_one_machine_per_chart() -> None:
    """Equal charts share one machine, because a class of the library has 100 kB."""
    assert get_machine(load_chart("tool_loop")) is get_machine(load_chart("tool_loop"))
    assert get_machine(load_chart("tool_loop")) is not get_machine(load_chart("full"))


def test_keeps_a_stated_number_of_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any number of charts the newest machines are kept and those in use; their classes go too."""
    monkeypatch.setattr("toolchart.states.machine.MAX_MACHINES", 8)
    in_use = get_machine(load_numbered_chart(0))
    before = count_machine_classes()
    for number in range(1, 60):
        get_machine(load_numbered_chart(number))
    gc.collect()
    kept = [value for value in gc.get_objects() if type(value) is Machine]
    numbered = {value.chart.name for value in kept if value.chart.name.startswith("numbered_")}
    assert numbered == {"numbered_0", *(f"numbered_{number}" for number in range(52, 60))}
    assert count_machine_classes() <= before + 8
    assert get_machine(load_numbered_chart(0)) is in_use


def load_numbered_chart(number: int) -> Chart:
    """A chart that no other number has."""
    text = load_chart("tool_loop").to_yaml().replace("name: tool_loop", f"name: numbered_{number}")
    return parse_chart(text, source=f"{number}.yaml")


def count_machine_classes() -> int:
    """How many classes of the library's machines there are."""
    gc.collect()
    return sum(isinstance(value, type) and issubclass(value, StateChart) for value in gc.get_objects())


def test_stores_a_stated_number_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine forgets its answers when it has as many as are allowed; it gives the same ones again."""
    monkeypatch.setattr("toolchart.states.machine.MAX_ANSWERS", 3)
    loop = Machine(load_chart("tool_loop"))
    start = loop.start(facts()).configuration
    worlds = [
        facts(finish_reason=word) for word in ("stop", "length", "tool_calls", "content_filter", "stop")
    ]
    answers = [loop.advance(start, "replied", world) for world in worlds]
    assert loop.table_size <= 3
    assert answers[0] == answers[-1]


def test_works_in_greenlets() -> None:
    """Under gevent, greenlets share an engine and run turns at the same time; a second engine is refused
    clearly while one runs."""
    if importlib.util.find_spec("gevent") is None:
        pytest.skip("gevent is not installed")
    done = subprocess.run([sys.executable, "-c", GREENLETS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["5 answers", "let all greenlets use one engine", ""]


GREENLETS = """
from gevent import monkey
monkey.patch_all()
import gevent, time
from toolchart import Engine, ToolchartError

def look(place: str) -> str:
    "Look."
    time.sleep(0.01)  # another greenlet goes on
    return place

call = {"tool_calls": [{"name": "look", "arguments": {"place": "here"}}]}
llm = {"provider": "scripted", "model": "m", "replies": [call, "done"] * 10}
spec = {"chart": "tool_loop", "llms": {"m": llm}, "responses": [{"llm": "m"}]}
refusals = []

def open_another():
    try:
        with Engine(spec, log="memory") as other:
            other.run("hello")
    except ToolchartError as error:
        refusals.append(str(error))

with Engine(spec, log="memory", functions=[look]) as engine:
    turns = [gevent.spawn(engine.run, f"hello {i}") for i in range(5)]
    turns[0].join(0.02)
    gevent.spawn(open_another).join(10)
    gevent.joinall(turns, timeout=60)
    print(sum(turn.value.ok for turn in turns), "answers")
print(refusals[0].splitlines()[1].split(";")[0].strip())
"""


@pytest.mark.parametrize("name", list_shipped_charts())
def test_tables_of_shipped_charts_stay_small(name: str) -> None:
    """The table of a shipped chart never has more than a few dozen answers."""
    chart = Machine(load_chart(name))
    frontier, seen = [chart.start(facts()).configuration], set()
    worlds = [
        facts(
            finish_reason=word,
            pending_calls=pending,
            iteration=iteration,
            max_iterations=2,
            undecided_calls=undecided_count,
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
        for undecided_count in (0, 1)
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
    passing_count = name in ("planner", "compacting")  # a state that is left at once
    assert len(seen) == sum(1 for _ in chart._states_by_id) - passing_count
    assert chart.table_size <= 64


def test_history_and_parallel_regions_survive_a_restart() -> None:
    """Each step restores an instance, and order, history and termination are carried over."""
    chart = machine(
        """
        name: nest
        states:
          outer:
            initial: true
            states:
              first: {initial: true, transitions: [{event: replied, target: second}]}
              second: {}
            history: {memory: {type: deep, transitions: [{target: first}]}}
            transitions: [{event: failed, target: aside}]
          aside:
            transitions:
              - {event: elapsed, target: memory}
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
        ("elapsed", "second"),
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


@pytest.mark.parametrize("name", list_shipped_charts())
def test_an_instance_that_is_used_again_remembers_nothing(name: str) -> None:
    """Whatever one machine was asked before, also about a turn that ended, it answers like a new one."""
    chart, world = load_chart(name), facts(finish_reason="stop", max_iterations=5, max_attempts=3)
    loop = Machine(chart)
    configurations = [loop.start(world).configuration]
    for configuration in configurations:
        for event in loop.legal_events(configuration):
            move = loop.advance(configuration, event, world)
            assert move == Machine(chart).advance(configuration, event, world)
            if move.configuration not in configurations:
                configurations.append(move.configuration)
    assert any(configuration.terminated for configuration in configurations)
    assert len(loop._idle_instances) == 1


def test_a_step_that_never_rests_spoils_no_other() -> None:
    """After an event that ends in an endless loop, the machine answers other events as before."""
    chart = machine(
        """
        name: spin_later
        states:
          calm:
            initial: true
            transitions: [{event: failed, target: one}, {event: replied, target: over}]
          one: {transitions: [{target: two}]}
          two: {transitions: [{target: one}]}
          over: {final: true}
        """
    )
    start = chart.start(facts()).configuration
    for _ in range(2):
        with pytest.raises(SpecError, match="never rests"):
            chart.advance(start, "failed", facts())
    assert chart.advance(start, "replied", facts()).configuration.label == "over"


def test_a_saved_configuration_is_checked() -> None:
    """A saved configuration is restored, unless it names a state that the chart does not have."""
    loop = Machine(load_chart("planner"))
    here = loop.start(facts()).configuration
    plain = {"states": list(here.states), "history": [], "terminated": False}
    assert loop.restore_configuration(plain) == here
    with pytest.raises(SpecError, match="no state 'elsewhere'"):
        loop.restore_configuration({"states": ["elsewhere"]})
