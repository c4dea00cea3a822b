"""One reply, a text and a call, in the wire format of each host: whole, and as a stream."""

from __future__ import annotations

import json
from typing import Any

from aws import encode_events
from recorded_exchanges import find_endpoint
from web import WebAnswer

ARGUMENTS = {"city": "Oslo"}
CALL = {"name": "look_up", "arguments": json.dumps(ARGUMENTS)}
CHAT_CALL = {"id": "c1", "type": "function", "function": CALL}
CHAT_USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
RESPONSE = {
    "id": "r1",
    "model": "m",
    "status": "completed",
    "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "Hello there"}]},
        {"type": "function_call", "call_id": "c1", **CALL},
    ],
    "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
}
GEMINI_USAGE = {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12}
OLLAMA_CALL = {"id": "c1", "function": {"name": "look_up", "arguments": ARGUMENTS}}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "look_up", "input": ARGUMENTS}

CONVERSE_CALL = {"toolUseId": "c1", "name": "look_up"}
CONVERSE_USAGE = {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12}


def chat_choice(**keys: Any) -> dict[str, Any]:
    """A chunk of chat completions."""
    return {"id": "r1", "model": "m", "choices": [keys]}


def gemini_parts(*parts: Any, **keys: Any) -> dict[str, Any]:
    """A chunk of Gemini's."""
    candidates = [{"content": {"role": "model", "parts": list(parts)}, **keys}]
    return {"responseId": "r1", "modelVersion": "m", "candidates": candidates}


WHOLE_BODIES: dict[str, Any] = {
    "chat": {
        **chat_choice(
            message={"content": "Hello there", "tool_calls": [CHAT_CALL]}, finish_reason="tool_calls"
        ),
        "usage": CHAT_USAGE,
    },
    "responses": RESPONSE,
    "gemini": {
        **gemini_parts(
            {"text": "Hello there"},
            {"functionCall": {"id": "c1", "name": "look_up", "args": ARGUMENTS}},
            finishReason="STOP",
        ),
        "usageMetadata": GEMINI_USAGE,
    },
    "ollama": {
        "model": "m",
        "message": {"role": "assistant", "content": "Hello there", "tool_calls": [OLLAMA_CALL]},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 5,
        "eval_count": 7,
    },
    "messages": {
        "id": "r1",
        "model": "m",
        "content": [{"type": "text", "text": "Hello there"}, TOOL_USE],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 7},
    },
    "converse": {
        "output": {
            "message": {
                "role": "assistant",
                "content": [{"text": "Hello there"}, {"toolUse": {**CONVERSE_CALL, "input": ARGUMENTS}}],
            }
        },
        "stopReason": "tool_use",
        "usage": CONVERSE_USAGE,
        "metrics": {"latencyMs": 3},
    },
}
"""One reply, a text and a call, in each wire format."""

STREAMED_BODIES: dict[str, list[Any]] = {
    "chat": [
        chat_choice(delta={"content": "Hello "}),
        chat_choice(delta={"content": "there"}),
        chat_choice(delta={"tool_calls": [{"index": 0, **CHAT_CALL}]}),
        {**chat_choice(delta={}, finish_reason="tool_calls"), "usage": CHAT_USAGE},
    ],
    "responses": [
        {"type": "response.created", "response": {"id": "r1", "output": []}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hello there"},
        {"type": "response.completed", "response": RESPONSE},
    ],
    "gemini": [
        gemini_parts({"text": "Hello "}),
        gemini_parts({"text": "there"}),
        {
            **gemini_parts(
                {"functionCall": {"id": "c1", "name": "look_up", "args": ARGUMENTS}}, finishReason="STOP"
            ),
            "usageMetadata": GEMINI_USAGE,
        },
    ],
    "ollama": [
        {"model": "m", "message": {"role": "assistant", "content": "Hello "}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": "there", "tool_calls": [OLLAMA_CALL]}},
        {
            "model": "m",
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 5,
            "eval_count": 7,
        },
    ],
    "messages": [
        {"type": "message_start", "message": {"id": "r1", "model": "m", "usage": {"input_tokens": 5}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello there"}},
        {"type": "content_block_start", "index": 1, "content_block": {**TOOL_USE, "input": {}}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": json.dumps(ARGUMENTS)},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ],
    "converse": [
        {"messageStart": {"role": "assistant", "p": "abc"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hello "}, "p": "abcd"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "there"}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": CONVERSE_CALL}}},
        {
            "contentBlockDelta": {
                "contentBlockIndex": 1,
                "delta": {"toolUse": {"input": json.dumps(ARGUMENTS)}},
            }
        },
        {"contentBlockStop": {"contentBlockIndex": 1}},
        {"messageStop": {"stopReason": "tool_use", "p": "a"}},
        {"metadata": {"usage": CONVERSE_USAGE, "metrics": {"latencyMs": 3}, "p": "ab"}},
    ],
}
"""The same reply as a stream, by wire format."""


ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1", {"provider": "openai", "api": "chat"}),
    "responses": ("/v1", {"provider": "openai", "api": "responses"}),
    "messages": ("", {"provider": "anthropic"}),
    "gemini": ("", {"provider": "gemini"}),
    "ollama": ("", {"provider": "ollama"}),
    "converse": ("", {"provider": "bedrock", "region": "eu-central-1"}),
}
"""An `llms` entry for each wire format, and the end of its address."""


def encode_stream(endpoint: str) -> tuple[str, bytes]:
    """Content type and bytes of the streamed reply."""
    return encode_frames(endpoint, STREAMED_BODIES[endpoint])


def encode_frames(endpoint: str, values: list[Any]) -> tuple[str, bytes]:
    """Content type and bytes of a stream in a wire format."""
    if endpoint == "converse":
        return "application/vnd.amazon.eventstream", encode_events(values)
    frames = [json.dumps(frame) for frame in values]
    if endpoint == "ollama":
        return "application/x-ndjson", "".join(f"{frame}\n" for frame in frames).encode()
    events = [*frames, "[DONE]"] if endpoint == "chat" else frames
    return "text/event-stream", "".join(f"data: {event}\n\n" for event in events).encode()


JSON_TYPE = {"content-type": "application/json"}
FAILURES: dict[str, WebAnswer] = {
    "bad_request": (400, JSON_TYPE, b'{"error": {"message": "no"}}'),
    "rate_limited": (429, JSON_TYPE, b'{"error": {"message": "slow down"}}'),
    "bad_response": (200, JSON_TYPE, b"<html>"),
}
"""An answer for each kind of failure; the last one is found only when the answer is read."""


def find_answered_endpoint(http_request: dict[str, Any]) -> tuple[str, bool]:
    """The wire format that was called, and whether the request wants a stream."""
    path, body = http_request["path"], http_request["body"].replace(b" ", b"")
    return find_endpoint(f"http://host.test{path}"), "stream" in path or b'"stream":true' in body


def answer_request(http_request: dict[str, Any]) -> WebAnswer:
    """The reply of the wire format that was called: a stream if the request wants one."""
    endpoint, wants_stream = find_answered_endpoint(http_request)
    if not wants_stream:
        return 200, JSON_TYPE, json.dumps(WHOLE_BODIES[endpoint]).encode()
    content_type, data = encode_stream(endpoint)
    return 200, {"content-type": content_type}, data
