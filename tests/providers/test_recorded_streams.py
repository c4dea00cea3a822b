"""Recorded streams give the same reply as an answer without streaming, and fail where they were cut."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from recorded_exchanges import Exchange, decode_stream, read_cassette, read_recorded_reply
from recorded_traffic import CORPORA, find_recording, list_streamed_cassettes, read_index

from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import wire as wire_openai
from toolchart.states.errors import ProviderError

ENDPOINTS = ("chat", "responses", "gemini", "ollama", "messages")

FAILING = {
    "own": {
        "cassettes/anthropic/own__error_in_stream": "an error event",
        "cassettes/openai-compatible-chat/own__error_in_stream": "an error inside a 200 stream",
    },
    "recorded": {
        "test_tool_use_failed_error_streaming": "the host refused its own call inside the stream",
        "test_openrouter_stream_error": "an error inside a 200 stream",
    },
}
"""Recorded streams that are failures, by a part of their names."""

MINIMUM_COUNTS = {
    "own": {"chat": 6, "gemini": 3, "messages": 3, "ollama": 3, "responses": 3},
    "recorded": {"chat": 41, "gemini": 11, "ollama": 1, "responses": 31},
}
"""By corpus and endpoint: the least number of streams."""


def read_by_hand(exchange: Exchange) -> tuple[str, Counter[str]]:
    """Text and names of calls of a stream, read from its lines without an adapter."""
    text, names = "", Counter[str]()
    for line in re.split(rb"\r?\n", exchange.response_body):
        if not line.startswith((b"data: {", b'{"model"')):
            continue
        chunk = json.loads(line.removeprefix(b"data: "))
        if exchange.endpoint == "chat":
            delta = chunk["choices"][0]["delta"] if chunk.get("choices") else {}
            text += delta.get("content") or ""
            calls = [call.get("function") or {} for call in delta.get("tool_calls") or ()]
        elif exchange.endpoint == "ollama":
            text += chunk["message"].get("content") or ""
            calls = [call["function"] for call in chunk["message"].get("tool_calls") or ()]
        elif exchange.endpoint == "messages":
            text += chunk.get("delta", {}).get("text") or ""
            block = chunk.get("content_block", {})
            calls = [block] if block.get("type") == "tool_use" else []
        elif exchange.endpoint == "responses":
            text += chunk["delta"] if chunk["type"] == "response.output_text.delta" else ""
            done = chunk["item"] if chunk["type"] == "response.output_item.done" else {}
            calls = [done] if done.get("type") in ("function_call", "custom_tool_call") else []
        else:
            candidate = (chunk.get("candidates") or [{}])[0]
            parts = candidate.get("content", {}).get("parts") or ()
            text += "".join(p.get("text", "") for p in parts if not p.get("thought"))
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
        names.update(call["name"] for call in calls if call.get("name"))
    return text, names


@pytest.mark.parametrize("corpus", CORPORA)
def test_recorded_streams_are_read_completely(corpus: str) -> None:
    """Every recorded stream gives the text and the calls of its lines."""
    read_counts, failed_tests = Counter[str](), set[str]()
    for path in list_streamed_cassettes(corpus):
        for exchange in read_cassette(find_recording(path)):
            is_model_stream = exchange.is_streamed and exchange.endpoint in ENDPOINTS
            if not is_model_stream or exchange.response_body.startswith(b"["):
                continue
            try:
                reply = read_recorded_reply(exchange)
            except ProviderError:
                failed_tests.add(path.split(".")[-2])
                continue
            text, names = read_by_hand(exchange)
            assert (reply.content or "") == text or has_content_parts(exchange), path
            assert Counter(call.name for call in reply.tool_calls) == names, path
            assert all(call.arguments is not None for call in reply.tool_calls), path
            read_counts[exchange.endpoint] += 1
    assert failed_tests == set(FAILING[corpus])
    assert read_counts >= Counter(MINIMUM_COUNTS[corpus])


def has_content_parts(exchange: Exchange) -> bool:
    """Whether the host sent its content as parts, some of which are reasoning (Mistral)."""
    return b'"content":[' in exchange.response_body


@pytest.mark.parametrize("corpus", CORPORA)
def test_streams_recorded_as_arrays_are_read(corpus: str) -> None:
    """Gemini's stream without `alt=sse` is an array of chunks, and gives the same reply."""
    paths = [entry["file"] for entry in read_index(corpus)]
    other_paths = [p for p in paths if "gemini/llm-gemini" in p or "gemini/own__array" in p]
    arrays = [
        exchange
        for path in [*list_streamed_cassettes(corpus), *other_paths]
        for exchange in read_cassette(find_recording(path))
        if exchange.endpoint == "gemini" and exchange.response_body.startswith(b"[")
    ]
    assert arrays
    for exchange in arrays:
        chunks = json.loads(exchange.response_body)
        parts = [p for c in chunks for p in c["candidates"][0].get("content", {}).get("parts", ())]
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        assert (read_recorded_reply(exchange).content or "") == text


