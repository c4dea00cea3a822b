"""Effects belong to states: leaving, re-entering, late answers, timers, regions and events from outside, in
the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from agents import make_engine, make_function_tool, make_spec, reply_with_calls

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.states.errors import LogUnavailable, ProviderError
from toolchart.states.messages import Delta, Reply, Request, TextDelta
from toolchart.testing import TurnableClock

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}

END = {"finished": {"final": True, "enter": "answer"}, "error": {"final": True, "enter": "answer_with_error"}}


def make_loop(executing: list[dict[str, Any]], **states: Any) -> dict[str, Any]:
    """Make an inline chart of the tool loop with these rows in `executing`."""
    return {
        "name": "loop",
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
                "transitions": [{"event": "reviewed", "target": "executing"}],
            },
            "executing": {"enter": "run_tools", "transitions": executing},
            **END,
            **states,
        },
    }


def read_events(engine: Engine, conversation: str = "c") -> list[dict[str, Any]]:
    """Read the records of a conversation as JSON data."""
    return [orjson.loads(line) for line in engine.store.read_lines(conversation)]


def get_tool_texts(engine: Engine) -> list[str]:
    """Read what the model was told about the calls, from its newest request."""
    request = engine.hosts.providers["model"].requests[-1]  # type: ignore[attr-defined]
    return [message.content or "" for message in request.messages if message.role == "tool"]


class SlowTools:
    """Two tools: a quick one, and one that counts how often it started and never ends by itself."""

    def __init__(self) -> None:
        self.started = 0

    async def _run_slow(self, arguments: Any) -> Any:
        self.started += 1
        await asyncio.Event().wait()

    async def _run_quick(self, arguments: Any) -> Any:
        return "quick"

    def make_tools(self) -> list[Any]:
        """Make both tools."""
        return [
            make_function_tool("slow", NOTHING, self._run_slow),
            make_function_tool("quick", NOTHING, self._run_quick),
        ]


def test_leaving_executing_early_interrupts_the_calls_that_run() -> None:
    """Invariant 1: a call that was left while it ran is reported as interrupted, never as not executed."""
    tools = SlowTools()
    chart = make_loop([{"event": "tool_finished", "target": "prompting"}])
    engine = make_engine(
        [reply_with_calls(("quick", {}), ("slow", {})), "done"], chart=chart, functions=tools.make_tools()
    )
    result = engine.run("go", conversation="c")
    assert result.content == "done"
    assert [call["result"]["success"] for call in result.tool_calls] == [True, False]
    assert tools.started == 1
    quick_text, slow_text = get_tool_texts(engine)
    assert "quick" in quick_text
    assert "may or may not have taken effect" in slow_text
    assert "not executed" not in slow_text
    list(replay_conversation(engine.store, "c"))


def test_entering_executing_again_never_runs_a_call_twice() -> None:
    """Invariant 5: a self-transition with a target re-enters the state, and calls that began are not
    repeated."""
    tools = SlowTools()
    chart = make_loop(
        [
            {"event": "tool_finished", "target": "executing", "cond": "iteration == 0"},
            {"event": "tool_finished", "target": "prompting"},
        ]
    )
    engine = make_engine(
        [reply_with_calls(("quick", {}), ("slow", {})), "done"], chart=chart, functions=tools.make_tools()
    )
    assert engine.run("go", conversation="c").content == "done"
    assert tools.started == 1
    assert "interrupted" in get_tool_texts(engine)[1]


def test_a_loop_that_only_enters_itself_again_is_ended_by_the_core() -> None:
    """A chart that never ends is ended after `max_steps` events, with the reason in the result."""
    chart = make_loop([{"event": "tool_finished", "target": "executing"}])
    engine = make_engine([reply_with_calls(("echo", {"text": "x"}))], chart=chart, limits={"max_steps": 50})
    result = engine.run("go", conversation="c")
    assert result.ended_by == "too_many_steps"
    assert result.error is not None
    assert result.error.kind == "too_many_steps"
    assert len(result.tool_calls) == 1


class HangingModel:
    """A model whose first call streams some words and hangs; every further call answers."""

    name = "scripted"

    def __init__(self) -> None:
        self.has_started = asyncio.Event()
        self.requests: list[Request] = []
        self.stopped = 0

    async def complete(self, request: Request) -> Reply:
        """Hang in the first call."""
        self.requests.append(request)
        if len(self.requests) == 1:
            self.has_started.set()
            try:
                await asyncio.sleep(60)
            finally:
                self.stopped += 1
        return Reply(content=f"answer {len(self.requests)}", finish_reason="stop")

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield some words before hanging."""
        if not self.requests:
            yield TextDelta(text="Half an ")
        yield await self.complete(request)

    async def aclose(self) -> None:
        """Nothing to close."""


