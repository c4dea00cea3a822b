"""Gemini's generateContent, also at a Vertex address: contents with parts, signatures on calls."""

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
    expect_error,
    expect_reply,
    upper_types,
)

GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/harbour-flash"
VERTEX = (
    "https://europe-west4-aiplatform.googleapis.com/v1/projects/marlow-point/locations/europe-west4"
    "/publishers/google/models/harbour-flash"
)
SIGNATURE = base64.b64encode(bytes(range(192, 256)) + b"own signature of the keeper").decode()


def _build_request(*contents: JsonObject, **more: Any) -> JsonObject:
    return {"systemInstruction": {"parts": [{"text": SYSTEM}]}, "contents": [*contents], **more}


def _build_text_content(text: str) -> JsonObject:
    return {"role": "user", "parts": [{"text": text}]}


def _build_chunk(parts: list[JsonObject], **more: Any) -> JsonObject:
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "index": 0, **more}],
        "modelVersion": "harbour-flash-001",
        "responseId": "marlow-response",
    }


def _build_body(parts: list[JsonObject], tokens: tuple[int, int]) -> JsonObject:
    usage = {"promptTokenCount": tokens[0], "candidatesTokenCount": tokens[1], "totalTokenCount": sum(tokens)}
    return {**_build_chunk(parts, finishReason="STOP"), "usageMetadata": usage}


def _build_chunks(parts: list[JsonObject], tokens: tuple[int, int]) -> list[JsonObject]:
    """The parts in chunks: texts in pieces, calls whole, the usage in the last one."""
    pieces: list[JsonObject] = []
    for part in parts:
        texts = cut_text(part["text"], 20) if "text" in part else ()
        pieces += [{**part, "text": text} for text in texts] if texts else [part]
    chunks = [_build_chunk([piece]) for piece in pieces[:-1]]
    return [*chunks, _build_body(pieces[-1:], tokens)]


def _build_exchange(
    base: str,
    request: JsonObject,
    parts: list[JsonObject],
    expected: JsonObject,
    tokens: tuple[int, int],
    form: str = "whole",
) -> Exchange:
    """An exchange whose answer is `whole`, `sse`, or an `array` of chunks."""
    chunks = _build_chunks(parts, tokens)
    uri, response = {
        "whole": (f"{base}:generateContent", encode_json(_build_body(parts, tokens))),
        "sse": (f"{base}:streamGenerateContent?alt=sse", encode_events(chunks, newline="\r\n")),
        "array": (f"{base}:streamGenerateContent", encode_json(chunks).replace(b"[\n {", b"[{", 1)),
    }[form]
    content_type = SSE if form == "sse" else "application/json"
    return Exchange(uri=uri, request=request, response=response, expected=expected, content_type=content_type)


def _build_greeting(base: str, form: str = "whole", **more: Any) -> Exchange:
    return _build_exchange(
        base,
        _build_request(_build_text_content(GREETING), **more),
        [{"text": WELCOME}],
        expect_reply(WELCOME, ("stop", "STOP"), (25, 20)),
        (25, 20),
        form,
    )


def _build_declarations(key: str) -> list[JsonObject]:
    """The tools, their schemas in JSON Schema or in Gemini's own spelling."""
    spell = upper_types if key == "parameters" else (lambda schema: schema)
    return [
        {
            "functionDeclarations": [
                {"name": tool["name"], "description": tool["description"], key: spell(tool["parameters"])}
                for tool in TOOLS
            ]
        }
    ]


def _build_conversation(
    base: str, form: str, *, schema_key: str, call_ids: tuple[str, ...] = ("", "")
) -> list[Exchange]:
    """A thought and two calls, the first with a signature that must go back unchanged."""
    calls: list[JsonObject] = [
        {"functionCall": {**({"id": call_id} if call_id else {}), "name": name, "args": arguments}}
        for call_id, name, arguments in zip(call_ids, NAMES, ARGUMENTS, strict=True)
    ]
    calls[0]["thoughtSignature"] = SIGNATURE
    responses = [
        {
            "functionResponse": {
                **({"id": call_id} if call_id else {}),
                "name": name,
                "response": {"result": result},
            }
        }
        for call_id, name, result in zip(call_ids, NAMES, RESULTS, strict=True)
    ]
    question = _build_text_content(QUESTION)
    more = {"tools": _build_declarations(schema_key)}
    history = [question, {"role": "model", "parts": calls}, {"role": "user", "parts": responses}]
    return [
        _build_exchange(
            base,
            _build_request(question, **more),
            [{"text": THOUGHT, "thought": True}, *calls],
            expect_reply("", ("tool_calls", "STOP"), (70, 33), reasoning=THOUGHT, call_ids=call_ids),
            (70, 33),
            form,
        ),
        _build_exchange(
            base,
            _build_request(*history, **more),
            [{"text": ANSWER}],
            expect_reply(ANSWER, ("stop", "STOP"), (133, 28)),
            (133, 28),
            form,
        ),
    ]


def _build_errors() -> list[Exchange]:
    request = _build_request(_build_text_content(GREETING))
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13s"}
    rows: list[tuple[JsonObject, JsonObject]] = [
        (
            {"code": 400, "message": "No such berth.", "status": "INVALID_ARGUMENT"},
            expect_error("bad_request", status=400, retryable=False),
        ),
        (
            {"code": 429, "message": "The quay is full.", "status": "RESOURCE_EXHAUSTED", "details": [delay]},
            expect_error("rate_limited", status=429, retryable=True, retry_after_s=13.0),
        ),
        (
            {"code": 503, "message": "Fog. Come back later.", "status": "UNAVAILABLE"},
            expect_error("overloaded", status=503, retryable=True),
        ),
    ]
    return [
        Exchange(
            uri=f"{GEMINI}:generateContent",
            request=request,
            response=encode_json({"error": error}),
            status=error["code"],
            expected=expected,
        )
        for error, expected in rows
    ]


CASSETTES: dict[str, tuple[str, list[Exchange]]] = {
    "gemini/own__whole": (
        "gzip",
        [
            _build_greeting(
                GEMINI, generationConfig={"maxOutputTokens": 90, "temperature": 0.5, "stopSequences": ["#"]}
            )
        ],
    ),
    "gemini/own__streamed": ("gzip", [_build_greeting(GEMINI, "sse")]),
    "gemini/own__array": ("text", [_build_greeting(GEMINI, "array")]),
    "gemini/own__tools": ("text", _build_conversation(GEMINI, "whole", schema_key="parametersJsonSchema")),
    "gemini/own__tools_streamed": (
        "text",
        _build_conversation(GEMINI, "sse", schema_key="parametersJsonSchema", call_ids=("tide31", "lamp32")),
    ),
    "gemini/own__errors": ("parsed", _build_errors()),
    "gemini-vertex/own__tools": ("ruby", _build_conversation(VERTEX, "whole", schema_key="parameters")),
}
