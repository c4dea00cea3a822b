"""What the core counts, and when it counts anew: attempts, iterations, denials, waits, warnings."""

from __future__ import annotations

from typing import Any

import pytest
from core_conversation import Conversation, fail
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolchart.engine.log.record import FORMAT
from toolchart.states.core.fact_rows import FactView
from toolchart.states.effects import CallModel, Wait
from toolchart.states.events import Elapsed, Forked, Replied, Settings, ToolFinished
from toolchart.states.messages import Reply, ToolCall


def read_fact(run: Conversation, name: str) -> Any:
    """The value of a fact now."""
    return FactView(run.snapshot)[name]


# -- waits ---------------------------------------------------------------------------------------


def read_wait(run: Conversation) -> float:
    """The seconds of the open timer."""
    (effect,) = run.find_open("wait")
    assert isinstance(effect, Wait)
    return effect.seconds


@given(st.lists(st.floats(0, 0.999999), min_size=1, max_size=6), st.floats(0.01, 5), st.floats(0.01, 40))
def test_a_wait_doubles_and_jitter_takes_up_to_a_quarter(
    jitters: list[float], first_s: float, most_s: float
) -> None:
    """The n-th wait is the first one doubled n - 1 times, at most `max_wait_s`, less its own jitter / 4."""
    run = Conversation("resilient", max_attempts=9, first_wait_s=first_s, max_wait_s=most_s)
    for number, jitter in enumerate(jitters):
        run.send(fail(retryable=True, jitter=jitter))
        pause = min(first_s * 2**number, most_s)
        assert read_wait(run) == round(pause * (1 - jitter / 4), 3)
        run.send(Elapsed())


def test_what_the_host_asks_for_has_no_jitter() -> None:
    """`retry_after_s` is waited as it is, and a longer one than `max_wait_s` is none to wait for."""
    run = Conversation("resilient", max_attempts=9, max_wait_s=30.0)
    for asked_s in (4.5, 0.2, 30.0):
        run.send(fail(retryable=True, retry_after_s=asked_s, jitter=0.7))
        assert read_wait(run) == asked_s
        run.send(Elapsed())
    run.send(fail(retryable=True, retry_after_s=30.1))
    assert run.snapshot.is_over


def test_a_reply_ends_the_row_of_failures() -> None:
    """After a reply the first failure counts as the first again: fact, wait and `max_attempts` begin anew."""
    run = Conversation("resilient", max_attempts=2, first_wait_s=1.0)
    run.send(fail(retryable=True))
    assert (read_fact(run, "attempt"), read_wait(run)) == (1, 1.0)
    run.send(Elapsed())
    run.call("a")
    assert read_fact(run, "attempt") == 0
    run.review()
    run.finish("a")
    run.send(fail(retryable=True))
    assert (read_fact(run, "attempt"), read_wait(run)) == (1, 1.0)


# -- calls ---------------------------------------------------------------------------------------


def test_denied_calls_are_those_that_a_rule_or_a_person_denied() -> None:
    """A call that does not fit its schema is no denied call; both kinds of denials count, each once."""
    run = Conversation("approval")
    run.call("a", "b", "c", "d", "e")
    run.review("run", b="invalid", c="denied", d="needs_approval", e="needs_approval")
    assert read_fact(run, "denied_calls") == 1
    run.decide("d", approved=False)
    assert (read_fact(run, "denied_calls"), read_fact(run, "approved_calls")) == (2, 0)
    run.decide("e", approved=True)
    assert (read_fact(run, "denied_calls"), read_fact(run, "approved_calls")) == (2, 1)


RUNS_WITH_A_DEADLINE: dict[str, Any] = {
    "asking": {
        "initial": True,
        "enter": "call_model",
        "transitions": [{"event": "replied", "target": "reviewing"}, {"event": "failed", "target": "ended"}],
    },
    "reviewing": {"enter": "review_calls", "transitions": [{"event": "reviewed", "target": "running"}]},
    "running": {
        "enter": ["run_tools", "wait"],
        "transitions": [
            {"event": "elapsed", "target": "asking"},
            {"event": "tool_finished", "target": "asking", "cond": "pending_calls == 0"},
            {"event": "tool_finished"},
        ],
    },
    "ended": {"final": True, "enter": "answer_with_error"},
}


