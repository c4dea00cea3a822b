"""`TurnStream` and `BlockingTurnStream`: what a streamed turn gives, at each door that streams one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest
from pydantic import BaseModel

from toolchart import (
    Agent,
    BlockingTurnStream,
    Decided,
    Engine,
    PartialOutput,
    SpecError,
    StepTaken,
    TextDelta,
    ToolchartError,
    Turn,
    TurnStream,
    tool,
)
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.testing import ScriptedModel, call_tool


class City(BaseModel):
    """A city."""

    name: str
    country: str


PARIS = '{"name": "Paris", "country": "France"}'


def make_spec(reply: Any) -> dict[str, Any]:
    """An agent whose model gives one reply."""
    llms = {"m": {"provider": "scripted", "model": "m", "replies": [reply]}}
    return {"llms": llms, "responses": [{"llm": "m"}]}


@tool(requires_approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    return f"{order} is refunded"


def make_agent(*replies: Any, **options: Any) -> Agent[None, City]:
    """A typed agent that answers with a city."""
    return Agent(ScriptedModel(*replies), output_type=City, **options)


async def _rest(agent: Agent[None, City], store: MemoryStore) -> None:
    """Let a turn come to the call that waits for a person."""
    async with agent.open(log=store) as desk:
        turn = await desk.arun("Refund A7.", conversation="c")
    assert [pending.tool for pending in turn.pending_approvals] == ["refund"]


Door: TypeAlias = Callable[[MemoryStore, AsyncExitStack], Any]


async def _stream_engine(store: MemoryStore, stack: AsyncExitStack) -> TurnStream:
    desk = await stack.enter_async_context(make_agent(PARIS).open(log=store))
    return desk.engine.stream("Where?", conversation="c", output_type=City)


async def _stream_conversation(store: MemoryStore, stack: AsyncExitStack) -> TurnStream:
    desk = await stack.enter_async_context(make_agent(PARIS).open(log=store))
    return desk.engine.conversation("c").stream("Where?", output_type=City)


async def _stream_open_agent(store: MemoryStore, stack: AsyncExitStack) -> TurnStream[City]:
    desk = await stack.enter_async_context(make_agent(PARIS).open(log=store))
    return desk.stream("Where?", conversation="c")


async def _stream_agent(store: MemoryStore, _: AsyncExitStack) -> TurnStream[City]:
    return make_agent(PARIS).stream("Where?", conversation="c", log=store)


async def _stream_approval(store: MemoryStore, stack: AsyncExitStack) -> TurnStream[City]:
    agent = make_agent(call_tool("refund", order="A7"), PARIS, tools=[refund])
    await _rest(agent, store)
    desk = await stack.enter_async_context(agent.open(log=store))
    return desk.stream_approval("c", by="ada")


async def _stream_resume(store: MemoryStore, stack: AsyncExitStack) -> TurnStream[City]:
    agent = make_agent(call_tool("refund", order="A7"), PARIS, tools=[refund])
    await _rest(agent, store)
    desk = await stack.enter_async_context(agent.open(log=store))
    waiting = desk.engine.conversation("c").read_turn().pending_approvals
    return desk.stream_resume("c", Decided(call_id=waiting[0].id, approved=True))


DOORS: dict[str, Door] = {
    "Engine.stream": _stream_engine,
    "Conversation.stream": _stream_conversation,
    "OpenAgent.stream": _stream_open_agent,
    "Agent.stream": _stream_agent,
    "OpenAgent.stream_approval": _stream_approval,
    "OpenAgent.stream_resume": _stream_resume,
}


@pytest.mark.parametrize("door", DOORS)
async def test_every_stream_keeps_its_turn(door: str) -> None:
    """The turn is refused before the end of the stream, and is then the last piece, with its typed answer.

    The parts of the answer grow to it, each after the text that it was read from.
    """
    store = MemoryStore()
    async with AsyncExitStack() as stack:
        stream = await DOORS[door](store, stack)
        assert isinstance(stream, TurnStream)
        with pytest.raises(ToolchartError, match="has not come to its end"):
            _ = stream.turn
        pieces = []
        async for piece in stream:
            if not isinstance(piece, Turn):
                with pytest.raises(ToolchartError, match="has not come to its end"):
                    _ = stream.turn
            pieces.append(piece)
        assert stream.turn is pieces[-1]
        assert stream.turn.output == City(name="Paris", country="France")
        assert [type(piece) for piece in pieces].count(Turn) == 1
        partial = [index for index, piece in enumerate(pieces) if isinstance(piece, PartialOutput)]
        assert pieces[partial[-1]].value == {"name": "Paris", "country": "France"}
        assert all(isinstance(pieces[index - 1], TextDelta) for index in partial)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert stream.turn is pieces[-1]


@pytest.mark.parametrize("is_typed", [True, False])
async def test_only_a_typed_turn_has_parts_of_its_answer(is_typed: bool) -> None:
    """The engine yields parts where it was asked for a type that is no text, else steps and deltas alone."""
    async with make_agent(PARIS).open(log="memory") as desk:
        options: dict[str, Any] = {"output_type": City} if is_typed else {}
        kinds = {type(piece) async for piece in desk.engine.stream("Where?", **options)}
    assert kinds == {StepTaken, TextDelta, Turn, *([PartialOutput] if is_typed else [])}
    texts = Agent(ScriptedModel("Paris")).stream("Where?", log="memory")
    assert {type(piece) async for piece in texts} == {StepTaken, TextDelta, Turn}
    assert texts.turn.output == "Paris"


SLOW = {"stream": {"pieces": ["never ", "seen"], "pause_s": 600}}


async def _leave_by_block(stream: TurnStream) -> None:
    async with stream as pieces:
        assert pieces is stream
        async for piece in stream:
            if isinstance(piece, TextDelta):
                break


async def _leave_by_close(stream: TurnStream) -> None:
    async for piece in stream:
        if isinstance(piece, TextDelta):
            break
    await stream.aclose()


async def _leave_by_error(stream: TurnStream) -> None:
    async for piece in stream:
        if isinstance(piece, TextDelta):
            break
    with pytest.raises(ZeroDivisionError):
        await stream.athrow(ZeroDivisionError())


@pytest.mark.parametrize("leave", [_leave_by_block, _leave_by_close, _leave_by_error])
async def test_who_leaves_a_stream_cancels_its_turn(leave: Callable[[TurnStream], Any]) -> None:
    """Closing a stream ends the turn before it returns: the log has the cancellation; there is no result."""
    store = MemoryStore()
    async with Engine(make_spec(SLOW), log=store) as engine:
        stream = engine.stream("Go.", conversation="c")
        await leave(stream)
        with pytest.raises(ToolchartError, match="has not come to its end"):
            _ = stream.turn
        error = list(replay_conversation(store, "c"))[-1].step.snapshot.error
        assert error is not None
        assert error.kind == "cancelled"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_a_stream_that_nobody_holds_is_closed() -> None:
    """A program that breaks out of its loop and drops the stream leaves no turn behind that still runs."""
    store = MemoryStore()
    async with Engine(make_spec(SLOW), log=store) as engine:
        before = asyncio.all_tasks()
        async for piece in engine.stream("Go.", conversation="c"):
            if isinstance(piece, TextDelta):
                break
        del piece
        for _ in range(100):
            gc.collect()
            await asyncio.sleep(0)
            if asyncio.all_tasks() <= before:
                break
        assert asyncio.all_tasks() <= before


async def test_an_error_of_a_turn_ends_its_stream() -> None:
    """An error is raised where the stream is read, and its turn has no result."""
    async with make_agent(PARIS).open(log="memory") as desk:
        stream = desk.stream("Where?", attachments=["nowhere.png"])
        with pytest.raises(SpecError, match="nowhere"):
            async for _ in stream:
                pass
        with pytest.raises(ToolchartError, match="has not come to its end"):
            _ = stream.turn


BLOCKING_DOORS: dict[str, Callable[[Any], Any]] = {
    "Engine.stream_blocking": lambda desk: desk.engine.stream_blocking("Where?", output_type=City),
    "OpenAgent.stream_blocking": lambda desk: desk.stream_blocking("Where?"),
    "Agent.stream_blocking": lambda _: make_agent(PARIS).stream_blocking("Where?", log="memory"),
}


@pytest.mark.parametrize("door", BLOCKING_DOORS)
def test_a_blocking_stream_keeps_its_turn(door: str) -> None:
    """The blocking form yields the same pieces, keeps its turn, and can be left by a `with` block."""
    with make_agent(PARIS, PARIS).open(log="memory") as desk:
        stream = BLOCKING_DOORS[door](desk)
        assert isinstance(stream, BlockingTurnStream)
        with pytest.raises(ToolchartError, match="has not come to its end"):
            _ = stream.turn
        pieces = list(stream)
        assert stream.turn is pieces[-1]
        assert stream.turn.output == City(name="Paris", country="France")
        assert {type(piece) for piece in pieces} == {StepTaken, TextDelta, PartialOutput, Turn}
        with BLOCKING_DOORS[door](desk) as left:
            assert isinstance(next(left), StepTaken)
        with pytest.raises(ToolchartError, match="has not come to its end"):
            _ = left.turn
        assert list(left) == []


def test_the_answer_of_a_turn_without_a_type() -> None:
    """`output` of an untyped turn says that its answer is a text, instead of None or of "no answer"."""
    with Engine(make_spec("Paris"), log="memory") as engine:
        turn = engine.run("Where?")
    assert turn.content == "Paris"
    with pytest.raises(ToolchartError, match=r"is a text.*\n.*output_type="):
        _ = turn.output