# -- a stream gives the reply of the whole answer ------------------------------------------------

TEXT = st.text(max_size=12)
CALL = st.tuples(st.sampled_from(["a", "b"]), st.dictionaries(TEXT, st.integers() | TEXT, max_size=2))


def encode_event_stream(*chunks: Any, end: str = "data: [DONE]\n\n") -> bytes:
    """Chunks as the bytes of an event stream."""
    lines = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks]
    return ("".join(lines) + end).encode("utf-8", "surrogatepass")


def cut_text(text: str, data: st.DataObject) -> list[str]:
    """The text cut into random pieces."""
    positions = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *positions], [*positions, len(text)], strict=True)]


@given(TEXT, TEXT, st.lists(CALL, max_size=3), st.data())
def test_chat_stream_gives_the_reply_of_the_whole_answer(
    text: str, thought: str, calls: list[Any], data: st.DataObject
) -> None:
    """However text, reasoning and arguments are cut, the joined body gives the whole reply."""
    tool_calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for n, (name, args) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning": thought}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    whole = {
        "id": "r",
        "model": "m",
        "usage": usage,
        "choices": [{"message": {**message, "tool_calls": tool_calls}, "finish_reason": "stop"}],
    }
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"reasoning": piece} for piece in cut_text(thought, data)]
    deltas += [{"content": piece} for piece in cut_text(text, data)]
    for n, call in enumerate(tool_calls):
        first, *rest = cut_text(call["function"]["arguments"], data)
        name = call["function"]["name"]
        first_piece = {**call, "index": n, "function": {"name": name, "arguments": first}}
        deltas.append({"tool_calls": [first_piece]})
        deltas += [{"tool_calls": [{"index": n, "function": {"arguments": piece}}]} for piece in rest]
    chunks = [{"id": "r", "model": "m", "choices": [{"delta": delta}]} for delta in deltas]
    ends = [{"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage}]
    streamed = decode_stream("chat", encode_event_stream(*chunks, *ends))
    assert streamed == wire_openai.decode_reply(whole)


@example([], [("a", {"beyond 64 bits": -(2**63) - 1})])
@given(st.lists(TEXT, max_size=4), st.lists(CALL, max_size=2))
def test_gemini_and_ollama_streams_give_the_reply_of_the_whole_answer(
    texts: list[str], calls: list[Any]
) -> None:
    """Gemini's parts and Ollama's lines join to the whole answer; a signature stays on its part."""
    parts: list[dict[str, Any]] = [{"text": text} for text in texts]
    parts += [{"functionCall": {"name": name, "args": args}} for name, args in calls]
    parts.append({"text": "", "thoughtSignature": "c2ln"})
    chunks: list[Any] = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    chunks.append({"candidates": [{"finishReason": "STOP"}], "modelVersion": "g"})
    whole = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "modelVersion": "g",
    }
    for body in (encode_event_stream(*chunks, end=""), json.dumps(chunks).encode()):
        assert decode_stream("gemini", body) == wire_gemini.decode_reply(whole)
    tool_calls = [{"function": {"name": name, "arguments": args}} for name, args in calls]
    lines: list[Any] = [{"message": {"content": text}, "done": False} for text in texts]
    lines += [{"message": {"content": "", "tool_calls": [call]}, "done": False} for call in tool_calls]
    end = {"model": "o", "done": True, "done_reason": "stop", "eval_count": 2}
    body = "\n".join(map(json.dumps, [*lines, {**end, "message": {"content": ""}}])).encode()
    expected = {**end, "message": {"content": "".join(texts), "tool_calls": tool_calls}}
    assert decode_stream("ollama", body) == wire_ollama.decode_reply(expected)


def make_call_chunk(**call: Any) -> dict[str, Any]:
    """A chunk with a piece of a call."""
    return {"choices": [{"delta": {"tool_calls": [call]}}]}


@pytest.mark.parametrize("index", [{"index": 0}, {}])
def test_another_id_begins_another_call(index: dict[str, int]) -> None:
    """Where the host numbers every call 0, or none, calls are distinguished by their ids."""
    chunks = [
        make_call_chunk(id="x", function={"name": "a", "arguments": '{"p":'}, **index),
        make_call_chunk(function={"arguments": "1}"}, **index),
        make_call_chunk(id="y", function={"name": "b", "arguments": "{}"}, **index),
    ]
    reply = decode_stream("chat", encode_event_stream(*chunks))
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("x", "a", {"p": 1}),
        ("y", "b", {}),
    ]
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("endpoint", "body", "kind"),
    [
        ("chat", encode_event_stream({"choices": [{"delta": {"content": "half"}}]}, end=""), "bad_response"),
        ("chat", encode_event_stream({"error": {"message": "no", "code": 429}}, end=""), "rate_limited"),
        ("chat", b'data: {"choices"\n\n', "bad_response"),
        (
            "gemini",
            encode_event_stream({"candidates": [{"content": {"parts": [{"text": "a"}]}}]}, end=""),
            "bad_response",
        ),
        ("ollama", b'{"message": {"content": "a"}, "done": false}\n{"message": {}}', "bad_response"),
        ("ollama", b'{"message": {"content": "a"}}\n{"error": "out of memory"}', None),
        ("responses", encode_event_stream({"type": "response.created", "response": {}}), "bad_response"),
        ("responses", encode_event_stream({"type": "error", "code": "server_error", "message": "no"}), None),
        ("messages", encode_event_stream({}), "bad_response"),
    ],
)
def test_broken_streams_fail(endpoint: str, body: bytes, kind: str | None) -> None:
    """A recorded stream that was cut, has an error, or is not JSON fails like a live one."""
    with pytest.raises(ProviderError) as caught:
        decode_stream(endpoint, body)
    assert kind in (None, caught.value.kind)


