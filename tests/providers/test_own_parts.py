"""Pictures, sounds and files in cassettes of our own: valid by the SDKs' types, and the same after a trip."""

from __future__ import annotations

import json
from typing import Any

import pytest
from canonical_requests import read_request
from pydantic import TypeAdapter
from recorded_exchanges import Exchange, read_cassette, read_recorded_reply
from recorded_traffic import find_recording
from request_rebuilding import rebuild_request

from toolchart.providers.registry import create_body_builder
from toolchart.specs.models import LLMConfig
from toolchart.states.content import AudioPart, FilePart, ImagePart
from toolchart.states.messages import Message, Request, ToolCall

ENTRIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"provider": "openai"},
    "openai-responses": {"provider": "openai", "api": "responses"},
    "anthropic": {"provider": "anthropic"},
    "gemini": {"provider": "gemini"},
    "ollama-native": {"provider": "ollama"},
}
KINDS: dict[str, list[type]] = {
    "openai-chat": [ImagePart, ImagePart, AudioPart, FilePart],
    "openai-responses": [ImagePart, ImagePart, FilePart],
    "anthropic": [ImagePart, ImagePart, FilePart],
    "gemini": [ImagePart, AudioPart, FilePart],
    "ollama-native": [ImagePart],
}
"""The parts beside the text of each cassette."""


def read_exchange(wire: str) -> Exchange:
    """The exchange of a wire's cassette with parts."""
    (exchange,) = read_cassette(find_recording(f"cassettes/{wire}/own__parts.yaml"))
    return exchange


def validate_request(wire: str, body: dict[str, Any]) -> None:
    """Check a request against the types of the host's SDK."""
    if wire == "openai-chat":
        from openai.types.chat import ChatCompletionMessageParam

        TypeAdapter(list[ChatCompletionMessageParam]).validate_python(body["messages"])
    elif wire == "openai-responses":
        from openai.types.responses import ResponseInputParam

        TypeAdapter(ResponseInputParam).validate_python(body["input"])
    elif wire == "anthropic":
        from anthropic.types import MessageParam

        TypeAdapter(list[MessageParam]).validate_python(body["messages"])
    elif wire == "gemini":
        from google.genai import types

        for content in body["contents"]:
            types.Content.model_validate(content)
    else:
        import ollama

        for message in body["messages"]:
            images = [ollama.Image(value=data) for data in message.get("images", ())]
            ollama.Message.model_validate({**message, "images": images or None})


def validate_answer(wire: str, body: dict[str, Any]) -> None:
    """Check an answer against the type of the host's SDK."""
    if wire == "openai-chat":
        from openai.types.chat import ChatCompletion as Answer
    elif wire == "openai-responses":
        from openai.types.responses import Response as Answer  # type: ignore[assignment]
    elif wire == "anthropic":
        from anthropic.types import Message as Answer  # type: ignore[assignment]
    elif wire == "gemini":
        from google.genai.types import GenerateContentResponse as Answer  # type: ignore[assignment]
    else:
        from ollama import ChatResponse as Answer  # type: ignore[assignment]
    Answer.model_validate(body)


@pytest.mark.parametrize("wire", ENTRIES)
def test_the_cassettes_have_the_types_of_the_sdks(wire: str) -> None:
    """Issue 15, done when: request and answer of each cassette are valid by the SDK's own types."""
    exchange = read_exchange(wire)
    validate_request(wire, dict(exchange.request_body))
    validate_answer(wire, json.loads(exchange.response_body))


@pytest.mark.parametrize("wire", ENTRIES)
def test_parts_come_back_as_they_were_sent(wire: str) -> None:
    """Issue 15, done when: the parts of a recorded request, read into our form and written again, are those
    of the recording, byte for byte, and valid by the SDK's types."""
    exchange = read_exchange(wire)
    canonical = read_request(exchange.endpoint, exchange.request_body, exchange.uri)
    request = rebuild_request(canonical)
    parts = [part for message in request.messages for part in message.parts]
    assert [type(part) for part in parts[1:]] == KINDS[wire]
    builder = create_body_builder(LLMConfig.model_validate({**ENTRIES[wire], "api_key": "k"}), resolve=str)
    body = json.loads(json.dumps(builder.build_body(request, stream=False)))
    validate_request(wire, body)
    assert read_request(exchange.endpoint, body, exchange.uri)["messages"] == canonical["messages"]
    sent, recorded = json.dumps(body), json.dumps(exchange.request_body)
    for part in parts[1:]:
        value = getattr(part, "data", "") or getattr(part, "url", "")
        assert value
        assert value in sent
        assert value in recorded


def test_a_picture_in_a_reply_is_kept() -> None:
    """The picture that Gemini's answer holds after its text is a part of the reply."""
    reply = read_recorded_reply(read_exchange("gemini"))
    (picture,) = [part for part in reply.parts if isinstance(part, ImagePart)]
    assert picture.read_bytes().endswith(b"chart of Marlow Point")
    assert picture.media_type == "image/png"


# -- arguments that a fork has changed -----------------------------------------------------------------

_OLD, _NEW = "Oslo", "Bergen"
_OWN_REPLIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "anthropic": (
        {"provider": "anthropic"},
        {
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "a", "name": "look_up", "input": {"city": _OLD}},
            ]
        },
    ),
    "gemini": (
        {"provider": "gemini"},
        {
            "content": {
                "parts": [
                    {"functionCall": {"name": "look_up", "args": {"city": _OLD}}, "thoughtSignature": "s"}
                ]
            }
        },
    ),
    "gemini, without arguments": (
        {"provider": "gemini"},
        {"content": {"parts": [{"functionCall": {"name": "look_up"}, "thoughtSignature": "s"}]}},
    ),
    "responses": (
        {"provider": "openai", "api": "responses"},
        {
            "output": [
                {"type": "reasoning", "id": "r", "summary": []},
                {
                    "type": "function_call",
                    "call_id": "a",
                    "name": "look_up",
                    "arguments": json.dumps({"city": _OLD}),
                },
            ]
        },
    ),
    "responses, free text": (
        {"provider": "openai", "api": "responses"},
        {
            "output": [
                {"type": "reasoning", "id": "r", "summary": []},
                {"type": "custom_tool_call", "call_id": "a", "name": "look_up", "input": _OLD},
            ]
        },
    ),
}


@pytest.mark.parametrize("name", _OWN_REPLIES)
def test_a_host_hears_the_arguments_that_a_fork_gave(name: str) -> None:
    """What a host wants back of its reply goes back, with the arguments that the call has now."""
    entry, data = _OWN_REPLIES[name]
    arguments = {"input": _NEW} if "free text" in name else {"city": _NEW}
    request = Request(
        model="m",
        messages=(
            Message(role="user", content="hi"),
            Message(
                role="assistant",
                tool_calls=(ToolCall(id="a", name="look_up", arguments=arguments),),
                provider_data={"provider": entry["provider"], **data},
            ),
            Message(role="tool", tool_call_id="a", name="look_up", content="rain"),
        ),
    )
    builder = create_body_builder(LLMConfig.model_validate({"api_key": "k", **entry}), resolve=str)
    sent = json.dumps(builder.build_body(request, stream=False))
    assert _NEW in sent
    assert _OLD not in sent
    assert any(word in sent for word in ("signature", "thoughtSignature", "reasoning"))
