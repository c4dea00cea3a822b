"""What people say for a child that rests while its parent runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from agents import make_engine, reply_with_calls
from paying_agent import wait_until

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.states.errors import SpecError
from toolchart.states.events import Answered, Decided
from toolchart.states.ports import Store

LONGEST_S = 60.0
"""Seconds after which a case that hangs fails."""


def make_region(name: str, effect: str, *events: str, first: str = "") -> dict[str, Any]:
    """A region that asks for an effect, and ends with its answer.

    Args:
        first: an effect that somebody answers before.
    """
    rows = [{"event": f"{event}.{effect}", "target": f"{name}_done"} for event in events]
    states: dict[str, Any] = {
        f"{name}_working": {"enter": effect, "transitions": rows},
        f"{name}_done": {"final": True},
    }
    if first:
        row = {"event": f"answered.{first}", "target": f"{name}_working"}
        states = {f"{name}_first": {"enter": first, "transitions": [row]}, **states}
    next(iter(states.values()))["initial"] = True
    return {"states": states}


CHART = {
    "name": "beside",
    "states": {
        "both": {
            "initial": True,
            "parallel": True,
            "states": {
                "left": make_region("left", "hand_over", "agent_finished", "agent_failed"),
                "right": make_region("right", "ask_owner", "answered", first="ask_first"),
            },
            "transitions": [
                {"event": "done.state.both", "target": "finished"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "say_done"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}
"""A sub-agent has taken the conversation over, and a person is asked beside it."""

ASKING = {
    "name": "asking",
    "effects": {"ask_again": {"ask_person": "May it again?"}},
    "states": {
        "asking": {
            "initial": True,
            "enter": "ask_again",
            "transitions": [{"event": "answered", "target": "replying"}],
        },
        "replying": {
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}

INTERRUPTED = {
    "name": "interrupted",
    "extends": "approval",
    "states": {"awaiting_approval": {"transitions": [{"event": "user_said", "target": "prompting"}]}},
}
"""A chart in which a message takes the question back: the model is asked again."""

CHILD = "c.1"


class World:
    """A parent `c` that runs, because its asker thinks, and its child, which waits for a person."""

    def __init__(self, engine: Engine, turn: asyncio.Task[Any], may_answer: asyncio.Event) -> None:
        self.engine, self.turn, self._may_answer = engine, turn, may_answer

    async def let_parent_rest(self) -> Any:
        """The result of the turn when the asker has answered."""
        self._may_answer.set()
        return await self.turn


def list_types(store: Store, conversation: str) -> list[str]:
    """The types of a conversation's events, in order."""
    return [orjson.loads(line)["event"]["type"] for line in store.read_lines(conversation)]


@asynccontextmanager
async def open_world(child: Any = "approval", *, is_inline: bool = False) -> AsyncIterator[World]:
    """The parent runs and the child rests within the block.

    Args:
        is_inline: whether what the parent works on began when the child rested, so that it has no task of its
            own.
    """
    may_answer, may_begin, is_asked = asyncio.Event(), asyncio.Event(), asyncio.Event()
    if not is_inline:
        may_begin.set()

    async def ask(question: Any) -> Any:
        if question.name == "ask_first":
            await may_begin.wait()
        elif question.name == "ask_owner":
            is_asked.set()
            await may_answer.wait()
        else:
            return None
        return Answered(content={"content": "yes"})

    effects = {
        "hand_over": {"run_agent": {"chart": child, "history": "all"}},
        "ask_first": {"ask_person": "May it begin?"},
        "ask_owner": {"ask_person": "May it?"},
        "say_done": {"answer": "done"},
    }
    replies = [reply_with_calls(("echo", {"text": "a"}))] if child != ASKING else []
    engine = make_engine(
        [*replies, "both"],
        chart=CHART,
        effects=effects,
        tools={"registry": [{"name": "echo", "requires_approval": True}]},
        asker=ask,
    )
    async with asyncio.timeout(LONGEST_S), engine:
        turn = asyncio.create_task(engine.arun("go", conversation="c"))
        await wait_until(lambda: list(engine.store.read_lines(CHILD)) != [])
        await wait_until(lambda: not engine.conversation(CHILD).is_running)
        may_begin.set()
        await is_asked.wait()
        assert engine.conversation("c").is_running
        yield World(engine, turn, may_answer)
        may_answer.set()
        await asyncio.gather(turn, return_exceptions=True)


async def test_a_message_reaches_a_child_that_rests_beside_its_running_parent() -> None:
    """A sub-agent has taken the conversation over and waits for a decision, while another region works: the
    message is in its log at once, and its next request has it, once."""
    async with open_world() as world:
        engine = world.engine
        await engine.conversation("c").asay("and hurry")
        assert [list_types(engine.store, name).count("user_said") for name in ("c", CHILD)] == [1, 1]
        result = await world.let_parent_rest()
        result = await engine.conversation("c").aapprove()
        assert result.is_over
        newest = engine.hosts.providers["model"].requests[-1].messages[-1]  # type: ignore[attr-defined]
        assert (newest.role, newest.content) == ("user", "and hurry")
        for name in ("c", CHILD):
            list(replay_conversation(engine.store, name))