def make_hanging_engine(chart: Any, model: Any, **changes: Any) -> Engine:
    """Make an engine around a model of the test."""
    return Engine(make_spec(chart=chart, **changes), log="memory", providers={"model": model})


DEADLINE = {
    "name": "deadline",
    "states": {
        "working": {
            "initial": True,
            "enter": ["call_model", "wait"],
            "transitions": [
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
                {"event": "elapsed", "target": "again"},
                {"event": "user_said", "target": "again"},
            ],
        },
        "again": {
            "enter": "call_model_without_tools",
            "transitions": [
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        **END,
    },
}


async def test_a_timer_beside_a_model_call_is_a_deadline() -> None:
    """A timer stands beside the effect that a state waits for: when it runs out, the model call is
    stopped."""
    model, clock = HangingModel(), TurnableClock()
    spec = make_spec(chart=DEADLINE, retry={"first_wait_s": 50})
    engine = Engine(spec, log="memory", providers={"model": model}, clock=clock)
    turn = asyncio.create_task(engine.arun("go", conversation="c"))
    await model.has_started.wait()
    await clock.wait_for_sleep()
    clock.advance(50)
    result = await turn
    assert result.content == "answer 2"
    assert model.stopped == 1
    elapsed = next(r for r in read_events(engine) if r["event"]["type"] == "elapsed")
    assert elapsed["cancels"] == [1]
    list(replay_conversation(engine.store, "c"))


async def test_nothing_is_asked_for_whose_record_could_not_be_written() -> None:
    """Where the record of a message cannot be written, no model is asked with it, and the turn ends."""
    model = HangingModel()
    engine = make_hanging_engine(DEADLINE, model, retry={"first_wait_s": 50})
    turn = asyncio.create_task(engine.arun("go", conversation="c"))
    await model.has_started.wait()
    store: Any = engine.store
    append, store.append_many = store.append_many, Mock(side_effect=LogUnavailable("no space is left"))
    with pytest.raises(LogUnavailable, match="no space"):
        await engine.conversation("c").asay("something else")
    store.append_many = append
    with pytest.raises(LogUnavailable, match="no space"):
        await turn
    assert len(model.requests) == 1


async def test_a_message_that_no_row_takes_waits_for_the_next_turn() -> None:
    """A message that the chart does not take is recorded as untaken and becomes part of the next turn."""
    model = HangingModel()
    chart = make_loop([{"event": "tool_finished", "target": "prompting"}])
    chart["states"]["prompting"]["transitions"].append({"event": "cancelled", "target": "error"})
    engine = make_hanging_engine(chart, model)
    turn = asyncio.create_task(engine.arun("go", conversation="c"))
    await model.has_started.wait()
    await engine.conversation("c").asay("by the way")
    await engine.conversation("c").acancel("changed my mind")
    result = await turn
    assert result.error is not None
    assert result.error.kind == "cancelled"
    assert [r["event"]["type"] for r in read_events(engine) if r.get("untaken")] == ["user_said"]
    assert (await engine.arun("next", conversation="c")).content == "answer 2"
    texts = [m.content for m in model.requests[-1].messages if m.role == "user"]
    assert texts == ["go", "by the way", "next"]


async def test_a_cancellation_without_a_row_suspends_the_turn() -> None:
    """Without a row for `cancelled` work stops and the turn stays open; resuming asks the model again."""
    model = HangingModel()
    engine = make_hanging_engine(make_loop([{"event": "tool_finished", "target": "prompting"}]), model)
    turn = asyncio.create_task(engine.arun("go", conversation="c"))
    await model.has_started.wait()
    await engine.conversation("c").acancel()
    assert not (await turn).is_over
    assert model.stopped == 1
    assert (await engine.conversation("c").aresume()).content == "answer 2"
    list(replay_conversation(engine.store, "c"))


async def test_a_turn_that_is_suspended_before_its_first_step_performs_nothing() -> None:
    """A child may be stopped between its start and its first step: its turn is left open, the model is not
    asked, and resuming it asks."""
    engine = make_engine(["done"])
    started = await engine._agent.plan_turn("c", "go", {})
    driver = engine._conversations.open_driver("c", started.settings.service)
    driver.suspend()
    snapshot = await engine._conversations.run_driver("c", driver, started)
    provider: Any = engine.hosts.providers["model"]
    assert (snapshot.is_over, provider.requests) == (False, [])
    assert (await engine.conversation("c").aresume()).content == "done"
    list(replay_conversation(engine.store, "c"))


async def test_words_that_were_streamed_are_kept() -> None:
    """Text that was streamed before a disconnect is the content of the result and stays in the conversation;
    the apology for an error is shown and never sent to the model."""

    class BrokenModel(HangingModel):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
            if not self.requests:
                self.requests.append(request)
                yield TextDelta(text="Half an ")
                raise ProviderError(kind="connection", message="the host hung up", status=502)
            yield await self.complete(request)

    model = BrokenModel()
    engine = make_hanging_engine("tool_loop", model)
    result = await engine.arun("go", conversation="c", on_delta=lambda delta: None)
    assert result.content == "Half an "
    error = result.to_dict()["error"]
    assert error == {"kind": "connection", "message": "the host hung up", "status": 502, "host": "model"}
    await engine.arun("next", conversation="c", on_delta=lambda delta: None)
    roles = [(m.role, m.content) for m in model.requests[-1].messages][1:]
    assert roles == [("user", "go"), ("assistant", "Half an "), ("user", "next")]


def test_an_apology_is_shown_and_not_sent() -> None:
    """The text of a failed turn is the user's; the next request has no word of it."""
    failure = {"fail": {"kind": "auth", "message": "no such key", "status": 401}}
    engine = make_engine([failure, "fine"])
    result = engine.run("go", conversation="c")
    assert "issue while answering" in result.content
    engine.run("again", conversation="c")
    messages = engine.hosts.providers["model"].requests[-1].messages  # type: ignore[attr-defined]
    assert [message.role for message in messages] == ["system", "user", "user"]


REGIONS = {
    "name": "regions",
    "states": {
        "both": {
            "parallel": True,
            "initial": True,
            "states": {
                "asking": {
                    "states": {
                        "calling": {
                            "initial": True,
                            "enter": "call_model",
                            "transitions": [
                                {"event": "replied.call_model", "target": "called"},
                                {"event": "failed.call_model", "target": "called"},
                            ],
                        },
                        "called": {"final": True},
                    }
                },
                "timing": {
                    "states": {
                        "waiting": {
                            "initial": True,
                            "enter": "wait",
                            "transitions": [{"event": "elapsed.wait", "target": "waited_enough"}],
                        },
                        "waited_enough": {"final": True},
                    }
                },
            },
            "transitions": [{"event": "done.state.both", "target": "finished"}],
        },
        "finished": {"final": True, "enter": "answer"},
    },
}


@pytest.mark.parametrize("effect", ["review_calls", "run_tools"])
def test_an_answer_ends_the_work_on_calls(effect: str) -> None:
    """A state that gives the turn its answer beside work on calls cancels that work in the same step."""
    chart = make_loop([{"event": "tool_finished", "target": "prompting"}])
    name = {"review_calls": "reviewing", "run_tools": "executing"}[effect]
    chart["states"][name]["enter"] = [effect, "answer_at_limit"]
    engine = make_engine([reply_with_calls(("echo", {"text": "x"})), "next"], chart=chart)
    assert engine.run("go", conversation="c").ended_by == "stuck"
    assert read_events(engine)[-1]["cancels"]
    assert engine.run("again", conversation="c").content == "next"
    list(replay_conversation(engine.store, "c"))
