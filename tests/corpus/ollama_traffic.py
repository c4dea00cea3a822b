"""Ollama's own `/api/chat`: arguments are objects, streams are JSON lines."""

from __future__ import annotations

from typing import Any

from spellings import NDJSON, Exchange, encode_json
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

URI = "${OLLAMA_HOST}/api/chat"
CALL_IDS = ("call_tide21", "call_lamp22")
TIME = "2026-09-21T09:00:00.000000Z"


def _build_request(*messages: JsonObject, **more: Any) -> JsonObject:
    system = {"role": "system", "content": SYSTEM}
    return {"model": "harbour:4b", "messages": [system, *messages], "stream": False, **more}


def _build_calls() -> list[JsonObject]:
    pairs = zip(CALL_IDS, NAMES, ARGUMENTS, strict=True)
    return [
        {"id": call_id, "function": {"index": index, "name": name, "arguments": arguments}}
        for index, (call_id, name, arguments) in enumerate(pairs)
    ]


def _build_end(message: JsonObject, tokens: tuple[int, int]) -> JsonObject:
    return {
        "model": "harbour:4b",
        "created_at": TIME,
        "message": {"role": "assistant", **message},
        "done": True,
        "done_reason": "stop",
        "total_duration": 810_000_000,
        "prompt_eval_count": tokens[0],
        "eval_count": tokens[1],
    }


def _encode_lines(message: JsonObject, tokens: tuple[int, int]) -> bytes:
    """The message in JSON lines: thinking and text in pieces, each call whole in a line."""
    pieces: list[JsonObject] = [
        {"content": "", "thinking": part} for part in cut_text(message.get("thinking", ""))
    ]
    pieces += [{"content": part} for part in cut_text(message["content"])]
    pieces += [{"content": "", "tool_calls": [call]} for call in message.get("tool_calls", ())]
    lines: list[JsonObject] = [
        {"model": "harbour:4b", "created_at": TIME, "message": {"role": "assistant", **piece}, "done": False}
        for piece in pieces
    ]
    lines.append(_build_end({"content": ""}, tokens))
    return "".join(encode_compact(line) + "\n" for line in lines).encode()


def _build_exchange(
    request: JsonObject,
    message: JsonObject,
    expected: JsonObject,
    tokens: tuple[int, int],
    *,
    is_streamed: bool,
) -> Exchange:
    return Exchange(
        uri=URI,
        request={**request, "stream": is_streamed},
        response=_encode_lines(message, tokens) if is_streamed else encode_json(_build_end(message, tokens)),
        content_type=NDJSON if is_streamed else "application/json",
        expected=expected,
    )


def _build_greeting(*, is_streamed: bool, **more: Any) -> Exchange:
    return _build_exchange(
        _build_request({"role": "user", "content": GREETING}, **more),
        {"content": WELCOME},
        expect_reply(WELCOME, ("stop", "stop"), (31, 19)),
        (31, 19),
        is_streamed=is_streamed,
    )


def _build_conversation(*, is_streamed: bool) -> list[Exchange]:
    question = {"role": "user", "content": QUESTION}
    tools = [{"type": "function", "function": tool} for tool in TOOLS]
    call_message = {"content": "", "thinking": THOUGHT, "tool_calls": _build_calls()}
    results = [
        {"role": "tool", "tool_name": name, "tool_call_id": call_id, "content": encode_compact(result)}
        for name, call_id, result in zip(NAMES, CALL_IDS, RESULTS, strict=True)
    ]
    history = [question, {"role": "assistant", **call_message}, *results]
    return [
        _build_exchange(
            _build_request(question, tools=tools),
            call_message,
            expect_reply("", ("tool_calls", "stop"), (88, 41), reasoning=THOUGHT, call_ids=CALL_IDS),
            (88, 41),
            is_streamed=is_streamed,
        ),
        _build_exchange(
            _build_request(*history, tools=tools),
            {"content": ANSWER},
            expect_reply(ANSWER, ("stop", "stop"), (140, 30)),
            (140, 30),
            is_streamed=is_streamed,
        ),
    ]


def _build_errors() -> list[Exchange]:
    request = _build_request({"role": "user", "content": GREETING})
    problems = [
        (404, "model 'harbour:4b' is not on this quay", "not_found"),
        (400, "harbour:4b does not support tools", "tools_unsupported"),
    ]
    return [
        Exchange(
            uri=URI,
            request=request,
            response=encode_json({"error": text}),
            status=status,
            expected=expect_error(kind, status=status, retryable=False),
        )
        for status, text, kind in problems
    ]


CASSETTES: dict[str, tuple[str, list[Exchange]]] = {
    "ollama-native/own__whole": (
        "ruby",
        [_build_greeting(is_streamed=False, options={"temperature": 0, "num_predict": 64})],
    ),
    "ollama-native/own__streamed": ("gzip", [_build_greeting(is_streamed=True)]),
    "ollama-native/own__tools": ("parsed", _build_conversation(is_streamed=False)),
    "ollama-native/own__tools_streamed": ("ruby", _build_conversation(is_streamed=True)),
    "ollama-native/own__errors": ("text", _build_errors()),
}