def test_each_round_of_calls_counts_however_it_ends() -> None:
    """Calls that a timer interrupts are a round of the turn like those that end by themselves."""
    run = Conversation(RUNS_WITH_A_DEADLINE)
    for number in range(1, 4):
        run.call(f"a{number}", f"b{number}")
        run.review()
        (timer,) = run.find_open("wait")
        run.send(Elapsed(effect=timer.id))
        assert read_fact(run, "iteration") == number
    run.call("c")
    run.review()
    run.finish("c")
    assert read_fact(run, "iteration") == 4


def test_a_round_without_a_call_clears_the_calls_before() -> None:
    """Where there is nothing to run, the calls of the reply are done with, and the round counts."""
    states = {
        "running": {
            "initial": True,
            "enter": "run_tools",
            "transitions": [{"event": "tool_finished", "target": "asking"}],
        },
        "asking": {**RUNS_WITH_A_DEADLINE["asking"], "initial": False},
        "reviewing": {"enter": "review_calls", "transitions": [{"event": "reviewed", "target": "again"}]},
        "again": {"enter": "run_tools", "transitions": [{"event": "tool_finished", "target": "more"}]},
        "more": {"enter": "run_tools", "transitions": [{"event": "tool_finished", "target": "ended"}]},
        "ended": RUNS_WITH_A_DEADLINE["ended"],
    }
    run = Conversation(states)
    nothing = {"success": True, "result": None, "tool_name": "", "execution_time_ms": 0.0}
    run.send(ToolFinished(call_id="", outcome="skipped", result=nothing))
    assert read_fact(run, "iteration") == 1
    run.call("a")
    run.review()
    run.finish("a")
    assert (read_fact(run, "iteration"), read_fact(run, "tool_calls")) == (2, 1)
    run.send(ToolFinished(call_id="", outcome="skipped", result=nothing))
    assert (read_fact(run, "iteration"), len(run.snapshot.calls)) == (3, 0)


# -- words and settings --------------------------------------------------------------------------


def test_the_warnings_of_every_reply_are_kept() -> None:
    """What an adapter says about a reply stands in the snapshot, in order, for the whole turn."""
    run = Conversation("tool_loop")
    first = Reply(
        tool_calls=(ToolCall(id="a", name="look_up", arguments={}),),
        finish_reason="tool_calls",
        warnings=("one", "two"),
    )
    run.send(Replied(reply=first))
    run.review()
    run.finish("a")
    run.send(Replied(reply=Reply(content="Well.", finish_reason="stop", warnings=("three",))))
    assert [text for text in run.snapshot.warnings if text in ("one", "two", "three")] == [
        "one",
        "two",
        "three",
    ]


def test_a_fork_offers_the_tools_of_its_own_settings() -> None:
    """Settings that a fork brings decide what its requests offer, and not those of its parent."""
    run = Conversation("tool_loop")
    settings = run.snapshot.settings
    assert settings is not None
    assert [tool.name for tool in read_request(run).tools] == ["look_up"]
    narrow = replace(settings, tools=())
    run.send(make_fork(narrow))
    assert read_request(run).tools == ()
    run.say()
    run.send(make_fork(None))
    run.start()
    assert [tool.name for tool in read_request(run).tools] == ["look_up"]


def read_request(run: Conversation) -> Any:
    """The request of the open model call."""
    (effect,) = run.find_open("call_model")
    assert isinstance(effect, CallModel)
    return effect.request


def make_fork(settings: Settings | None) -> Forked:
    """Record 0 of a fork with these settings."""
    return Forked(format=FORMAT, conversation="f", parent="c", seq=1, head="h", settings=settings)


@pytest.mark.parametrize(
    ("choice", "later"),
    [
        ("required", None),
        ("look_up", None),
        ("none", "none"),
        ("auto", "auto"),
        ({"allowed": ["look_up"], "mode": "required"}, {"allowed": ["look_up"], "mode": "auto"}),
    ],
    ids=str,
)
def test_a_forced_choice_is_released_by_the_first_round(choice: Any, later: Any) -> None:
    """The first request has the choice as it is set; later ones keep what it allows, without its force."""
    run = Conversation("tool_loop", options={"tool_choice": choice, "seed": 7})
    assert read_request(run).options == {"tool_choice": choice, "seed": 7}
    run.call("a")
    run.review()
    run.finish("a")
    expected = {"seed": 7} if later is None else {"tool_choice": later, "seed": 7}
    assert read_request(run).options == expected
