"""Recorded streams put together: the same reply as the whole answer, a failure where they were cut."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from recorded import RECORDED, index, needs_recorded

from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.recording.cassettes import Exchange, read_cassette
from toolchart.providers.recording.recorded_calls import reply_of
from toolchart.providers.recording.stream_bodies import whole_body
from toolchart.states.errors import ProviderError

STREAMED = [
    entry["file"]
    for entry in index()
    if entry["kind"] == "cassette" and {"sse", "ndjson"} & set(entry.get("features", ()))
]

ENDPOINTS = ("chat", "responses", "gemini", "ollama")

FAILING = {
    "test_tool_use_failed_error_streaming": "the host refused its own call inside the stream",
    "test_openrouter_stream_error": "an error inside a 200 stream",
}
"""Recorded streams that are failures, by a part of their names."""


def told(exchange: Exchange) -> tuple[str, Counter[str]]:
    """Text and names of calls of a stream, read by hand from its lines."""
    text, names = "", Counter[str]()
    for line in re.split(rb"\r?\n", exchange.body):
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


@needs_recorded
def test_recorded_streams_are_read_whole() -> None:
    """Every recorded stream gives the text and the calls of its lines."""
    read, failed = Counter[str](), set[str]()
    for path in STREAMED:
        for exchange in read_cassette(RECORDED / path):
            streams = exchange.streamed and exchange.endpoint in ENDPOINTS
            if not streams or exchange.body.startswith(b"["):
                continue
            try:
                reply = reply_of(exchange)
            except ProviderError:
                failed.add(path.split(".")[-2])
                continue
            text, names = told(exchange)
            assert (reply.content or "") == text or isinstance_of_parts(exchange), path
            assert Counter(call.name for call in reply.tool_calls) == names, path
            assert all(call.arguments is not None for call in reply.tool_calls), path
            read[exchange.endpoint] += 1
    assert failed == set(FAILING)
    assert read["chat"] > 40
    assert read["gemini"] > 10
    assert read["responses"] > 30
    assert read["ollama"] == 1


def isinstance_of_parts(exchange: Exchange) -> bool:
    """Whether the host told its content in parts, thoughts among them (Mistral)."""
    return b'"content":[' in exchange.body


@needs_recorded
def test_streams_recorded_as_arrays_are_read() -> None:
    """Gemini's stream without `alt=sse` is an array of chunks, and is read as the same."""
    arrays = [
        exchange
        for path in STREAMED + [e["file"] for e in index() if "gemini/llm-gemini" in e["file"]]
        for exchange in read_cassette(RECORDED / path)
        if exchange.endpoint == "gemini" and exchange.body.startswith(b"[")
    ]
    assert arrays
    for exchange in arrays:
        chunks = json.loads(exchange.body)
        parts = [p for c in chunks for p in c["candidates"][0].get("content", {}).get("parts", ())]
        text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
        assert (reply_of(exchange).content or "") == text


# -- whole and streamed say the same -------------------------------------------------------------

TEXT = st.text(max_size=12)
CALL = st.tuples(
    st.sampled_from(["a", "b"]), st.dictionaries(TEXT, st.integers() | TEXT, max_size=2)
)


def sse(*chunks: Any, end: str = "data: [DONE]\n\n") -> bytes:
    """Chunks as an event stream."""
    lines = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks]
    return ("".join(lines) + end).encode("utf-8", "surrogatepass")