@given(st.binary(max_size=60) | st.text(alphabet='data:{}[]" \n\\1,e', max_size=60).map(str.encode))
def test_any_bytes_give_a_reply_or_a_failure(body: bytes) -> None:
    """Reading any bytes of a cassette gives a reply or a classified failure."""
    for endpoint in ENDPOINTS:
        exchange = Exchange(
            method="POST",
            uri="",
            endpoint=endpoint,
            request_body={},
            status=200,
            headers={},
            response_body=body,
            is_streamed=True,
        )
        with suppress(ProviderError):
            assert read_recorded_reply(exchange).finish_reason


KEYS = [
    "choices",
    "delta",
    "message",
    "tool_calls",
    "function",
    "arguments",
    "id",
    "name",
    "index",
    "content",
    "parts",
    "candidates",
    "finish_reason",
    "finishReason",
    "done",
    "functionCall",
    "text",
    "usage",
]

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=14,
)


@given(st.lists(JSON, max_size=4))
def test_any_chunks_give_a_body_or_a_failure(chunks: list[Any]) -> None:
    """Known keys with any values, as a broken host may send them, raise no other exception."""
    for endpoint in ENDPOINTS:
        with suppress(ProviderError):
            assert decode_stream(endpoint, encode_event_stream(*chunks)).finish_reason
