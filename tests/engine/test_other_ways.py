"""What `diff` says of a conversation that would go another way: where, what happened, what would happen."""

from __future__ import annotations

import pytest
import yaml
from agents import make_engine

from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.rerouting import OtherWay, Rerouting
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import parse_chart

CHART = """
name: c
states:
  asking:
    initial: true
    enter: call_model
    after: {1h: broken}
    transitions:
      - {event: replied, target: done}
      - {event: failed, target: broken}
  done: {final: true, enter: answer}
  broken: {final: true, enter: answer_with_error}
"""

AGAIN = """
    transitions:
      - {event: replied, target: asking, cond: "replies < 2"}
"""


def write(*pairs: tuple[str, str]) -> str:
    """The chart with other texts in it."""
    text = CHART
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    return text


def build(*pairs: tuple[str, str]) -> Chart:
    """The same, loaded."""
    return parse_chart(write(*pairs))


def record(*texts: str) -> MemoryStore:
    """A conversation with one turn of each chart."""
    store = MemoryStore()
    for text in texts:
        with make_engine(["Hello."], log=store, chart=yaml.safe_load(text)) as engine:
            engine.run("go", conversation="c")
    return store


CASES = {
    "another state": (
        [("replied, target: done", "replied, target: broken")],
        (
            "path",
            2,
            "done, asks answer",
            "broken, asks answer_with_error, error: the model stopped with 'stop'",
        ),
    ),
    "no row": (
        [("event: replied", "event: reviewed")],
        ("path", 2, "done, asks answer, cancels 1", "asking, no row takes it"),
    ),
    "it stays": (
        [("replied, target: done", "replied")],
        ("path", 2, "done, asks answer, cancels 1", "asking"),
    ),
    "one more round": (
        [("\n    transitions:\n", AGAIN)],
        ("path", 2, "done, asks answer", "asking, asks call_model, timer_asking"),
    ),
    "no timer": (
        [("    after: {1h: broken}\n", "")],
        ("path", 1, "asking, asks call_model, timer_asking", "asking, asks call_model"),
    ),
    "a longer timer": (
        [("1h", "2h")],
        ("content", 1, "asking, asks call_model, timer_asking", "asking, asks call_model, timer_asking"),
    ),
    "the same by another name": ([("asking", "posing")], None),
    "a row that was not taken": ([("failed, target: broken", "failed, target: done")], None),
}
"""By name: what is replaced in the chart; then kind, record, what happened and what would happen."""


@pytest.mark.parametrize("case", CASES)
def test_the_other_way_is_told(case: str) -> None:
    """The first record that differs, with states, what is asked for, what is cancelled and how it ends."""
    pairs, told = CASES[case]
    store = record(CHART)
    renamed = {"asking": "posing", "timer_asking": "timer_posing"} if "name" in case else {}
    outcome = Rerouting(build(), build(*pairs), renamed=renamed).find_other_way(store, "c")
    if told is None:
        assert outcome is None
    else:
        assert isinstance(outcome, OtherWay)
        assert (outcome.kind, outcome.seq, outcome.old, outcome.new) == told


def test_states_that_ask_for_nothing_are_told_apart() -> None:
    """Another state is another way, also where both ask for nothing."""
    waits = "\n".join(
        f"  {name}: {{transitions: [{{event: user_said, target: done}}]}}" for name in ("one", "two")
    )
    rests = [("target: done", "target: one"), ("  done:", f"{waits}\n  done:")]
    store = record(write(*rests))
    others = [(before, after.replace("target: one", "target: two")) for before, after in rests]
    outcome = Rerouting(build(*rests), build(*others)).find_other_way(store, "c")
    assert isinstance(outcome, OtherWay)
    assert (outcome.kind, outcome.old[:3], outcome.new[:3]) == ("path", "one", "two")


def test_a_turn_of_a_third_chart_keeps_it() -> None:
    """Of a conversation that ran two charts, the turns of the one that is not compared go as they went."""
    store = record(write(("name: c", "name: third")), CHART)
    old, new = build(), build(("target: done", "target: broken"))
    outcome = Rerouting(old, new).find_other_way(store, "c")
    assert isinstance(outcome, OtherWay)
    assert (outcome.turn, outcome.state, outcome.event) == (2, "asking", "replied.call_model")
    assert Rerouting(build(("name: c", "name: nobody's")), new).find_other_way(store, "c") is None
