"""Nothing that a host said is lost or mixed up: choices, mixed content, halves of characters, details."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import to_builtins
from recorded_exchanges import get_adapter, read_cassette
from recorded_traffic import CORPORA, find_recording, list_cassette_paths
from web import WebAnswer, serve_web
from wire_requests import QUESTION, make_config

from toolchart.providers.anthropic.wire import decode_reply as decode_message
from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.gemini.wire import decode_reply as decode_candidate
from toolchart.providers.ollama.wire import decode_reply as decode_chat
from toolchart.providers.openai.responses_wire import decode_reply as decode_response
from toolchart.providers.openai.responses_wire import encode_request as encode_response_request
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.providers.openai.wire import decode_reply as decode_choice
from toolchart.providers.registry import create_provider
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Delta, Message, Reply, Request, TextDelta

CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}


def chunk(index: int, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk of one choice."""
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def read_chat(chunks: list[dict[str, Any]]) -> tuple[list[Delta], Reply]:
    """The deltas and the reply of a stream of chat completions."""
    accumulator = ChatAccumulator()
    deltas = [delta for frame in chunks for delta in accumulator.add_frame(frame)]
    return deltas, decode_choice(accumulator.build_body())


def test_several_choices_of_a_stream_stay_apart() -> None:
    """Issue 15.4: the first choice is the reply; the others are kept beside it, with a warning."""
    chunks = [
        chunk(0, content="Oslo"),
        chunk(1, content="Rome", tool_calls=[CALL]),
        {"choices": [chunk(1, content=" is")["choices"][0], chunk(0, content=" is")["choices"][0]]},
        chunk(1, tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
        chunk(1, "tool_calls"),
        chunk(0, "stop", content=" cold"),
    ]
    deltas, reply = read_chat(chunks)
    assert (reply.content, reply.tool_calls, reply.finish_reason) == ("Oslo is cold", (), "stop")
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Oslo is cold"
    assert len(deltas) == 3
    (other,) = (reply.details or {})["other_choices"]
    assert (other["message"]["content"], other["finish_reason"]) == ("Rome is", "tool_calls")
    assert other["message"]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert reply.warnings == ("the host sent 2 choices; the first is the reply",)


def test_several_candidates_of_a_stream_stay_apart() -> None:
    """Issue 15.4: candidates of Gemini are kept apart by their index, streamed and whole."""

    def piece(index: int, text: str, **keys: Any) -> dict[str, Any]:
        return {"index": index, "content": {"parts": [{"text": text}]}, **keys}

    frames = [
        {"candidates": [piece(0, "Oslo"), piece(1, "Rome")]},
        {"candidates": [piece(1, " is", finishReason="MAX_TOKENS")]},
        {"candidates": [piece(0, " is", finishReason="STOP")]},
    ]
    accumulator = GeminiAccumulator()
    deltas = [delta for frame in frames for delta in accumulator.add_frame(frame)]
    body = accumulator.build_body()
    reply = decode_candidate(body)
    assert (reply.content, reply.finish_reason, len(deltas)) == ("Oslo is", "stop", 2)
    assert "Rome" in json.dumps((reply.details or {})["other_candidates"])
    assert reply.warnings == ("the host sent 2 candidates; the first is the reply",)


def test_content_that_changes_its_form_is_joined() -> None:
    """Issue 15.5: list, text, list and text in one stream (Mistral) give all texts and thoughts in order."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    reference = {"type": "reference", "reference_ids": [3]}
    chunks = [
        chunk(0, content="A"),
        chunk(0, content=[thinking, {"type": "text", "text": "B"}]),
        chunk(0, content="C"),
        chunk(0, content=[{"type": "text", "text": "D"}, reference]),
        chunk(0, "stop", content="E"),
    ]
    deltas, reply = read_chat(chunks)
    assert (reply.content, reply.reasoning) == ("ABCDE", "Hm.")
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "ABCDE"
    assert reference in (reply.details or {})["content"]


HALVES = ("\ud83d", "\ude00")
SMILE = "\U0001f600"
ARGUMENTS = ('{"a": "\ud83d', '\ude00"}')


def stream_lines(entry: str) -> str:
    """A stream in which a character comes in two pieces, as each host writes it."""
    one, two = HALVES
    match entry:
        case "openai":
            frames = [
                chunk(0, content=one),
                chunk(0, content=two, tool_calls=[CALL]),
                *(chunk(0, tool_calls=[{"index": 0, "function": {"arguments": text}}]) for text in ARGUMENTS),
                chunk(0, "tool_calls"),
            ]
        case "anthropic":
            block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            tool = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
            frames = [
                {"type": "message_start", "message": {}},
                block,
                *(
                    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
                    for text in HALVES
                ),
                {"type": "content_block_start", "index": 1, "content_block": tool},
                *(
                    {
                        "type": "content_block_delta",
                        "index": 1,
                        "delta": {"type": "input_json_delta", "partial_json": text},
                    }
                    for text in ARGUMENTS
                ),
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
                {"type": "message_stop"},
            ]
        case "ollama":
            call = {"function": {"name": "f", "arguments": {"a": SMILE}}}
            frames = [
                {"message": {"content": one}},
                {"message": {"content": two, "tool_calls": [call]}, "done": True, "done_reason": "stop"},
            ]
            return "".join(f"{json.dumps(frame)}\n" for frame in frames)
        case _:
            call = {"functionCall": {"name": "f", "args": {"a": SMILE}}}
            frames = [
                {"candidates": [{"content": {"parts": [{"text": one}]}}]},
                {"candidates": [{"content": {"parts": [{"text": two}, call]}, "finishReason": "STOP"}]},
            ]
    return "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)


@pytest.mark.parametrize("entry", ["openai", "anthropic", "ollama", "gemini"])
def test_halves_of_a_character_are_joined(entry: str) -> None:
    """Issue 15.5: a character whose halves come in two pieces is whole, in the reply and in the deltas."""

    def answer(_: dict[str, Any]) -> WebAnswer:
        return 200, {"content-type": "text/event-stream"}, stream_lines(entry).encode()

    async def collect_items() -> list[Any]:
        with serve_web(answer) as server:
            provider: Any = create_provider(make_config(entry, server.url, api_key="k"), resolve=str)
            request = Request(model="m", messages=[QUESTION])
            items = [item async for item in provider.stream(request)]
            await provider.aclose()
            return items

    *deltas, reply = asyncio.run(collect_items())
    assert (reply.content, reply.tool_calls[0].arguments) == (SMILE, {"a": SMILE})
    for delta in deltas:
        getattr(delta, "text", "").encode()  # no half is shown
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == SMILE


def test_the_phase_of_items_goes_back() -> None:
    """Issue 15.5: an item's `phase` (commentary, final answer) is kept and sent back."""
    item = {
        "type": "message",
        "role": "assistant",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
    }
    reply = decode_response({"status": "completed", "output": [item]})
    message = Message(role="assistant", content=reply.content, provider_data=reply.provider_data)
    assert encode_response_request(Request(model="m", messages=[message]))["input"] == [item]


CITATION = {"type": "url_citation", "url": "http://x"}
LOGPROBS = {"content": [{"token": "a", "logprob": -0.1}]}
DETAILS: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (
        decode_choice,
        {
            "id": "r",
            "object": "chat.completion",
            "created": 5,
            "model": "m",
            "service_tier": "default",
            "system_fingerprint": "fp",
            "citations": ["http://x"],
            "choices": [
                {
                    "index": 0,
                    "logprobs": LOGPROBS,
                    "finish_reason": "stop",
                    "message": {
                        "role": "assistant",
                        "content": "a",
                        "annotations": [CITATION],
                        "refusal": None,
                    },
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens_details": {"audio_tokens": 0, "x_tokens": 3}},
        },
        {
            "service_tier": "default",
            "system_fingerprint": "fp",
            "citations": ["http://x"],
            "logprobs": LOGPROBS,
            "annotations": [CITATION],
            "usage": {"completion_tokens_details": {"x_tokens": 3}},
        },
    ),
    (
        decode_response,
        {
            "status": "completed",
            "service_tier": "flex",
            "temperature": 1.0,
            "tools": [],
            "output": [
                {
                    "type": "message",
                    "content": [
                        {"type": "output_text", "text": "a", "annotations": [CITATION], "logprobs": [1]}
                    ],
                }
            ],
        },
        {"service_tier": "flex", "annotations": [CITATION], "logprobs": [1]},
    ),
    (
        decode_candidate,
        {
            "modelVersion": "m",
            "candidates": [
                {
                    "content": {"parts": [{"text": "a"}]},
                    "finishReason": "STOP",
                    "groundingMetadata": {"webSearchQueries": ["q"]},
                    "safetyRatings": [{"category": "c"}],
                }
            ],
            "usageMetadata": {"promptTokenCount": 1, "promptTokensDetails": [{"modality": "TEXT"}]},
        },
        {
            "groundingMetadata": {"webSearchQueries": ["q"]},
            "safetyRatings": [{"category": "c"}],
            "usage": {"promptTokensDetails": [{"modality": "TEXT"}]},
        },
    ),
    (
        decode_message,
        {
            "content": [{"type": "text", "text": "a", "citations": [CITATION]}],
            "stop_reason": "stop_sequence",
            "stop_sequence": "#",
            "usage": {"input_tokens": 1, "service_tier": "standard"},
        },
        {"stop_sequence": "#", "usage": {"service_tier": "standard"}},
    ),
    (
        decode_chat,
        {"message": {"content": "a"}, "done": True, "total_duration": 5, "logprobs": [{"token": "a"}]},
        {"total_duration": 5, "logprobs": [{"token": "a"}]},
    ),
]


@pytest.mark.parametrize(
    ("decode", "body", "details"), DETAILS, ids=["chat", "responses", "gemini", "messages", "ollama"]
)
def test_what_else_a_host_said_is_kept(decode: Any, body: dict[str, Any], details: dict[str, Any]) -> None:
    """Issue 15.5: citations, log probabilities, tier, fingerprint and grounding are in the details."""
    reply = decode(body)
    assert reply.details == details
    assert reply.content == "a"


def test_details_of_streams_are_kept() -> None:
    """Issue 15.5: what a stream says once, or piece by piece, is in the details as in a whole answer."""
    first = {**chunk(0, content="a"), "service_tier": "flex", "system_fingerprint": "fp", "object": "x"}
    first["choices"][0]["logprobs"] = {"content": [{"token": "a"}]}
    last = chunk(0, "stop", annotations=[CITATION])
    last["choices"][0]["logprobs"] = {"content": [{"token": "b"}]}
    _, reply = read_chat([first, last])
    assert reply.details == {
        "service_tier": "flex",
        "system_fingerprint": "fp",
        "logprobs": {"content": [{"token": "a"}, {"token": "b"}]},
        "annotations": [CITATION],
    }


LEFT_OUT = {
    "chat": r"object|created|choices\.message\.(role|tool_calls\.type)|usage\.prompt_cache_miss_tokens",
    "responses": r"(object|created_at|completed_at|output\.(id|type|role|status|content\.type))"
    r"|(instructions|tools|tool_choice|truncation|text|reasoning|prompt_cache_retention|top_p|temperature"
    r"|max_output_tokens|max_tool_calls|previous_response_id|prompt_cache_key|safety_identifier|user"
    r"|top_logprobs|presence_penalty|frequency_penalty|prompt)(\..*)?",
    "gemini": r"createTime|usageMetadata\.candidatesTokenCount|candidates\.(index|content\.role)",
    "ollama": r"created_at|message\.role",
    "messages": r"type|role|content\.type|usage\.(input_tokens|output_tokens)",
}
"""Key paths that no reply keeps, as `docs/providers.md` says: repetitions, times, types, roles, plain ids."""


def iterate_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The key path and the value of every text and number that is not empty."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from iterate_leaves(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from iterate_leaves(item, path)
    elif value not in (None, "", False, True, 0):
        yield path, value


@pytest.mark.parametrize("corpus", CORPORA)
def test_every_field_of_a_recorded_reply_is_kept_or_listed(corpus: str) -> None:
    """Issue 15: each value of each recorded whole answer is in the reply, or its key is on the list."""
    count = 0
    for path in list_cassette_paths(corpus):
        for exchange in read_cassette(find_recording(path)):
            if exchange.endpoint == "other":
                continue  # embeddings, lists of models
            try:
                body = json.loads(exchange.response_body)
                reply = get_adapter(exchange.endpoint).decode_answer(body)
            except (ValueError, ProviderError):
                continue  # a stream, or a failure
            text, count = json.dumps(to_builtins(reply)), count + 1
            for key, value in iterate_leaves(body):
                is_kept = json.dumps(value).strip('"') in text or json.dumps(json.dumps(value))[3:-3] in text
                assert is_kept or re.fullmatch(LEFT_OUT[exchange.endpoint], key), (path, key, value)
    assert count >= {"own": 15, "recorded": 500}[corpus]


_INFINITE_CALLS: dict[str, Any] = {
    "anthropic": (
        decode_message,
        {"content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": [1e999]}}]},
    ),
    "gemini": (
        decode_candidate,
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {"a": [1e999]}}}]}}]},
    ),
    "ollama": (
        decode_chat,
        {"message": {"tool_calls": [{"function": {"name": "f", "arguments": {"a": [1e999]}}}]}, "done": True},
    ),
    "chat completions": (
        decode_choice,
        {
            "choices": [
                {
                    "message": {
                        "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"a": [1e999]}}}]
                    }
                }
            ]
        },
    ),
    "responses": (
        decode_response,
        {
            "status": "completed",
            "output": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": [1e999]}'}],
        },
    ),
}


@pytest.mark.parametrize("host", _INFINITE_CALLS)
def test_a_call_with_a_number_out_of_range_carries_the_problem(host: str) -> None:
    """A number that no float can hold is a problem of the call, whether arguments come as text or as an
    object; it never becomes another value."""
    decode, body = _INFINITE_CALLS[host]
    (call,) = decode(body).tool_calls
    assert (call.name, call.arguments) == ("f", None)
    assert "not valid JSON" in call.problem
    assert call.raw
