"""Empty texts and calls on the wire: dropped where hosts send them, not sent where hosts refuse them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolchart.providers.anthropic import wire as anthropic_wire
from toolchart.providers.gemini import wire as gemini_wire
from toolchart.providers.ollama import wire as ollama_wire
from toolchart.providers.openai import responses_wire
from toolchart.providers.openai import wire as openai_wire
from toolchart.states.messages import Message, Reply, Request, ToolCall

EMPTY_CALL: dict[str, Any] = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
CALL: dict[str, Any] = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def decode(message: dict[str, Any], reason: str = "stop") -> Reply:
    """The reply of a chat-completions host with this message."""
    return openai_wire.decode_reply({"choices": [{"message": message, "finish_reason": reason}]})


@pytest.mark.parametrize(
    ("calls", "ids"),
    [
        ([EMPTY_CALL], []),
        ([{}], []),
        ([EMPTY_CALL, CALL, EMPTY_CALL], ["a"]),
        ([{**EMPTY_CALL, "id": "b"}], ["b"]),
    ],
    ids=["one", "nothing in it", "around a call", "with an id"],
)
def test_an_empty_call_beside_an_answer_is_no_call(calls: list[dict[str, Any]], ids: list[str]) -> None:
    """A call without name, id and arguments is dropped, so that a plain answer ends the turn; others stay."""
    reply = decode({"role": "assistant", "content": "Well.", "tool_calls": calls})
    assert [call.id for call in reply.tool_calls] == ids
    assert reply.content == "Well."
    assert (reply.finish_reason == "stop") == (not ids)


@pytest.mark.parametrize("content", [None, "", []])
def test_an_empty_answer_has_no_content(content: Any) -> None:
    """No text, an empty one and an empty list of parts are the same: there is no content."""
    assert decode({"role": "assistant", "content": content}).content is None


def encode_chat(*messages: Message) -> list[dict[str, Any]]:
    """The messages of a chat-completions body, as they are sent."""
    body = openai_wire.encode_request(Request(model="m", messages=messages))
    return list(json.loads(json.dumps(body["messages"], default=dict)))


SAID = Message(role="user", content="Look.")
LOOK = ToolCall(id="a", name="look", arguments={})


@pytest.mark.parametrize("content", [None, ""])
def test_a_message_without_words_is_sent_as_empty_text(content: str | None) -> None:
    """An assistant that neither spoke nor called, a result and a question without text have the content `""`:
    hosts refuse null there. Beside calls the content is as it was."""
    sent = encode_chat(
        Message(role="user", content=content),
        Message(role="assistant", content=content),
        SAID,
        Message(role="assistant", content=content, tool_calls=(LOOK,)),
        Message(role="tool", content=content, tool_call_id="a"),
    )
    assert [message["content"] for message in sent] == ["", "", "Look.", content, ""]


def test_no_host_is_sent_null_for_a_message_without_words() -> None:
    """In every wire format an assistant without words leaves no null behind."""
    messages = (SAID, Message(role="assistant", content=None), SAID)
    request = Request(model="m", messages=messages)
    bodies = [
        openai_wire.encode_request(request)["messages"],
        responses_wire.encode_request(request)["input"],
        anthropic_wire.encode_request(request)["messages"],
        gemini_wire.encode_request(request)["contents"],
        ollama_wire.encode_request(request)["messages"],
    ]
    for body in bodies:
        assert "null" not in json.dumps(body, default=dict)