@pytest.mark.parametrize("is_inline", [False, True], ids=["in a task", "inline"])
async def test_a_resting_child_that_takes_a_message_goes_on_beside_its_parent(is_inline: bool) -> None:
    """Where a row of the child leaves its state for the message, the child goes on at once, while its parent
    still works on something else."""
    async with open_world(INTERRUPTED, is_inline=is_inline) as world:
        engine = world.engine
        await engine.conversation("c").asay("never mind")
        await wait_until(lambda: engine.conversation(CHILD).read_turn().is_over)
        assert engine.conversation("c").is_running
        assert (await world.let_parent_rest()).is_over
        for name in ("c", CHILD):
            assert list_types(engine.store, name).count("user_said") == 1
            list(replay_conversation(engine.store, name))


async def test_a_child_that_is_cancelled_while_it_is_told_something_ends_once() -> None:
    """The turn is cancelled in the moment in which the message is written into the resting child: both are in
    its log, in order, and no writer gets into the other one's way."""
    async with open_world() as world:
        engine = world.engine
        handle = engine.conversation("c")
        await asyncio.gather(handle.asay("and hurry"), handle.acancel())
        result = await world.turn
        assert result.error is not None
        assert result.error.kind == "cancelled"
        assert list_types(engine.store, CHILD)[-1] == "cancelled"
        for name in ("c", CHILD):
            list(replay_conversation(engine.store, name))


@pytest.mark.parametrize("door", ["parent", "child"])
@pytest.mark.parametrize("says", ["decision", "answer"])
async def test_what_a_resting_child_waits_for_is_kept_until_its_parent_rests(says: str, door: str) -> None:
    """A decision or an answer for a child that rests beside its running parent is in the inbox when the
    caller goes on, and is taken once when the parent comes to rest, whichever of both was named."""
    async with open_world("approval" if says == "decision" else ASKING) as world:
        engine, name = world.engine, "c" if door == "parent" else CHILD
        handle = engine.conversation(name)
        if says == "decision":
            call_id = engine.conversation(CHILD).read_turn().pending_approvals[0].id
            assert await handle.adecide(Decided(call_id=call_id, approved=True)) is None
        else:
            assert await handle.aanswer({"content": "yes"}, question="ask_again") is None
        assert len(engine.store.read_inbox(["c"])) == 1
        await world.let_parent_rest()
        await wait_until(lambda: engine.conversation("c").read_turn().is_over)
        kind = "decided" if says == "decision" else "answered"
        assert list_types(engine.store, CHILD).count(kind) == 1
        assert engine.store.read_inbox(["c"]) == []
        list(replay_conversation(engine.store, CHILD))


@pytest.mark.parametrize("says", ["message", "cancellation"])
async def test_a_resting_child_is_not_spoken_to_beside_its_parent(says: str) -> None:
    """A message and a cancellation are for the whole conversation: one for the child alone is refused while
    the parent runs, and nothing is written."""
    async with open_world() as world:
        store, handle = world.engine.store, world.engine.conversation(CHILD)
        before = list_types(store, "c") + list_types(store, CHILD)
        with pytest.raises(SpecError, match="a turn of conversation 'c' is running"):
            await (handle.asay("hi") if says == "message" else handle.acancel())
        assert list_types(store, "c") + list_types(store, CHILD) == before
        assert store.read_inbox(["c", CHILD]) == []


@pytest.mark.parametrize("moment", ["begins", "rests"])
async def test_a_message_reaches_a_child_that_begins_or_comes_to_rest_just_then(moment: str) -> None:
    """Before a child runs, and between its run and its rest, lie some steps of the event loop in which no
    driver of it runs and nothing waits yet: what the user says then reaches it, too."""
    for ticks in range(12):
        is_said = asyncio.Event()

        async def wait_for_message(_question: Any, is_said: asyncio.Event = is_said) -> None:
            await is_said.wait()

        effects = {"hand_over": {"run_agent": {"chart": INTERRUPTED, "history": "all"}}}
        questions = {name: {"ask_person": "May it?"} for name in ("ask_first", "ask_owner")}
        engine = make_engine(
            [reply_with_calls(("echo", {"text": "a"})), "both"],
            chart=CHART,
            effects={**effects, **questions, "say_done": {"answer": "done"}},
            tools={"registry": [{"name": "echo", "requires_approval": True}]},
            asker=wait_for_message,
        )
        async with asyncio.timeout(LONGEST_S), engine:
            turn = asyncio.create_task(engine.arun("go", conversation="c"))
            while not list(engine.store.read_lines("c" if moment == "begins" else CHILD)):  # noqa: ASYNC110
                await asyncio.sleep(0)
            while moment == "rests" and engine.conversation(CHILD).is_running:  # noqa: ASYNC110
                await asyncio.sleep(0)
            for _ in range(ticks):
                await asyncio.sleep(0)
            assert engine.conversation("c").is_running
            await engine.conversation("c").asay("never mind")
            is_said.set()
            await turn
            told = [line for line in engine.store.read_lines(CHILD) if b'"never mind"' in line]
            assert [orjson.loads(line)["event"]["type"] for line in told] in (["user_said"], ["turn_started"])
            for name in ("c", CHILD):
                list(replay_conversation(engine.store, name))
