"""The last moments of a turn: a cancellation that comes too late, and time that is nearly spent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import make_engine, make_function_tool, reply_with_calls

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.states.events import Event
from toolchart.states.messages import Reply
from toolchart.testing import TurnableClock


def list_types(engine: Engine) -> list[str]:
    """The types of a conversation's events, in order."""
    return [json.loads(line)["event"]["type"] for line in engine.store.read_lines("c")]


async def test_a_cancellation_after_the_last_step_changes_nothing() -> None:
    """Where the task of a turn is cancelled when its last record is made and not yet written, the record is
    written, nothing follows it, and the next turn begins as if nothing had been."""
    turns: list[asyncio.Task[Any]] = []

    def cancel_at_the_end(event: Event, step: Any) -> None:
        if step.snapshot.is_over and turns and event.TYPE == "replied":
            turns.pop().cancel()

    engine = make_engine(["One.", "Two."], observer=cancel_at_the_end)
    turns.append(asyncio.ensure_future(engine.arun("1?", conversation="c")))
    turn = turns[0]
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert list_types(engine) == ["configured", "turn_started", "replied"]
    assert (await engine.arun("2?", conversation="c")).content == "Two."
    assert "cancelled" not in list_types(engine)
    assert list(replay_conversation(engine.store, "c"))
    await engine.aclose()


@pytest.mark.parametrize(("left_s", "content"), [(0.9, "In time."), (0.001, "In time."), (0.0, None)])
async def test_the_last_part_of_a_second_is_used(left_s: float, content: str | None) -> None:
    """While anything of `max_seconds` is left the model is asked; then the limit ends the turn."""
    clock = TurnableClock()

    def work(arguments: Any) -> str:
        clock.advance(5 - left_s)
        return "worked"

    tool = make_function_tool("work", {"type": "object", "properties": {}}, work)
    replies = [reply_with_calls(("work", {})), "In time."]
    engine = make_engine(replies, chart="full", functions=[tool], clock=clock, limits={"max_seconds": 5})
    async with engine:
        result = await engine.arun("Go.", conversation="c")
    expected = (content, None) if content else (result.content, "max_seconds")
    assert (result.content, result.limit_reached) == expected


# -- all texts of a turn, and none -----------------------------------------------------------------


def say_beside_call(text: str) -> dict[str, Any]:
    """A scripted reply with a text and a call."""
    return {"content": text, **reply_with_calls(("look", {}))}


LOOK = make_function_tool("look", {"type": "object"}, lambda: "seen")


@pytest.mark.parametrize("is_endless", [False, True])
def test_all_texts_of_a_turn_are_kept_beside_the_last(is_endless: bool) -> None:
    """S3: `content` is the last text of a turn, and `combined_text` all of them in order, those of this turn
    alone, at a limit with the chart's own answer; a turn of one text says it once."""
    ends = [say_beside_call(f"Step {number}.") for number in range(9)] if is_endless else ["It is there."]
    replies = ["Hello.", say_beside_call("I look."), say_beside_call("Once more."), *ends]
    engine = make_engine(replies, functions=[LOOK], limits={"max_iterations": 3})
    first = engine.run("Hi", conversation="c")
    assert (first.content, first.combined_text) == ("Hello.", "Hello.")
    assert "combined_text" not in first.to_dict()
    second = engine.run("Look", conversation="c")
    texts = ["I look.", "Once more.", *(["Step 0."] if is_endless else [])]
    assert second.combined_text == "\n\n".join([*texts, second.content])
    assert second.to_dict()["combined_text"] == second.combined_text
    assert second.limit_reached == ("max_iterations" if is_endless else None)
    assert engine.describe_turn("c").combined_text == second.combined_text


@pytest.mark.parametrize("reply", ["", " \n"])
def test_an_empty_answer_is_warned_of(reply: str) -> None:
    """A turn that ends well with neither text nor calls says so in its warnings."""
    result = make_engine([Reply(content=reply, finish_reason="stop")]).run("Hi")
    assert result.warnings == ("the model's answer is empty: it has neither text nor calls",)
    assert make_engine(["Yes."]).run("Hi").warnings == ()
