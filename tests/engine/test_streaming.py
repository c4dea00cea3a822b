"""Streaming: deltas and steps arrive in order, and the log is the same as without streaming."""

from __future__ import annotations

import asyncio
from typing import Any

import agents
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.engine import Turn
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.streaming import StepTaken
from toolchart.providers.shared.replies import iterate_deltas
from toolchart.states.core.encoding import CHANGE_WARNING
from toolchart.states.errors import SpecError
from toolchart.states.events import Replied
from toolchart.states.messages import CallArguments, CallStarted, ReasoningDelta, Reply, TextDelta

SCRIPT = [agents.reply_with_calls(("calculator", {"expression": "1+2"})), "That makes three."]


def stream_turn(message: str, **options: Any) -> list[object]:
    """Run a turn as a stream; return everything that it yields."""

    async def collect() -> list[object]:
        async with agents.make_engine(SCRIPT, log=MemoryStore(), **options) as engine:
            return [piece async for piece in engine.stream(message)]

    return asyncio.run(collect())


def test_a_stream_yields_deltas_steps_and_the_result_in_order() -> None:
    """S3.4: a stream yields deltas of text and calls, every step, and the result last."""
    pieces = stream_turn("1+2")
    states = [piece.step.target for piece in pieces if isinstance(piece, StepTaken)]
    assert states == ["prompting", "awaiting_tools", "executing", "prompting", "finished"]
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    assert text == "That makes three."
    assert [p.name for p in pieces if isinstance(p, CallStarted)] == ["calculator"]
    first_delta = next(i for i, p in enumerate(pieces) if isinstance(p, CallStarted))
    first_step = next(
        i for i, p in enumerate(pieces) if isinstance(p, StepTaken) and p.step.target == "awaiting_tools"
    )
    assert first_delta < first_step
    assert isinstance(pieces[-1], Turn)
    assert pieces[-1].content == "That makes three."


def test_a_turn_that_cannot_begin_raises_out_of_the_stream() -> None:
    """An error of the turn is raised by the stream."""

    async def collect() -> None:
        async with agents.make_engine(SCRIPT, log=MemoryStore()) as engine:
            async for _ in engine.stream("x", handler="nobody"):
                pass

    with pytest.raises(SpecError):
        asyncio.run(collect())


def test_closing_a_stream_cancels_its_turn() -> None:
    """Closing a stream stops the turn; the log has every step before that and can be resumed."""

    async def close_early() -> tuple[str, int]:
        async with agents.make_engine(SCRIPT, log=MemoryStore()) as engine:
            stream = engine.stream("1+2", conversation="c")
            async for piece in stream:
                if isinstance(piece, StepTaken) and piece.step.target == "awaiting_tools":
                    break
            await stream.aclose()
            records = len(list(engine.store.read_lines("c")))
            result = await engine.conversation("c").aresume()
            return result.state, records

    state, records = asyncio.run(close_early())
    assert records >= 3
    assert state in ("finished", "cancelled")


@given(st.text(), st.text())
def test_deltas_lose_nothing(text: str, reasoning: str) -> None:
    """The deltas of a reply contain its whole text and reasoning."""
    reply = Reply(content=text, reasoning=reasoning, finish_reason="stop")
    pieces = list(iterate_deltas(reply))
    assert "".join(p.text for p in pieces if isinstance(p, TextDelta)) == text
    assert "".join(p.text for p in pieces if isinstance(p, ReasoningDelta)) == reasoning
    assert not [p for p in pieces if isinstance(p, CallArguments)]


def test_the_log_can_keep_deltas() -> None:
    """S3.4: with `log_deltas` the log keeps the deltas and replays; a redacted log never keeps them."""
    store = MemoryStore()
    with agents.make_engine(SCRIPT, log=store, log_deltas=True) as engine:
        engine.run("1+2", conversation="c")
    replayed_events = [event.record.decode_event() for event in replay(store.read_lines("c"), "c")]
    delta_lists = [event.deltas for event in replayed_events if isinstance(event, Replied)]
    assert [delta["kind"] for delta in delta_lists[0]] == ["call", "arguments"]
    assert "".join(delta["text"] for delta in delta_lists[1]) == "That makes three."
    with agents.make_engine(SCRIPT, log=MemoryStore()) as silent:
        silent.run("1+2", conversation="c")
        assert b"deltas" not in b"".join(silent.store.read_lines("c"))
    with agents.make_engine(SCRIPT, log_deltas=True, redact={"patterns": ["email"]}) as secret:
        secret.run("1+2", conversation="c")
        assert b'"deltas"' not in b"".join(list(secret.store.read_lines("c"))[1:])


