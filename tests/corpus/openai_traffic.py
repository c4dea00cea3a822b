"""Chat completions of OpenAI, Azure, Ollama's `/v1` and a host with `reasoning_content`."""

from __future__ import annotations

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

OPENAI = "https://api.openai.com/v1/chat/completions"
AZURE = "https://marlow-point.openai.azure.com/openai/v1/chat/completions"
OLLAMA = "<OLLAMA_API_BASE>/v1/chat/completions"
COMPATIBLE = "https://models.marlow-point.example/v1/chat/completions"

CREATED = 1_790_000_000
CALL_IDS = ("call_marlow_tide_01", "call_marlow_lamp_02")
FILTERED = {"hate": {"filtered": False, "severity": "safe"}}
PROMPT_FILTER = [{"prompt_index": 0, "content_filter_results": FILTERED}]


def _build_request(uri: str, *messages: JsonObject, **more: Any) -> JsonObject:
    system = {"role": "developer", "content": SYSTEM}
    return {"model": "harbour-4", "messages": [system, *messages], **more}


def _build_tools() -> list[JsonObject]:
    return [{"type": "function", "function": tool} for tool in TOOLS]


def _build_calls() -> list[JsonObject]:
    return [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": encode_compact(arguments)},
        }
        for call_id, name, arguments in zip(CALL_IDS, NAMES, ARGUMENTS, strict=True)
    ]


def _build_usage(tokens: tuple[int, int]) -> JsonObject:
    return {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _build_completion(
    message: JsonObject, word: str, tokens: tuple[int, int], *, is_azure: bool = False
) -> bytes:
    choice: JsonObject = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "logprobs": None,
        "finish_reason": word,
    }
    body: JsonObject = {
        "id": f"chatcmpl-marlow-{tokens[0]}",
        "object": "chat.completion",
        "created": CREATED,
        "model": "harbour-4-2026",
        "choices": [choice],
        "usage": _build_usage(tokens),
    }
    if is_azure:
        choice["content_filter_results"] = FILTERED
        body["prompt_filter_results"] = PROMPT_FILTER
    return encode_json(body)


