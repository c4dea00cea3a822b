"""Streams give the same reply as an answer without streaming, and fail where they were cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from recorded_exchanges import decode_stream

from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import wire as wire_openai
from toolchart.states.errors import ProviderError

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
