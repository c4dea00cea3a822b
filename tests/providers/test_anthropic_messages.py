"""Tests of the Anthropic adapter: encoding, decoding, streaming, and a conversation over loopback."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st
from web import WebAnswer, WebServer, serve_web

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.providers.anthropic.stream import AnthropicAccumulator
from toolchart.providers.anthropic.wire import decode_reply, encode_messages, encode_request
from toolchart.providers.registry import create_provider
from toolchart.providers.transport.stream_frames import EventFrameReader
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Delta,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolDefinition,
)
from toolchart.tools.definition import Tool

THINKING = {"type": "thinking", "thinking": "Which city? Páris.", "signature": "c2ln+/="}
WEATHER = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris\u2028"}}
TIME = {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}}
BODY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [THINKING, {"type": "text", "text": "I look it up."}, WEATHER, TIME],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 20, "cache_read_input_tokens": 5, "output_tokens": 9},
}

SEQUENCES = choose_count(short=100, long=2_000)
"""Drawn sequences; each is rotated five times."""


def build_events(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that stream a body, with every text in two pieces."""
    empty = {**body, "content": [], "stop_reason": None, "usage": {**body["usage"], "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": empty}, {"type": "ping"}]
    for index, block in enumerate(body["content"]):
        kind = block["type"]
        keys = {"text": ["text"], "thinking": ["thinking", "signature"], "tool_use": []}[kind]
        first_block = {**block, **dict.fromkeys(keys, ""), **({"input": {}} if kind == "tool_use" else {})}
        events.append({"type": "content_block_start", "index": index, "content_block": first_block})
        deltas = [(f"{key}_delta", key, block[key]) for key in keys]
        if kind == "tool_use":
            text = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
            deltas = [("input_json_delta", "partial_json", text)]
        for name, key, text in deltas:
            for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
                delta = {"type": name, key: piece}
                events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    end_delta = {"stop_reason": body["stop_reason"], "stop_sequence": body["stop_sequence"]}
    tokens = {"output_tokens": body["usage"]["output_tokens"]}
    return [*events, {"type": "message_delta", "delta": end_delta, "usage": tokens}, {"type": "message_stop"}]


def encode_events(events: list[dict[str, Any]]) -> bytes:
    """Events as server-sent events."""
    lines = [f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    return "".join(lines).encode()


def read_stream(stream: bytes, split: int) -> tuple[list[Delta], Reply]:
    """Deltas and reply of a stream that arrives in pieces of `split` bytes."""

    accumulator, reader = AnthropicAccumulator(), EventFrameReader()
    pieces = [stream[start : start + split] for start in range(0, len(stream), split)]
    frames = [*(frame for piece in pieces for frame in reader.add_bytes(piece)), *reader.finish()]
    deltas = [delta for frame in frames for delta in accumulator.add_frame(frame)]
    return deltas, decode_reply(accumulator.build_body())


def test_a_reply_is_read_without_loss() -> None:
    """S2.13, S3.2: text, thinking, calls, ids, tokens and word of a message; its blocks go back."""
    reply = decode_reply(BODY)
    assert (reply.content, reply.reasoning) == ("I look it up.", "Which city? Páris.")
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [
        ("toolu_1", "weather", {"city": "Paris\u2028"}),
        ("toolu_2", "time", {}),
    ]
    assert (reply.finish_reason, reply.native_reason) == ("tool_calls", "tool_use")
    assert reply.usage is not None
    assert (reply.usage.input, reply.usage.cached, reply.usage.output, reply.usage.total) == (25, 5, 9, 34)
    assert (reply.model, reply.response_id) == ("claude-x", "msg_1")
    message = Message(role="assistant", tool_calls=reply.tool_calls, provider_data=reply.provider_data)
    assert encode_messages([message])[0]["content"] == BODY["content"]


@pytest.mark.parametrize("split", [1, 7, 4096])
def test_streamed_and_whole_replies_are_equal(split: int) -> None:
    """S3.4: a streamed message gives the same reply however its bytes are split; the deltas add up to it."""
    deltas, reply = read_stream(encode_events(build_events(BODY)), split)
    assert reply == decode_reply(BODY)
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == reply.content
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == reply.reasoning
    assert [(d.index, d.name) for d in deltas if isinstance(d, CallStarted)] == [(0, "weather"), (1, "time")]
    text = "".join(d.text for d in deltas if isinstance(d, CallArguments) and d.index == 0)
    assert json.loads(text) == WEATHER["input"]


@given(st.integers(0, 25))
def test_a_cut_stream_is_a_failure(event_count: int) -> None:
    """S3.4: a stream that is cut anywhere before `message_stop` raises bad_response."""
    events = build_events(BODY)
    accumulator = AnthropicAccumulator()
    for event in events[: min(event_count, len(events) - 1)]:
        accumulator.add_frame(event)
    with pytest.raises(ProviderError) as caught:
        decode_reply(accumulator.build_body())
    assert caught.value.kind == "bad_response"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "paused"),
        ("new_word", "unknown"),
        (None, "stop"),
    ],
)
def test_finish_reasons(word: str | None, reason: str) -> None:
    """S1.15: every stop reason is mapped, an unknown one gives `unknown`, and without one a text that arrived
    whole is an answer."""
    body = {**BODY, "content": [{"type": "text", "text": "x"}], "stop_reason": word}
    assert decode_reply(body).finish_reason == reason


