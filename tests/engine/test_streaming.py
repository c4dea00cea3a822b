"""A turn seen as it happens: deltas and steps in order, and the same log as unwatched."""

from __future__ import annotations

import asyncio
from typing import Any

import agents
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.engine import TurnResult
from toolchart.engine.log.record import CHANGED
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.streaming import Moved
from toolchart.providers.shared.reply_deltas import pieces_of
from toolchart.states.deltas import CallArguments, CallStarted, ReasoningDelta, TextDelta
from toolchart.states.errors import SpecError, Warned
from toolchart.states.events import Replied
from toolchart.states.messages import Reply

SCRIPT = [agents.calls(("calculator", {"expression": "1+2"})), "That makes three."]


def seen(message: str, **options: Any) -> list[object]:
    """Everything that a stream yields."""

    async def collect() -> list[object]:
        async with agents.engine(SCRIPT, log=MemoryStore(), **options) as engine:
            return [piece async for piece in engine.stream(message)]

    return asyncio.run(collect())


def test_a_stream_tells_states_deltas_calls_and_the_result_in_order() -> None:
    """S3.4: text and calls are seen growing, every step is told, the result comes last."""
    pieces = seen("1+2")
    states = [piece.step.target for piece in pieces if isinstance(piece, Moved)]
    assert states == ["prompting", "awaiting_tools", "executing", "prompting", "finished"]
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    assert text == "That makes three."
    assert [p.name for p in pieces if isinstance(p, CallStarted)] == ["calculator"]
    first_delta = next(i for i, p in enumerate(pieces) if isinstance(p, CallStarted))
    moved = next(
        i
        for i, p in enumerate(pieces)
        if isinstance(p, Moved) and p.step.target == "awaiting_tools"
    )
    assert first_delta < moved
    assert isinstance(pieces[-1], TurnResult)
    assert pieces[-1].content == "That makes three."


def test_a_turn_that_cannot_begin_raises_out_of_the_stream() -> None:
    """An error of the turn is the stream's error, not a stream that ends early."""

    async def collect() -> None:
        async with agents.engine(SCRIPT, log=MemoryStore()) as engine:
            async for _ in engine.stream("x", handler="nobody"):
                pass

    with pytest.raises(SpecError):
        asyncio.run(collect())


def test_closing_a_stream_cancels_its_turn() -> None:
    """Whoever stops looking stops the turn; the log has every step up to there and can go on."""

    async def leave() -> tuple[str, int]:
        async with agents.engine(SCRIPT, log=MemoryStore()) as engine:
            stream = engine.stream("1+2", conversation="c")
            async for piece in stream:
                if isinstance(piece, Moved) and piece.step.target == "awaiting_tools":
                    break
            await stream.aclose()
            records = len(list(engine.store.read("c")))
            result = await engine.aresume("c")
            return result.state, records

    state, records = asyncio.run(leave())
    assert records >= 3
    assert state in ("finished", "cancelled")


@given(st.text(), st.text())
def test_pieces_lose_nothing(text: str, reasoning: str) -> None:
    """Whatever a reply says, its pieces say it whole."""
    reply = Reply(content=text, reasoning=reasoning, finish_reason="stop")
    pieces = list(pieces_of(reply))
    assert "".join(p.text for p in pieces if isinstance(p, TextDelta)) == text
    assert "".join(p.text for p in pieces if isinstance(p, ReasoningDelta)) == reasoning
    assert not [p for p in pieces if isinstance(p, CallArguments)]


def test_the_log_may_tell_how_a_reply_grew() -> None:
    """S3.4: by a switch of the spec the log holds the deltas; such a log verifies and replays."""
    store = MemoryStore()
    with agents.engine(SCRIPT, log=store, log_deltas=True) as engine:
        engine.run("1+2", conversation="c")
    replied = [one.record.decoded() for one in replay(store.read("c"), "c")]
    grown = [one.deltas for one in replied if isinstance(one, Replied)]
    assert [delta["kind"] for delta in grown[0]] == ["call", "arguments"]
    assert "".join(delta["text"] for delta in grown[1]) == "That makes three."
    with agents.engine(SCRIPT, log=MemoryStore()) as silent:
        silent.run("1+2", conversation="c")
        assert b"deltas" not in b"".join(silent.store.read("c"))
    with agents.engine(SCRIPT, log_deltas=True, redact={"patterns": ["email"]}) as secret:
        secret.run("1+2", conversation="c")
        assert b'"deltas"' not in b"".join(list(secret.store.read("c"))[1:])


def test_a_strict_policy_ends_at_a_warning() -> None:
    """S3.10: strict raises at a warning, once it is in the log; lenient records it and goes on."""
    odd = Reply(content="well", finish_reason="stop", warnings=("the host said something odd",))
    with agents.engine([odd], log=MemoryStore()) as lenient:
        assert lenient.run("hi").warnings == ("the host said something odd",)
    store = MemoryStore()
    with agents.engine([odd], log=store, policy="strict") as strict:
        with pytest.raises(Warned, match="something odd"):
            strict.run("hi", conversation="c")
        assert [one.record.event["type"] for one in replay(store.read("c"), "c")][-1] == "replied"
        assert strict.resume("c").content == "well"
    prompt = [{"llm": "model", "prompt": "Hi {{nobody}}"}]
    with agents.engine(["never asked"], policy="strict", responses=prompt) as strict:
        with pytest.raises(Warned, match="nobody"):
            strict.run("hi", conversation="c")
        assert strict.hosts.made["model"].requests == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ("hi", agents.calls(("echo", {"text": 2**70}))),
        ("hi", {"content": "half a \ud83d"}),
        ("half a \ud83d", {"content": "fine"}),
    ],
)
def test_what_no_log_can_carry_is_told(message: str, reply: Any) -> None:
    """S3.10: what was turned into the nearest value is a warning, and the turn acts on what the log says."""
    store = MemoryStore()
    with agents.engine([reply, "done"], log=store) as run:
        result = run.run(message, conversation="c")
    assert [CHANGED in warning for warning in result.warnings] == [True]
    assert list(replay(store.read("c"), "c"))[-1].step.snapshot.answer == result.content
    assert all(call["params"] == {"text": str(2**70)} for call in result.tool_calls)
    with (
        agents.engine([reply, "done"], policy="strict") as strict,
        pytest.raises(Warned, match="64 bits"),
    ):
        strict.run(message)
