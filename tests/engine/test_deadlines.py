"""Timers in the real engine: durable, fired once, cancelled with their state, beside people who decide."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from agents import make_engine, make_spec, reply_with_calls
from paying_agent import wait_until

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.testing import TurnableClock

END = {"finished": {"final": True, "enter": "answer"}, "error": {"final": True, "enter": "answer_with_error"}}

APPROVAL = {
    "name": "approval_with_deadline",
    "states": {
        "prompting": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "reviewing", "cond": "finish_reason == 'tool_calls'"},
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        "reviewing": {
            "enter": "review_calls",
            "transitions": [
                {"event": "reviewed", "target": "awaiting_approval", "cond": "undecided_calls > 0"},
                {"event": "reviewed", "target": "executing"},
            ],
        },
        "awaiting_approval": {
            "enter": "ask_approval",
            "after": {"24h": "executing"},
            "transitions": [{"event": "decided", "target": "executing", "cond": "undecided_calls == 0"}],
        },
        "executing": {
            "enter": "run_tools",
            "transitions": [{"event": "tool_finished", "target": "prompting", "cond": "pending_calls == 0"}],
        },
        **END,
    },
}
"""The tool loop in which a person has a day to decide."""

RISKY = {"registry": [{"name": "echo", "requires_approval": True}]}


def make_approval_engine(replies: list[Any], **changes: Any) -> Engine:
    """Make an engine of the chart with a deadline; each call needs approval."""
    return make_engine(replies, chart=APPROVAL, tools=RISKY, **changes)


def list_types(engine: Engine) -> list[str]:
    """The types of a conversation's events, in order."""
    return [orjson.loads(line)["event"]["type"] for line in engine.store.read_lines("c")]


def read_records(engine: Engine) -> list[dict[str, Any]]:
    """The records of a conversation as JSON data."""
    return [orjson.loads(line) for line in engine.store.read_lines("c")]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("decision", [True, False, "yes"])
def test_an_approver_may_be_async_or_not_and_returns_a_decision(is_async: bool, decision: Any) -> None:
    """Both kinds of function decide, by true and false as well; one that returns something else is told what
    to return, and the call stays undecided."""

    async def decide_later(call: ToolCall) -> Any:
        return decision

    approver = decide_later if is_async else lambda call: decision
    engine = make_approval_engine([TWO_CALLS, "done"], approver=approver)
    if decision == "yes":
        with pytest.raises(SpecError, match="the approver returned str"):
            engine.run("go", conversation="c")
        assert "decided" not in list_types(engine)
    else:
        result = engine.run("go", conversation="c")
        assert [call.outcome for call in result.tool_calls] == ["succeeded" if decision else "denied"] * 2


TWO_CALLS = reply_with_calls(("echo", {"text": "a"}), ("echo", {"text": "b"}))


# -- approval with a deadline ------------------------------------------------------------------------


def test_a_turn_that_waits_for_a_person_returns_with_the_time_of_its_deadline() -> None:
    """With nobody to ask, the turn returns at once with the open calls and `due`, instead of blocking."""
    clock = TurnableClock("2027-01-04T09:00:00Z")
    engine = make_approval_engine([TWO_CALLS], clock=clock)
    result = engine.run("go", conversation="c")
    assert (result.state, result.is_over) == ("awaiting_approval", False)
    assert [call["tool"] for call in result.pending_approvals] == ["echo", "echo"]
    assert result.due == "2027-01-05T09:00:00.000Z"
    assert result.to_dict()["due"] == result.due
    (ask,) = [ask for record in read_records(engine) for ask in record.get("asks", ()) if "due" in ask]
    assert ask["due"] == result.due


def test_resuming_before_the_deadline_writes_nothing() -> None:
    """`resume` of a conversation that only a person or time can continue changes nothing in the log."""
    clock = TurnableClock()
    engine = make_approval_engine([TWO_CALLS], clock=clock)
    first = engine.run("go", conversation="c")
    before = list(engine.store.read_lines("c"))
    clock.advance("23h")
    assert engine.conversation("c").resume() == first
    assert list(engine.store.read_lines("c")) == before