def test_a_strict_policy_ends_at_a_warning() -> None:
    """S3.10: a strict policy ends the turn in error at a warning; a lenient one logs it and continues."""
    odd = Reply(content="well", finish_reason="stop", warnings=("the host said something odd",))
    with agents.make_engine([odd], log=MemoryStore()) as lenient:
        assert lenient.run("hi").warnings == ("the host said something odd",)
    store = MemoryStore()
    with agents.make_engine([odd], log=store, policy="strict", chart="full") as strict:
        result = strict.run("hi", conversation="c")
        assert (result.state, result.error.kind) == ("error", "strict_policy")
        assert "something odd" in result.error.message
        assert result.content == "well"
        assert [event.record.event["type"] for event in replay(store.read_lines("c"), "c")][-1] == "replied"
    prompt = [{"llm": "model", "prompt": "Hi {{nobody}}"}]
    with agents.make_engine(["never asked"], policy="strict", responses=prompt, chart="full") as strict:
        result = strict.run("hi", conversation="c")
        assert (result.state, result.error.kind) == ("error", "strict_policy")
        assert "nobody" in result.error.message
        assert strict.hosts.providers["model"].requests == []  # type: ignore[attr-defined]


def test_a_replaced_value_is_a_warning() -> None:
    """S3.10: a value that was replaced for the log gives a warning, and the turn uses the logged value."""
    reply = agents.reply_with_calls(("echo", {"text": float("nan")}))
    store = MemoryStore()
    with agents.make_engine([reply, "done"], log=store) as run:
        result = run.run("hi", conversation="c")
    assert [CHANGE_WARNING in warning for warning in result.warnings] == [True]
    assert list(replay(store.read_lines("c"), "c"))[-1].step.snapshot.answer == result.content
    assert [call["params"] for call in result.tool_calls] == [{"text": None}]
    with agents.make_engine([reply, "done"], policy="strict", chart="full") as strict:
        result = strict.run("hi")
        assert (result.state, result.error.kind) == ("error", "strict_policy")
        assert CHANGE_WARNING in result.error.message


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ("hi", agents.reply_with_calls(("echo", {"text": 2**70}))),
        ("hi", {"content": "half a \ud83d"}),
        ("half a \ud83d", {"content": "fine"}),
    ],
)
def test_long_integers_and_lone_surrogates_are_kept(message: str, reply: Any) -> None:
    """The log keeps the digits of long integers and the code units of broken text, without a warning."""
    store = MemoryStore()
    with agents.make_engine([reply, "done"], log=store) as run:
        result = run.run(message, conversation="c")
    assert result.warnings == ()
    steps = list(replay(store.read_lines("c"), "c"))
    assert steps[-1].step.snapshot.answer == result.content
    assert [call["params"] for call in result.tool_calls] in ([], [{"text": str(2**70)}])
    assert steps[1].step.snapshot.messages[0].content == message


def test_asking_the_chart_ahead_copies_no_messages() -> None:
    """Whether a text is the answer is asked of the chart before it has ended. The messages of a conversation
    are not copied for that: the snapshots of all its turns share one list."""
    plain = [{"name": "plain", "llm": "model"}]

    async def collect() -> list[Any]:
        async with agents.make_engine(["one", "two", "three"], responses=plain) as engine:
            messages = ("a", "b", "c")
            streams = [engine.stream(message, conversation="c") for message in messages]
            return [piece for stream in streams async for piece in stream]

    pieces = asyncio.run(collect())
    assert [piece.doubt for piece in pieces if isinstance(piece, TextDelta)] == [""] * 3
    snapshots = [piece.step.snapshot for piece in pieces if isinstance(piece, StepTaken)]
    lists = {id(snapshot.messages._tail._shared) for snapshot in snapshots if snapshot.turn}
    assert (len(snapshots[-1].messages), len(lists)) == (6, 1)