def _build_stream(
    message: JsonObject, word: str, tokens: tuple[int, int], *, is_azure: bool = False
) -> bytes:
    """The message in small deltas, then the finish reason, then the usage."""
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": part} for part in cut_text(message.get("reasoning_content") or "")]
    deltas += [{"content": part} for part in cut_text(message.get("content") or "")]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = {"name": call["function"]["name"], "arguments": ""}
        deltas.append({"tool_calls": [{**call, "index": index, "function": function}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in cut_text(call["function"]["arguments"], 5)
        ]
    head = {
        "id": f"chatcmpl-marlow-{tokens[0]}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": "harbour-4-2026",
    }
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": word})
    chunks: list[JsonObject] = [{**head, "choices": [choice]} for choice in choices]
    if is_azure:
        first = {**head, "id": "", "model": "", "choices": []}
        chunks.insert(0, {**first, "prompt_filter_results": PROMPT_FILTER})
        choices[-1]["content_filter_results"] = FILTERED
    chunks.append({**head, "choices": [], "usage": _build_usage(tokens)})
    return encode_events(chunks, done=True)


def _build_conversation(
    uri: str, *, is_streamed: bool = False, is_azure: bool = False, thought: str = "", **options: Any
) -> list[Exchange]:
    """A question with two parallel calls, and the answer after their results."""
    build = _build_stream if is_streamed else _build_completion
    own_keys = {"reasoning_content": thought} if thought else {}
    call_message = {"content": None, **own_keys, "tool_calls": _build_calls()}
    question = {"role": "user", "content": QUESTION}
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": encode_compact(result)}
        for call_id, result in zip(CALL_IDS, RESULTS, strict=True)
    ]
    more = {"tools": _build_tools(), **options}
    if is_streamed:
        more |= {"stream": True, "stream_options": {"include_usage": True}}
    history = [question, {"role": "assistant", **call_message}, *results]
    content_type = SSE if is_streamed else "application/json"
    return [
        Exchange(
            uri=uri,
            request=_build_request(uri, question, **more),
            response=build(call_message, "tool_calls", (61, 34), is_azure=is_azure),
            content_type=content_type,
            expected=expect_reply(
                "", ("tool_calls", "tool_calls"), (61, 34), reasoning=thought, call_ids=CALL_IDS
            ),
        ),
        Exchange(
            uri=uri,
            request=_build_request(uri, *history, **more),
            response=build({"content": ANSWER}, "stop", (128, 27), is_azure=is_azure),
            content_type=content_type,
            expected=expect_reply(ANSWER, ("stop", "stop"), (128, 27)),
        ),
    ]


def _build_greeting(uri: str, *, is_streamed: bool = False, **more: Any) -> Exchange:
    """One question with one answer; the text of the question is written as a part."""
    build = _build_stream if is_streamed else _build_completion
    message = {"role": "user", "content": [{"type": "text", "text": GREETING}]}
    if is_streamed:
        more |= {"stream": True, "stream_options": {"include_usage": True}}
    is_azure = uri == AZURE
    return Exchange(
        uri=uri,
        request=_build_request(uri, message, **more),
        response=build({"content": WELCOME, "refusal": None}, "stop", (29, 18), is_azure=is_azure),
        content_type=SSE if is_streamed else "application/json",
        expected=expect_reply(WELCOME, ("stop", "stop"), (29, 18)),
    )


def _build_error(uri: str, status: int, error: JsonObject, expected: JsonObject, **headers: str) -> Exchange:
    return Exchange(
        uri=uri,
        request=_build_request(uri, {"role": "user", "content": GREETING}),
        response=encode_json({"error": error}),
        expected=expected,
        status=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def _build_openai_errors() -> list[Exchange]:
    key = {"message": "The key does not open this gate.", "type": "invalid_request_error"}
    slow = {"message": "Too many boats at once.", "type": "requests", "code": "rate_limit_exceeded"}
    long = {"message": "The log book is too long.", "code": "context_length_exceeded"}
    fault = {"message": "The crane is stuck.", "type": "server_error"}
    return [
        _build_error(OPENAI, 401, key, expect_error("auth", status=401, retryable=False)),
        _build_error(
            OPENAI,
            429,
            slow,
            expect_error("rate_limited", status=429, retryable=True, retry_after_s=7.0),
            retry_after="7",
        ),
        _build_error(OPENAI, 400, long, expect_error("context_length", status=400, retryable=False)),
        _build_error(OPENAI, 500, fault, expect_error("server", status=500, retryable=True)),
    ]


def _build_stream_error() -> Exchange:
    """An error inside a stream that began with status 200."""
    chunk = {"id": "x", "choices": [{"index": 0, "delta": {"content": "The ti"}}]}
    error = {"error": {"message": "The line was lost.", "code": 503}}
    return Exchange(
        uri=COMPATIBLE,
        request=_build_request(COMPATIBLE, {"role": "user", "content": GREETING}, stream=True),
        response=encode_events([chunk, error]),
        content_type=SSE,
        expected=expect_error("overloaded", status=503, retryable=True),
    )


def _build_azure_error() -> Exchange:
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": FILTERED}
    error = {
        "message": "The question was held back by the content filter of the harbour.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": inner,
    }
    return _build_error(AZURE, 400, error, expect_error("content_filter", status=400, retryable=False))


CASSETTES: dict[str, tuple[str, list[Exchange]]] = {
    "openai-chat/own__whole": (
        "pair",
        [_build_greeting(OPENAI, max_completion_tokens=90, temperature=0.25, seed=11)],
    ),
    "openai-chat/own__streamed": ("text", [_build_greeting(OPENAI, is_streamed=True)]),
    "openai-chat/own__errors": ("parsed", _build_openai_errors()),
    "openai-chat/own__tools": (
        "gzip",
        _build_conversation(OPENAI, parallel_tool_calls=True, tool_choice="auto"),
    ),
    "openai-chat/own__tools_streamed": ("text", _build_conversation(OPENAI, is_streamed=True)),
    "azure-openai/own__tools": ("parsed", _build_conversation(AZURE, is_azure=True)),
    "azure-openai/own__streamed": ("gzip", [_build_greeting(AZURE, is_streamed=True)]),
    "azure-openai/own__error": ("text", [_build_azure_error()]),
    "ollama-openai-endpoint/own__tools": ("ruby", _build_conversation(OLLAMA, temperature=0)),
    "openai-compatible-chat/own__reasoning": ("text", _build_conversation(COMPATIBLE, thought=THOUGHT)),
    "openai-compatible-chat/own__reasoning_streamed": (
        "ruby",
        _build_conversation(COMPATIBLE, is_streamed=True, thought=THOUGHT),
    ),
    "openai-compatible-chat/own__error_in_stream": ("text", [_build_stream_error()]),
}