def test_after_the_deadline_undecided_calls_expire() -> None:
    """An overdue timer fires at resume, once; calls that nobody decided end as `expired`, and the model hears
    so."""
    clock = TurnableClock()
    engine = make_approval_engine([TWO_CALLS, "without it"], clock=clock)
    engine.run("go", conversation="c")
    clock.advance("24h")
    result = engine.conversation("c").resume()
    assert (result.content, result.is_over, result.due) == ("without it", True, None)
    assert [call["result"]["success"] for call in result.tool_calls] == [False, False]
    outcomes = [r["event"]["outcome"] for r in read_records(engine) if r["event"]["type"] == "tool_finished"]
    assert outcomes == ["expired", "expired"]
    assert list_types(engine)[4:6] == ["resumed", "elapsed"]
    clock.advance("24h")
    assert engine.conversation("c").resume().content == "without it"
    assert list_types(engine).count("elapsed") == 1
    list(replay_conversation(engine.store, "c"))


def test_two_calls_are_answered_out_of_order() -> None:
    """Two calls of one reply wait for approval; the second is decided first, in another process, and
    each gets its own outcome."""
    clock, store = TurnableClock(), MemoryStore()
    first = make_approval_engine([TWO_CALLS], clock=clock, log=store).run("go", conversation="c")
    one, two = (call["id"] for call in first.pending_approvals)
    result = (
        make_approval_engine([], clock=clock, log=store)
        .conversation("c")
        .resume(Decided(call_id=two, approved=False, reason="not this one"))
    )
    assert [call["id"] for call in result.pending_approvals] == [one]
    assert result.due == first.due
    engine = make_approval_engine(["done"], clock=clock, log=store)
    result = engine.conversation("c").resume(Decided(call_id=one, approved=True))
    assert result.content == "done"
    assert [call["result"]["success"] for call in result.tool_calls] == [True, False]
    request = engine.hosts.providers["model"].requests[-1]  # type: ignore[attr-defined]
    tool_messages = [message for message in request.messages if message.role == "tool"]
    assert [message.tool_call_id for message in tool_messages] == [one, two]
    assert "not this one" in (tool_messages[1].content or "")
    list(replay_conversation(store, "c"))


def test_a_decision_after_the_deadline_is_recorded_as_late_and_changes_nothing() -> None:
    """The deadline comes first, whoever resumes: a late approval never runs a call."""
    clock = TurnableClock()
    engine = make_approval_engine([reply_with_calls(("echo", {"text": "a"})), "too late"], clock=clock)
    call_id = engine.run("go", conversation="c").pending_approvals[0]["id"]
    clock.advance("25h")
    result = engine.conversation("c").resume(Decided(call_id=call_id, approved=True))
    assert result.content == "too late"
    assert "after its deadline" in result.warnings[-1]
    assert [call["result"]["success"] for call in result.tool_calls] == [False]
    assert [r["event"]["type"] for r in read_records(engine) if r.get("late")] == ["decided"]
    list(replay_conversation(engine.store, "c"))


async def test_the_deadline_cancels_the_prompt_of_an_approver() -> None:
    """With an approver at work the timer runs beside it; when it runs out, the prompt is cancelled and
    the turn goes on."""
    clock, log = TurnableClock(), []
    is_asked = asyncio.Event()

    async def ask_for_ever(call: ToolCall) -> Decided | None:
        is_asked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            log.append(f"cancelled {call.name}")
            raise
        return None

    engine = make_approval_engine([TWO_CALLS, "without it"], clock=clock, approver=ask_for_ever)
    turn = asyncio.create_task(engine.arun("go", conversation="c"))
    await is_asked.wait()
    clock.advance("1d")
    assert (await turn).content == "without it"
    assert log == ["cancelled echo"]
    list(replay_conversation(engine.store, "c"))


def test_a_message_to_a_turn_whose_deadline_has_passed_begins_the_next_turn() -> None:
    """S5.5: the deadline of the approval comes first. The turn that it ends is over, so the message that came
    after it begins a turn of its own."""
    clock = TurnableClock("2027-01-04T09:00:00Z")
    engine = make_approval_engine([TWO_CALLS, "without it", "hello"], clock=clock)
    engine.run("go", conversation="c")
    clock.advance("24h")
    result = engine.run("hello?", conversation="c")
    assert (result.content, result.is_over, result.waiting_messages) == ("hello", True, [])
    types = list_types(engine)
    assert types.index("elapsed") < len(types) - 1 - types[::-1].index("turn_started")
    list(replay_conversation(engine.store, "c"))


