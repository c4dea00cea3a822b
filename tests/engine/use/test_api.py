"""The Python API for everyday use: structured output, handles of conversations, streams after an approval."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from pydantic import BaseModel

from toolchart import Decided, IllegalEvent, SpecError, StepTaken, TextDelta, Turn
from toolchart.engine.log.replay import replay_conversation

ASKING: dict[str, Any] = {"approval": [{"tools": "echo", "decision": "ask"}]}
CALL = reply_with_calls(("echo", {"text": "a"}))


class City(BaseModel):
    """A city."""

    name: str
    people: int


def test_an_answer_has_the_type_that_was_asked_for() -> None:
    """Issue 16: with `output_type` the host is asked for the schema, and `data` is an instance."""
    with make_engine(['{"name": "Rome", "people": 2800000}']) as engine:
        result = engine.run("Which?", conversation="c", output_type=City)
        request = engine.hosts.providers["model"].requests[0]  # type: ignore[attr-defined]
        assert list(replay_conversation(engine.store, "c"))
    assert result.data == City(name="Rome", people=2_800_000)
    assert result.to_dict()["data"] == {"name": "Rome", "people": 2_800_000}
    schema = request.options["response_format"]["json_schema"]["schema"]
    assert set(schema["properties"]) == {"name", "people"}


def test_types_that_are_no_objects_are_wrapped() -> None:
    """Issue 16: `list[int]` is a type too; one without a JSON Schema is refused, and nothing is written."""
    with make_engine(['{"value": [1, 2]}']) as engine:
        assert engine.run("Which?", output_type=list[int]).data == [1, 2]
        with pytest.raises(SpecError, match="no JSON Schema"):
            engine.run("Which?", conversation="d", output_type=type(engine))
        assert "d" not in list(engine.store.list_conversations())


def test_a_handle_sends_approves_and_forks() -> None:
    """Issue 16: `conversation.send`, `.approve` and `.fork` act on one conversation."""
    with make_engine([CALL, "done", "again", "forked"], **ASKING) as engine:
        conversation = engine.conversation("c")
        assert conversation.send("go").pending_approvals == conversation.pending_approvals
        assert conversation.approve(by="me").content == "done"
        with pytest.raises(SpecError, match="name the call"):
            conversation.approve()
        assert conversation.send("more").content == "again"
        fork = conversation.fork()
        assert fork.parent == "c"
        assert engine.conversation().id != engine.conversation().id


def test_a_rejection_through_the_handle() -> None:
    """Issue 16: a handle rejects with a reason, and a call that does not wait is refused."""
    with make_engine([CALL, "fine"], **ASKING) as engine:
        conversation = engine.conversation("c")
        conversation.send("go")
        with pytest.raises(IllegalEvent):
            conversation.approve("call_9_9_9")
        result = conversation.approve(approved=False, reason="no")
    assert result.tool_calls[0].outcome == "denied"


async def test_a_turn_streams_on_after_an_approval() -> None:
    """Issue 16: `stream_resume` and the handle's `stream_approval` yield all, the result last."""
    async with make_engine([CALL, "it is done", CALL, "twice"], **ASKING) as engine:
        conversation = engine.conversation("c")
        first = [piece async for piece in conversation.stream("go")]
        assert isinstance(first[-1], Turn)
        second = [piece async for piece in conversation.stream_approval()]
        assert isinstance(second[-1], Turn)
        assert second[-1].content == "it is done"
        assert any(isinstance(piece, StepTaken) for piece in second)
        assert "".join(piece.text for piece in second if isinstance(piece, TextDelta)) == "it is done"
        (pending,) = (await conversation.asend("again")).pending_approvals
        decision = Decided(call_id=pending.id, approved=True)
        third = [piece async for piece in engine.conversation("c").stream_resume(decision)]
        assert third[-1].content == "twice"  # type: ignore[union-attr]


async def test_a_second_approval_at_the_same_time_is_refused() -> None:
    """Issue 16: of two approvals of one call only one is taken; the tool runs once."""
    async with make_engine([CALL, "done"], **ASKING) as engine:
        (pending,) = (await engine.arun("go", conversation="c")).pending_approvals
        decision = Decided(call_id=pending.id, approved=True)
        answers = await asyncio.gather(
            *(engine.conversation("c").aresume(decision) for _ in range(3)), return_exceptions=True
        )
        results = [answer for answer in answers if isinstance(answer, Turn)]
        assert [result.content for result in results] == ["done"]
        assert all(isinstance(one, (SpecError, IllegalEvent)) for one in answers if one not in results)
        events = [json.loads(line)["event"]["type"] for line in engine.store.read_lines("c")]
        assert events.count("tool_finished") == 1
