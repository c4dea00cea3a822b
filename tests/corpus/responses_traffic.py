"""OpenAI's Responses API: items instead of messages, typed events instead of chunks."""

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

URI = "https://api.openai.com/v1/responses"
CALL_IDS = ("call_marlow_tide_11", "call_marlow_lamp_12")
SEALED = base64.b64encode(b"the sealed thought of the keeper " * 3).decode()


def _build_request(items: Any, **more: Any) -> JsonObject:
    return {"model": "harbour-4", "instructions": SYSTEM, "input": items, **more}


def _build_message_item(text: str) -> JsonObject:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": "msg_marlow_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def _build_call_items() -> list[JsonObject]:
    return [
        {
            "id": f"fc_marlow_{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": call_id,
            "name": name,
            "arguments": encode_compact(arguments),
        }
        for number, (call_id, name, arguments) in enumerate(zip(CALL_IDS, NAMES, ARGUMENTS, strict=True))
    ]


def _build_reasoning_item() -> JsonObject:
    return {
        "id": "rs_marlow_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": THOUGHT}],
        "encrypted_content": SEALED,
    }


def _build_response(items: list[JsonObject], tokens: tuple[int, int], **more: Any) -> JsonObject:
    usage = {
        "input_tokens": tokens[0],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens[1],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sum(tokens),
    }
    return {
        "id": f"resp_marlow_{tokens[0]}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "harbour-4-2026",
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
        **more,
    }


def _encode_stream(response: JsonObject) -> bytes:
    """A response as typed events: each item is announced, sent in deltas, and repeated complete."""
    first_response = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[JsonObject] = [
        {"type": "response.created", "response": first_response},
        {"type": "response.in_progress", "response": first_response},
    ]
    for index, item in enumerate(response["output"]):
        empty = {**item, "status": "in_progress"}
        empty |= {key: [] for key in ("content", "summary") if key in item}
        empty |= {key: "" for key in ("arguments",) if key in item}
        place = {"output_index": index}
        events.append({"type": "response.output_item.added", **place, "item": empty})
        kind, text = {
            "message": lambda item: ("output_text", item["content"][0]["text"]),
            "function_call": lambda item: ("function_call_arguments", item["arguments"]),
            "reasoning": lambda item: ("reasoning_summary_text", item["summary"][0]["text"]),
        }[item["type"]](item)
        place |= {"item_id": item["id"]}
        place |= {"summary_index": 0} if kind == "reasoning_summary_text" else {}
        place |= {"content_index": 0, "logprobs": []} if kind == "output_text" else {}
        events += [{"type": f"response.{kind}.delta", **place, "delta": part} for part in cut_text(text)]
        ending = {"arguments": text} if kind == "function_call_arguments" else {"text": text}
        events.append({"type": f"response.{kind}.done", **place, **ending})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": response})
    numbered = [{**event, "sequence_number": n} for n, event in enumerate(events)]
    return encode_events(numbered, named=True)


def _build_exchange(
    request: JsonObject, response: JsonObject, expected: JsonObject, *, is_streamed: bool
) -> Exchange:
    return Exchange(
        uri=URI,
        request={**request, "stream": True} if is_streamed else request,
        response=_encode_stream(response) if is_streamed else encode_json(response),
        content_type=SSE if is_streamed else "application/json",
        expected=expected,
    )


def _build_greeting(*, is_streamed: bool, items: Any = GREETING, **more: Any) -> Exchange:
    response = _build_response([_build_message_item(WELCOME)], (27, 17))
    expected = expect_reply(WELCOME, ("stop", "completed"), (27, 17))
    return _build_exchange(_build_request(items, **more), response, expected, is_streamed=is_streamed)


def _build_conversation(*, is_streamed: bool) -> list[Exchange]:
    """Encrypted reasoning with two calls; both go back with the results."""
    question = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}
    tools = [{"type": "function", "strict": False, **tool} for tool in TOOLS]
    more = {"tools": tools, "store": False, "include": ["reasoning.encrypted_content"]}
    own_items = [_build_reasoning_item(), *_build_call_items()]
    results = [
        {"type": "function_call_output", "call_id": call_id, "output": encode_compact(result)}
        for call_id, result in zip(CALL_IDS, RESULTS, strict=True)
    ]
    return [
        _build_exchange(
            _build_request([question], **more),
            _build_response(own_items, (74, 58)),
            expect_reply("", ("tool_calls", "completed"), (74, 58), reasoning=THOUGHT, call_ids=CALL_IDS),
            is_streamed=is_streamed,
        ),
        _build_exchange(
            _build_request([question, *own_items, *results], **more),
            _build_response([_build_message_item(ANSWER)], (161, 26)),
            expect_reply(ANSWER, ("stop", "completed"), (161, 26)),
            is_streamed=is_streamed,
        ),
    ]


def _build_errors() -> list[Exchange]:
    failed = _build_response(
        [], (9, 0), status="failed", error={"code": "server_error", "message": "The crane fell."}
    )
    message = "There is no boat of that name."
    unknown = {"error": {"message": message, "type": "invalid_request_error", "param": "model"}}
    request = _build_request(GREETING)
    return [
        Exchange(
            uri=URI,
            request=request,
            response=encode_json(failed),
            expected=expect_error("server", status=500, retryable=True),
        ),
        Exchange(
            uri=URI,
            request=request,
            response=encode_json(unknown),
            expected=expect_error("not_found", status=404, retryable=False),
            status=404,
        ),
    ]


CASSETTES: dict[str, tuple[str, list[Exchange]]] = {
    "openai-responses/own__whole": (
        "parsed",
        [_build_greeting(is_streamed=False, max_output_tokens=90, temperature=0.5)],
    ),
    "openai-responses/own__streamed": (
        "gzip",
        [_build_greeting(is_streamed=True, items=[{"role": "user", "content": GREETING}])],
    ),
    "openai-responses/own__reasoning_tools": ("text", _build_conversation(is_streamed=False)),
    "openai-responses/own__reasoning_tools_streamed": ("text", _build_conversation(is_streamed=True)),
    "openai-responses/own__errors": ("ruby", _build_errors()),
}