# -- timers on any state -----------------------------------------------------------------------------


def make_flow(states: dict[str, Any], replies: list[Any] = [], **changes: Any) -> Engine:  # noqa: B006
    """Make an engine of an inline chart."""
    return make_engine(replies, chart={"name": "flow", "states": {**states, **END}}, **changes)


def make_declared_flow(
    states: dict[str, Any], effects: dict[str, Any], *, log: Any = "memory", **options: Any
) -> Engine:
    """Make an engine of a chart with declared effects."""
    replies = options.pop("replies", [])
    spec = make_spec(chart={"name": "flow", "states": {**states, **END}}, effects=effects)
    return Engine(spec, log=log, providers={"model": ScriptedProvider(replies)}, **options)


@pytest.mark.parametrize(
    ("time", "due"),
    [
        ("90m", "2027-01-04T10:30:00.000Z"),
        (30, "2027-01-04T09:00:30.000Z"),
        ("17:00", "2027-01-04T17:00:00.000Z"),
        ("08:30", "2027-01-05T08:30:00.000Z"),
        ("17:00+02:00", "2027-01-04T15:00:00.000Z"),
        ("2027-02-01T08:00Z", "2027-02-01T08:00:00.000Z"),
        ("2027-02-01", "2027-02-01T00:00:00.000Z"),
        ("2020-01-01T00:00Z", "2027-01-04T09:00:00.000Z"),
    ],
)
def test_a_wait_ends_at_its_time(time: Any, due: str) -> None:
    """`wait` takes durations, times of day with and without an offset, and dates; a past one is
    due at once."""
    clock = TurnableClock("2027-01-04T09:00:00Z", skips=True)
    states = {
        "waiting": {
            "initial": True,
            "enter": "pause",
            "transitions": [{"event": "elapsed.pause", "target": "speaking"}],
        },
        "speaking": {"final": True, "enter": "speak"},
    }
    engine = make_declared_flow(states, {"pause": {"wait": time}, "speak": {"answer": "now"}}, clock=clock)
    assert engine.run("go", conversation="c").content == "now"
    (ask,) = [ask for record in read_records(engine) for ask in record.get("asks", ()) if "due" in ask]
    assert ask["due"] == due
    (elapsed,) = [record for record in read_records(engine) if record["event"]["type"] == "elapsed"]
    assert elapsed["at"] >= due


async def run_beside_clock(engine: Engine, clock: TurnableClock, *times: str) -> Any:
    """Run a turn; turn the clock by each of these times once two timers wait for it."""
    turn = asyncio.create_task(engine.arun("go", conversation="c"))
    for time in times:
        await wait_until(lambda: clock.sleeper_count == 2)  # that of the compound state, and the inner one
        clock.advance(time)
        for _ in range(50):  # rounds of the event loop, in which those that were wakened go on
            await asyncio.sleep(0)
    return await turn


REPEATED: dict[str, Any] = {
    "working": {
        "initial": True,
        "after": {"2h": "too_late"},
        "transitions": [{"event": "cancelled", "target": "error"}],
        "states": {
            "first": {
                "initial": True,
                "enter": "short_pause",
                "transitions": [{"event": "elapsed.short_pause", "target": "second"}],
            },
            "second": {
                "enter": "long_pause",
                "transitions": [{"event": "elapsed.long_pause", "target": "done"}],
            },
        },
    },
    "done": {"final": True, "enter": "say_done"},
    "too_late": {"final": True, "enter": "say_late"},
}


@pytest.mark.parametrize(("long", "content"), [("30m", "done"), ("3h", "late")])
async def test_a_deadline_of_a_compound_state_covers_the_states_inside(long: str, content: str) -> None:
    """`after` on a compound state goes on while its inner states change, and ends with the compound state."""
    clock = TurnableClock()
    effects = {
        "short_pause": {"wait": "1h"},
        "long_pause": {"wait": long},
        "say_done": {"answer": "done"},
        "say_late": {"answer": "late"},
    }
    engine = make_declared_flow(REPEATED, effects, clock=clock)
    result = await run_beside_clock(engine, clock, "1h", "30m", *(["30m"] if content == "late" else []))
    assert result.content == content
    assert clock.sleeper_count == 0
    newest = read_records(engine)[-1]
    assert len(newest["cancels"]) == 1
    list(replay_conversation(engine.store, "c"))