def test_broken_arguments_are_kept_and_never_run() -> None:
    """S1.17: input that is no JSON object is kept as raw text with the problem, and can be sent back."""
    events = build_events({**BODY, "content": [THINKING, WEATHER]})
    pieces = [event for event in events if event.get("delta", {}).get("type") == "input_json_delta"]
    pieces[-1]["delta"]["partial_json"] = " oops"
    _, reply = read_stream(encode_events(events), 50)
    (call,) = reply.tool_calls
    assert call.arguments is None
    assert call.problem
    assert call.raw
    assert call.raw.endswith("oops")
    message = Message(role="assistant", tool_calls=reply.tool_calls, provider_data=reply.provider_data)
    assert encode_messages([message])[0]["content"][1]["input"] == {"unreadable": call.raw}


# -- requests ------------------------------------------------------------------------------------

TOOLS = tuple(
    ToolDefinition(name=name, description=name, parameters={"type": "object", "properties": {}})
    for name in ("a", "b")
)


def test_a_conversation_is_encoded() -> None:
    """S2.13: results share a user message with the next text; failures are marked; no text is empty."""
    reply = decode_reply({**BODY, "content": [WEATHER, TIME]})
    messages = [
        Message(role="system", content="s"),
        Message(role="user", content=""),
        Message(role="assistant", tool_calls=reply.tool_calls),
        Message(role="tool", tool_call_id="toolu_1", name="weather", content='{"success": true}'),
        Message(role="tool", tool_call_id="toolu_2", name="time", content='{"success": false}'),
        Message(role="user", content="go on"),
    ]
    body = encode_request(Request(model="m", messages=messages, options={"max_tokens": 5, "stop": "x"}))
    assert (body["system"], body["max_tokens"], body["stop_sequences"]) == ("s", 5, ["x"])
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][0]["content"][0]["text"].strip()
    assert body["messages"][1]["content"] == [WEATHER, TIME]
    results = body["messages"][2]["content"]
    assert [result["type"] for result in results] == ["tool_result", "tool_result", "text"]
    assert [result.get("is_error") for result in results] == [None, True, None]


@pytest.mark.parametrize(
    ("choice", "wire_choice", "names"),
    [
        (None, None, ["a", "b"]),
        ("none", {"type": "none"}, ["a", "b"]),
        ("required", {"type": "any"}, ["a", "b"]),
        ("b", {"type": "tool", "name": "b"}, ["b"]),
        ({"allowed": ["a"]}, None, ["a"]),
        ({"allowed": ["a", "b"], "mode": "required"}, {"type": "any"}, ["a", "b"]),
    ],
)
def test_tool_choice(choice: Any, wire_choice: Any, names: list[str]) -> None:
    """S2.2: each choice is encoded in Anthropic's words; of several allowed tools only those are offered."""
    options = {"tool_choice": choice} if choice is not None else {}
    body = encode_request(Request(model="m", messages=(), tools=TOOLS, options=options))
    assert body.get("tool_choice") == wire_choice
    assert [tool["name"] for tool in body["tools"]] == names


def test_other_options() -> None:
    """S2.13: single calls and a response schema are encoded; `max_tokens` is always sent."""
    shape = {"type": "object", "properties": {}}
    form = {"type": "json_schema", "json_schema": {"schema": shape}}
    options = {"parallel_tool_calls": False, "response_format": form}
    body = encode_request(Request(model="m", messages=(), tools=TOOLS, options=options))
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert body["output_config"]["format"] == {"type": "json_schema", "schema": shape}
    assert body["max_tokens"] > 0


# -- over loopback -------------------------------------------------------------------------------


def create_adapter(server: WebServer, **entry: Any) -> Any:
    """An adapter whose address is the server."""
    config = LLMConfig(provider="anthropic", base_url=server.url, api_key="k", **entry)
    return create_provider(config, resolve=str)


