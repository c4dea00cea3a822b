"""Replies of OpenAI's Responses: nothing that a response says is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import RECORDED, index, needs_recorded

from toolchart.providers.openai.responses_wire import from_wire, to_wire, unsaid
from toolchart.providers.recording.cassettes import read_cassette
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Request, ToolDefinition

CASSETTES = [e["file"] for e in index() if "/responses" in (e.get("endpoints") or ())]


def walked(value: Any, kind: str) -> list[dict[str, Any]]:
    """Every mapping of a type, wherever it stands, in order."""
    found = [value] if isinstance(value, dict) and value.get("type") == kind else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found + [one for part in inner for one in walked(part, kind)]


@needs_recorded
def test_recorded_responses_are_read_without_loss() -> None:
    """S2.13: text, calls, arguments, reasoning, usage and ids of every recorded response are in its reply."""
    read = 0
    for path in CASSETTES:
        for exchange in read_cassette(RECORDED / path):
            whole = exchange.endpoint == "responses" and exchange.status == 200
            if not whole or exchange.streamed:
                continue
            body = json.loads(exchange.body)
            reply, output = from_wire(body), body["output"]
            assert (reply.content or "") == "".join(
                one["text"] for one in walked(output, "output_text")
            )
            made = [one for one in output if one["type"] in ("function_call", "custom_tool_call")]
            assert [(c.id, c.name) for c in reply.tool_calls] == [
                (m["call_id"], m["name"]) for m in made
            ]
            for call, one in zip(reply.tool_calls, made, strict=True):
                given = {"input": one["input"]} if "input" in one else json.loads(one["arguments"])
                assert call.arguments == given
            for summary in walked(output, "summary_text"):
                assert summary["text"] in (reply.reasoning or "")
            for thought in walked(output, "reasoning"):
                assert reply.provider_data is not None
                assert thought in reply.provider_data["output"]
            if body.get("usage"):
                assert reply.usage is not None
                assert reply.usage.total == body["usage"]["total_tokens"]
                assert reply.usage.output == body["usage"]["output_tokens"]
            assert (reply.response_id, reply.model) == (body["id"], body["model"])
            read += 1
    assert read > 110


def response(*output: Any, **more: Any) -> dict[str, Any]:
    """A response body."""
    return {"id": "resp_1", "status": "completed", "model": "m", "output": list(output), **more}


CALL = {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"}


@pytest.mark.parametrize(
    ("body", "reason", "native"),
    [
        (response(), "stop", "completed"),
        (response(CALL), "tool_calls", "completed"),
        (
            response(CALL, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
            "max_output_tokens",
        ),
        (
            response(status="incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
            "content_filter",
        ),
        (response(status="queued"), "paused", "queued"),
        (response(status="cancelled"), "error", "cancelled"),
        (response(status="new word"), "unknown", "new word"),
        (
            response({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}),
            "content_filter",
            "completed",
        ),
    ],
)
def test_why_a_response_ended(body: dict[str, Any], reason: str, native: str) -> None:
    """Status and reason come to the one vocabulary; a cut reply never asks for its calls to be run."""
    reply = from_wire(body)
    assert (reply.finish_reason, reply.native_reason) == (reason, native)


def test_broken_arguments_are_kept_as_they_came() -> None:
    """S1.17: arguments that cannot be read are a problem of their call, never `{}`."""
    (call,) = from_wire(response({**CALL, "arguments": '{"a":'})).tool_calls
    assert (call.arguments, call.raw) == (None, '{"a":')
    assert call.problem


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (
            response(status="failed", error={"code": "rate_limit_exceeded", "message": "slow"}),
            "rate_limited",
        ),
        (response(status="failed", error={"code": "server_error", "message": "oops"}), "server"),
        ({"error": {"message": "maximum context length", "code": None}}, "context_length"),
        ({"id": "x"}, "bad_response"),
        ("text", "bad_response"),
        (None, "bad_response"),
    ],
)
def test_what_is_no_response_fails(body: Any, kind: str) -> None:
    """Failed responses and bodies that are none are classified failures."""
    with pytest.raises(ProviderError) as caught:
        from_wire(body)
    assert caught.value.kind == kind


JSON: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["message", "reasoning", "function_call"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "content", "summary", "text", "name", "arguments", "output", "usage"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["output", "status", "usage", "incomplete_details"]), JSON))
def test_any_body_is_a_reply_or_a_failure(body: Any) -> None:
    """Whatever a broken host sends, there is a reply or a classified failure."""
    try:
        reply = from_wire(body)
    except ProviderError:
        return
    assert reply.finish_reason


@needs_recorded
def test_the_hosts_own_items_go_back_as_they_came() -> None:
    """S3.8: reasoning, encrypted or not, stands before its calls in the next request, byte for byte."""
    seen = encrypted = 0
    for path in CASSETTES:
        for exchange in read_cassette(RECORDED / path):
            if exchange.endpoint != "responses" or exchange.status != 200 or exchange.streamed:
                continue
            reply = from_wire(json.loads(exchange.body))
            if reply.provider_data is None:
                continue
            said = Message(
                role="assistant",
                content=reply.content,
                tool_calls=reply.tool_calls,
                provider_data=reply.provider_data,
            )
            results = [
                Message(role="tool", tool_call_id=call.id, name=call.name, content="{}")
                for call in reply.tool_calls
            ]
            sent = to_wire(Request(model="m", messages=[said, *results]))["input"]
            output = json.loads(exchange.body)["output"]
            assert sent[: len(output)] == output, path
            kinds = {"custom_tool_call": "custom_tool_call_output"}
            made = [one for one in output if one["type"] in ("function_call", "custom_tool_call")]
            assert [one["type"] for one in sent[len(output) :]] == [
                kinds.get(one["type"], "function_call_output") for one in made
            ], path
            seen += 1
            encrypted += any(one.get("encrypted_content") for one in walked(output, "reasoning"))
    assert seen > 20
    assert encrypted


def test_a_choice_and_a_schema_are_said_flat() -> None:
    """Responses spell tools, choices and schemas flat, and have no word for `seed` and `stop`."""
    tools = (ToolDefinition(name="a", description="A"), ToolDefinition(name="b", description="B"))
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    options = {
        "tool_choice": {"allowed": ["a", "b"], "mode": "required"},
        "seed": 1,
        "response_format": schema,
        "max_tokens": 5,
    }
    request = Request(model="m", messages=[], tools=tools, options=options)
    body = to_wire(request)
    assert body["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "a"}, {"type": "function", "name": "b"}],
    }
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "x",
        "schema": {"type": "object"},
    }
    assert body["max_output_tokens"] == 5
    assert "seed" not in body
    assert unsaid(request) == ["seed: Responses know no such option"]