async def test_a_deadline_of_a_parallel_state_ends_both_regions() -> None:
    """`after` on a parallel state leaves both regions and cancels what they had open."""
    clock = TurnableClock()
    states = {
        "both": {
            "initial": True,
            "parallel": True,
            "after": {"1h": "too_late"},
            "states": {
                "left": {
                    "states": {
                        "asking": {
                            "initial": True,
                            "enter": "ask_left",
                            "transitions": [{"event": "answered.ask_left", "target": "left_done"}],
                        },
                        "left_done": {"final": True},
                    }
                },
                "right": {
                    "states": {
                        "pausing": {
                            "initial": True,
                            "enter": "pause",
                            "transitions": [{"event": "elapsed.pause", "target": "right_done"}],
                        },
                        "right_done": {"final": True},
                    }
                },
            },
            "transitions": [{"event": "done.state.both", "target": "finished"}],
        },
        "too_late": {"final": True, "enter": "say_late"},
    }
    effects = {"ask_left": {"ask_person": "Well?"}, "pause": {"wait": "2h"}, "say_late": {"answer": "late"}}
    engine = make_declared_flow(states, effects, clock=clock)
    result = await engine.arun("go", conversation="c")
    assert result.due == "2027-01-04T10:00:00.000Z"
    clock.advance("1h")
    result = await engine.conversation("c").aresume()
    assert result.content == "late"
    newest = read_records(engine)[-1]
    assert newest["event"]["type"] == "elapsed"
    assert len(newest["cancels"]) == 2
    list(replay_conversation(engine.store, "c"))


def test_overdue_timers_fire_in_the_order_of_their_times() -> None:
    """Where several timers have run out while nobody was there, the earliest fires first; one that ends with
    its state does not fire."""
    clock = TurnableClock()
    states = {
        "asking": {
            "initial": True,
            "enter": "ask",
            "after": {"3h": "too_late", "1h": "reminded"},
            "transitions": [{"event": "answered", "target": "finished"}],
        },
        "reminded": {
            "enter": "ask",
            "after": {"30m": "too_late"},
            "transitions": [{"event": "answered", "target": "finished"}],
        },
        "too_late": {"final": True, "enter": "say_late"},
    }
    effects = {"ask": {"ask_person": "Well?"}, "say_late": {"answer": "late"}}
    engine = make_declared_flow(states, effects, clock=clock)
    assert engine.run("go", conversation="c").due == "2027-01-04T10:00:00.000Z"
    clock.advance("5h")
    result = engine.conversation("c").resume()
    assert (result.state, result.due) == ("reminded", "2027-01-04T14:30:00.000Z")
    assert list_types(engine) == ["configured", "turn_started", "resumed", "elapsed"]
    clock.advance("30m")
    assert engine.conversation("c").resume().content == "late"
    assert list_types(engine).count("elapsed") == 2
    list(replay_conversation(engine.store, "c"))


def test_a_timer_alone_waits_on_after_a_crash_for_what_is_left_of_it() -> None:
    """A worker that goes on with a timer waits until it is due, and not for its whole length again."""

    class CrashingClock(TurnableClock):
        """A clock whose first sleep ends the process."""

        async def sleep(self, seconds: float) -> None:
            """Stop the process."""
            raise RuntimeError("the process stops here")

    states = {
        "waiting": {
            "initial": True,
            "enter": "pause",
            "transitions": [{"event": "elapsed", "target": "speaking"}],
        },
        "speaking": {"final": True, "enter": "speak"},
    }
    effects = {"pause": {"wait": "24h"}, "speak": {"answer": "now"}}
    store = MemoryStore()
    with pytest.raises(RuntimeError):
        make_declared_flow(states, effects, log=store, clock=CrashingClock()).run("go", conversation="c")
    clock = TurnableClock("2027-01-05T02:00:00Z", skips=True)
    engine = make_declared_flow(states, effects, log=store, clock=clock)
    assert engine.conversation("c").resume().content == "now"
    assert clock.now() == "2027-01-05T09:00:00.000Z"
    assert list_types(engine) == ["configured", "turn_started", "resumed", "elapsed"]