def test_a_conversation_runs_and_replays() -> None:
    """S1.9, S3.7: tools run, thinking is sent back signed, the turn finishes, the log replays."""
    last = {**BODY, "content": [{"type": "text", "text": "Sunny."}], "stop_reason": "end_turn"}

    def host(http_request: dict[str, Any]) -> WebAnswer:
        body = json.loads(http_request["body"])
        reply = BODY if len(body["messages"]) == 1 else last
        if body.get("stream"):
            return 200, {"content-type": "text/event-stream"}, encode_events(build_events(reply))
        return 200, {"content-type": "application/json"}, json.dumps(reply).encode()

    tools = [
        Tool(definition=ToolDefinition(name=name, description=name), run=lambda _: "sunny")
        for name in ("weather", "time")
    ]
    for on_delta in (None, lambda _: None):
        with serve_web(host) as server:
            spec = {
                "llms": {"host": {"provider": "anthropic", "base_url": server.url, "api_key": "k"}},
                "tools": {"apply_globally": True},
                "responses": [{"llm": "host", "model": "m", "prompt": "s"}],
            }
            with Engine(spec, log="memory", functions=tools) as engine:
                result = engine.run("Weather?", conversation="c", on_delta=on_delta)
                assert (result.state, result.content) == ("finished", "Sunny.")
                assert list(replay(engine.store.read_lines("c"), "c"))
        second_messages = json.loads(server.requests[1]["body"])["messages"]
        assert second_messages[1]["content"] == BODY["content"]
        assert [block["tool_use_id"] for block in second_messages[2]["content"]] == ["toolu_1", "toolu_2"]
        headers = {key.lower(): value for key, value in server.requests[0]["headers"].items()}
        assert (headers["x-api-key"], headers["anthropic-version"]) == ("k", "2023-06-01")


def test_what_anthropic_takes_not_is_said() -> None:
    """S2.13: a seed, JSON without a schema, and another provider's data are warned of, thinking is sent."""

    def host(_: dict[str, Any]) -> WebAnswer:
        return 200, {}, json.dumps(BODY).encode()

    message = Message(role="assistant", content="x", provider_data={"provider": "gemini", "content": {}})
    options = {"seed": 3, "response_format": {"type": "json_object"}}
    request = Request(model="m", messages=(message,), options=options)

    async def send_request(server: WebServer) -> Reply:
        adapter = create_adapter(server, thinking={"type": "enabled", "budget_tokens": 1024})
        try:
            reply: Reply = await adapter.complete(request)
            return reply
        finally:
            await adapter.aclose()

    with serve_web(host) as server:
        warnings = asyncio.run(send_request(server)).warnings
    assert [warning.split()[0] for warning in warnings] == ["data", "seed:", "response_format:"]
    assert json.loads(server.requests[0]["body"])["thinking"]["budget_tokens"] == 1024


def test_a_missing_key_is_a_spec_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3.8: an entry without a key is refused, and the error says what to do."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(SpecError) as caught:
        create_provider(LLMConfig(provider="anthropic"), resolve=str)
    assert "ANTHROPIC_API_KEY" in str(caught.value)


# -- anything ------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *("type", "index", "delta", "content_block", "message", "usage", "text", "thinking", "input"),
        *("tool_use", "text_delta", "thinking_delta", "input_json_delta", "partial_json", "citations"),
        *("citations_delta", "citation", "stop_reason", "end_turn", "error", "input_tokens", "id", "name"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)
KINDS = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop"]
)
EVENTS = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        "index": st.integers(0, 1) | ANYTHING,
        "message": ANYTHING,
        "usage": ANYTHING,
        "content_block": st.fixed_dictionaries({"type": WORDS}, optional={"text": ANYTHING}) | ANYTHING,
        "delta": st.fixed_dictionaries({"type": WORDS}, optional={"text": WORDS}) | ANYTHING,
    },
)


def test_no_sequence_of_events_is_a_crash() -> None:
    """S3.4: each sequence of arbitrary JSON values ends in a reply or in a ProviderError."""

    def find_outcome(events: list[Any]) -> str:
        accumulator = AnthropicAccumulator()
        try:
            for event in events:
                accumulator.add_frame(event)
            decode_reply(accumulator.build_body())
        except ProviderError as error:
            return error.kind
        return "reply"

    @settings(max_examples=SEQUENCES, deadline=None, database=None)
    @given(st.lists(EVENTS | ANYTHING, max_size=6))
    def run(events: list[Any]) -> None:
        # Drawing takes most of the time, so each drawn sequence is rotated five times.
        for first in range(5):
            find_outcome([*events[first:], *events[:first], {"type": "message_stop"}])

    run()
    whole_reply = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "yes"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    assert (find_outcome(whole_reply), find_outcome(whole_reply[:-1])) == ("reply", "bad_response")
