"""Anthropic's Messages API: content blocks, thinking with signatures, events for each block."""

from __future__ import annotations

import base64
from typing import Any

from spellings import SSE, Exchange, encode_events, encode_json
from station import (
    ANSWER,
    ARGUMENTS,
    GREETING,
    NAMES,
    QUESTION,
    RESULTS,
    SYSTEM,
    THOUGHT,
    TOOLS,
    WELCOME,
    JsonObject,
    cut_text,
    encode_compact,
    expect_error,
    expect_reply,
)

URI = "https://api.anthropic.com/v1/messages"
CALL_IDS = ("toolu_marlow_tide_41", "toolu_marlow_lamp_42")
SIGNATURE = base64.b64encode(b"own signature of a thought at Marlow Point").decode()
THINKING = {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE}
INTRODUCTION = "I look into both books."


def _build_request(*messages: JsonObject, **more: Any) -> JsonObject:
    return {
        "model": "harbour-sonnet",
        "max_tokens": 512,
        "system": [{"type": "text", "text": SYSTEM}],
        "messages": [*messages],
        **more,
    }


def _build_message(blocks: list[JsonObject], word: str, tokens: tuple[int, int]) -> JsonObject:
    return {
        "id": f"msg_marlow_{tokens[0]}",
        "type": "message",
        "role": "assistant",
        "model": "harbour-sonnet-2026",
        "content": blocks,
        "stop_reason": word,
        "stop_sequence": None,
        "usage": {"input_tokens": tokens[0], "output_tokens": tokens[1]},
    }


def _list_block_deltas(block: JsonObject) -> list[JsonObject]:
    match block["type"]:
        case "text":
            return [{"type": "text_delta", "text": part} for part in cut_text(block["text"])]
        case "thinking":
            parts = cut_text(block["thinking"])
            deltas = [{"type": "thinking_delta", "thinking": part} for part in parts]
            return [*deltas, {"type": "signature_delta", "signature": block["signature"]}]
    parts = cut_text(encode_compact(block["input"]), 6)
    return [{"type": "input_json_delta", "partial_json": part} for part in ["", *parts]]


def _encode_stream(message: JsonObject) -> bytes:
    """A message as named events: a start, deltas and a stop for each block, with a ping between."""
    usage = {**message["usage"], "output_tokens": 1}
    first_message = {**message, "content": [], "stop_reason": None, "usage": usage}
    events: list[JsonObject] = [{"type": "message_start", "message": first_message}, {"type": "ping"}]
    for index, block in enumerate(message["content"]):
        empty = {key: block[key] for key in ("type", "id", "name") if key in block}
        empty |= {key: "" for key in ("text", "thinking", "signature") if key in block}
        empty |= {"input": {}} if "input" in block else {}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta}
            for delta in _list_block_deltas(block)
        ]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    tokens = {"output_tokens": message["usage"]["output_tokens"]}
    events.append({"type": "message_delta", "delta": end, "usage": tokens})
    return encode_events([*events, {"type": "message_stop"}], named=True)


def _build_exchange(
    request: JsonObject, message: JsonObject, expected: JsonObject, *, is_streamed: bool
) -> Exchange:
    return Exchange(
        uri=URI,
        request={**request, "stream": True} if is_streamed else request,
        response=_encode_stream(message) if is_streamed else encode_json(message),
        content_type=SSE if is_streamed else "application/json",
        expected=expected,
    )


def _build_greeting(*, is_streamed: bool, **more: Any) -> Exchange:
    return _build_exchange(
        _build_request({"role": "user", "content": GREETING}, **more),
        _build_message([{"type": "text", "text": WELCOME}], "end_turn", (33, 21)),
        expect_reply(WELCOME, ("stop", "end_turn"), (33, 21)),
        is_streamed=is_streamed,
    )


def _build_conversation(*, has_thinking: bool, is_streamed: bool) -> list[Exchange]:
    """Two calls after a sentence, and after a thought; the second result says that its tool failed."""
    question = {"role": "user", "content": [{"type": "text", "text": QUESTION}]}
    tools = [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in TOOLS
    ]
    calls = [
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        for call_id, name, arguments in zip(CALL_IDS, NAMES, ARGUMENTS, strict=True)
    ]
    blocks = [*([THINKING] if has_thinking else []), {"type": "text", "text": INTRODUCTION}, *calls]
    results = [
        {"type": "tool_result", "tool_use_id": call_id, "content": encode_compact(result)}
        for call_id, result in zip(CALL_IDS, RESULTS, strict=True)
    ]
    more: JsonObject = {"tools": tools}
    if has_thinking:
        more["thinking"] = {"type": "enabled", "budget_tokens": 256}
    history = [question, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    return [
        _build_exchange(
            _build_request(question, **more),
            _build_message(blocks, "tool_use", (95, 52)),
            expect_reply(
                INTRODUCTION,
                ("tool_calls", "tool_use"),
                (95, 52),
                reasoning=THOUGHT if has_thinking else "",
                call_ids=CALL_IDS,
            ),
            is_streamed=is_streamed,
        ),
        _build_exchange(
            _build_request(*history, **more),
            _build_message([{"type": "text", "text": ANSWER}], "end_turn", (181, 29)),
            expect_reply(ANSWER, ("stop", "end_turn"), (181, 29)),
            is_streamed=is_streamed,
        ),
    ]


def _build_errors() -> list[Exchange]:
    rows: list[tuple[int, str, str, dict[str, str], JsonObject]] = [
        (
            529,
            "overloaded_error",
            "Every berth is taken.",
            {},
            expect_error("overloaded", status=529, retryable=True),
        ),
        (
            429,
            "rate_limit_error",
            "One boat at a time.",
            {"retry-after": "4"},
            expect_error("rate_limited", status=429, retryable=True, retry_after_s=4.0),
        ),
        (
            400,
            "invalid_request_error",
            "prompt is too long for the log book",
            {},
            expect_error("context_length", status=400, retryable=False),
        ),
    ]
    return [
        Exchange(
            uri=URI,
            request=_build_request({"role": "user", "content": GREETING}),
            response=encode_json({"type": "error", "error": {"type": kind, "message": text}}),
            status=status,
            headers=headers,
            expected=expected,
        )
        for status, kind, text, headers, expected in rows
    ]


def _build_stream_error() -> Exchange:
    """A stream that begins well and ends with `overloaded_error`."""
    first_message = _build_message([], "", (33, 1))
    events = [
        {"type": "message_start", "message": {**first_message, "stop_reason": None}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Fog came up."}},
    ]
    return Exchange(
        uri=URI,
        request=_build_request({"role": "user", "content": GREETING}, stream=True),
        response=encode_events(events, named=True),
        content_type=SSE,
        expected=expect_error("overloaded", status=529, retryable=True),
    )


CASSETTES: dict[str, tuple[str, list[Exchange]]] = {
    "anthropic/own__whole": (
        "text",
        [_build_greeting(is_streamed=False, temperature=0.5, stop_sequences=["#"])],
    ),
    "anthropic/own__streamed": ("gzip", [_build_greeting(is_streamed=True)]),
    "anthropic/own__tools": ("parsed", _build_conversation(has_thinking=False, is_streamed=False)),
    "anthropic/own__thinking_tools": ("text", _build_conversation(has_thinking=True, is_streamed=False)),
    "anthropic/own__thinking_tools_streamed": (
        "ruby",
        _build_conversation(has_thinking=True, is_streamed=True),
    ),
    "anthropic/own__errors": ("ruby", _build_errors()),
    "anthropic/own__error_in_stream": ("text", [_build_stream_error()]),
}