def cut(text: str, data: st.DataObject) -> list[str]:
    """The text in random pieces."""
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@given(TEXT, TEXT, st.lists(CALL, max_size=3), st.data())
def test_a_chat_stream_says_what_the_whole_answer_says(
    text: str, thought: str, calls: list[Any], data: st.DataObject
) -> None:
    """However text, reasoning and arguments are cut, the joined answer reads as the whole one."""
    listed = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(args)},
        }
        for n, (name, args) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning": thought}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    whole = {
        "id": "r",
        "model": "m",
        "usage": usage,
        "choices": [{"message": {**message, "tool_calls": listed}, "finish_reason": "stop"}],
    }
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"reasoning": piece} for piece in cut(thought, data)]
    deltas += [{"content": piece} for piece in cut(text, data)]
    for n, call in enumerate(listed):
        first, *rest = cut(call["function"]["arguments"], data)
        name = call["function"]["name"]
        opened = {**call, "index": n, "function": {"name": name, "arguments": first}}
        deltas.append({"tool_calls": [opened]})
        deltas += [{"tool_calls": [{"index": n, "function": {"arguments": one}}]} for one in rest]
    chunks = [{"id": "r", "model": "m", "choices": [{"delta": one}]} for one in deltas]
    ends = [{"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage}]
    joined = whole_body("chat", sse(*chunks, *ends))
    assert wire_openai.from_wire(joined) == wire_openai.from_wire(whole)


@example([], [("a", {"beyond 64 bits": -(2**63) - 1})])
@given(st.lists(TEXT, max_size=4), st.lists(CALL, max_size=2))
def test_gemini_and_ollama_streams_too(texts: list[str], calls: list[Any]) -> None:
    """Gemini's parts and Ollama's lines come to the whole answer; a signature stays on its part."""
    parts: list[dict[str, Any]] = [{"text": text} for text in texts]
    parts += [{"functionCall": {"name": name, "args": args}} for name, args in calls]
    parts.append({"text": "", "thoughtSignature": "c2ln"})
    chunks: list[Any] = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    chunks.append({"candidates": [{"finishReason": "STOP"}], "modelVersion": "g"})
    whole = {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "modelVersion": "g",
    }
    for body in (sse(*chunks, end=""), json.dumps(chunks).encode()):
        assert wire_gemini.from_wire(whole_body("gemini", body)) == wire_gemini.from_wire(whole)
    made = [{"function": {"name": name, "arguments": args}} for name, args in calls]
    lines: list[Any] = [{"message": {"content": text}, "done": False} for text in texts]
    lines += [{"message": {"content": "", "tool_calls": [one]}, "done": False} for one in made]
    end = {"model": "o", "done": True, "done_reason": "stop", "eval_count": 2}
    body = "\n".join(map(json.dumps, [*lines, {**end, "message": {"content": ""}}])).encode()
    expected = {**end, "message": {"content": "".join(texts), "tool_calls": made}}
    assert wire_ollama.from_wire(whole_body("ollama", body)) == wire_ollama.from_wire(expected)


def piece(**call: Any) -> dict[str, Any]:
    """A chunk with a piece of a call."""
    return {"choices": [{"delta": {"tool_calls": [call]}}]}


@pytest.mark.parametrize("index", [{"index": 0}, {}])
def test_another_id_opens_another_call(index: dict[str, int]) -> None:
    """Hosts that number every call 0, or none, still tell their calls apart by the ids."""
    chunks = [
        piece(id="x", function={"name": "a", "arguments": '{"p":'}, **index),
        piece(function={"arguments": "1}"}, **index),
        piece(id="y", function={"name": "b", "arguments": "{}"}, **index),
    ]
    reply = wire_openai.from_wire(whole_body("chat", sse(*chunks)))
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("x", "a", {"p": 1}),
        ("y", "b", {}),
    ]
    assert reply.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("endpoint", "body", "kind"),
    [
        ("chat", sse({"choices": [{"delta": {"content": "half"}}]}, end=""), "bad_response"),
        ("chat", sse({"error": {"message": "no", "code": 429}}, end=""), "rate_limited"),
        ("chat", b'data: {"choices"\n\n', "bad_response"),
        (
            "gemini",
            sse({"candidates": [{"content": {"parts": [{"text": "a"}]}}]}, end=""),
            "bad_response",
        ),
        (
            "ollama",
            b'{"message": {"content": "a"}, "done": false}\n{"message": {}}',
            "bad_response",
        ),
        ("ollama", b'{"message": {"content": "a"}}\n{"error": "out of memory"}', None),
        ("responses", sse({"type": "response.created", "response": {}}), "bad_response"),
        ("responses", sse({"type": "error", "code": "server_error", "message": "no"}), None),
        ("messages", sse({}), "bad_response"),
    ],
)
def test_what_has_no_end_is_a_failure(endpoint: str, body: bytes, kind: str | None) -> None:
    """Streams that were cut, tell an error, or are no JSON fail as the live ones do."""
    with pytest.raises(ProviderError) as caught:
        whole_body(endpoint, body)
    assert kind in (None, caught.value.kind)


@given(st.binary(max_size=60) | st.text(alphabet='data:{}[]" \n\\1,e', max_size=60).map(str.encode))
def test_any_bytes_are_a_reply_or_a_failure(body: bytes) -> None:
    """Whatever stands in a cassette, reading it ends in an answer or in a classified failure."""
    for endpoint in ENDPOINTS:
        exchange = Exchange(
            method="POST",
            uri="",
            endpoint=endpoint,
            asked={},
            status=200,
            headers={},
            body=body,
            streamed=True,
        )
        with suppress(ProviderError):
            assert reply_of(exchange).finish_reason


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
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=14,
)


@given(st.lists(JSON, max_size=4))
def test_any_chunks_are_a_reply_or_a_failure(chunks: list[Any]) -> None:
    """Known keys with values of any kind, as a broken host may send them, end in no other exception."""
    for endpoint in ENDPOINTS:
        with suppress(ProviderError):
            assert isinstance(whole_body(endpoint, sse(*chunks)), dict)
