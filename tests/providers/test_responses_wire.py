"""Tests of encoding and decoding for OpenAI's Responses API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from recorded_exchanges import Exchange, get_adapter, read_cassette
from recorded_traffic import CORPORA, find_recording, read_index

from toolchart.providers.openai.responses_wire import (
    SUPPORTED_OPTIONS,
    ResponsesAccumulator,
    decode_reply,
    encode_request,
)
from toolchart.providers.shared.requests import find_unsupported_options
from toolchart.states.content import CitationPart, FilePart, TextPart
from toolchart.states.messages import Message, Request, TextDelta, ToolDefinition


def list_whole_exchanges(corpus: str) -> list[Exchange]:
    """The exchanges of a corpus with the Responses API that succeeded without a stream."""
    return [
        exchange
        for entry in read_index(corpus)
        if "/responses" in (entry.get("endpoints") or ())
        for exchange in read_cassette(find_recording(entry["file"]))
        if (exchange.endpoint, exchange.status) == ("responses", 200)
        and not exchange.is_streamed
        and not json.loads(exchange.response_body).get("error")
    ]


def find_objects(value: Any, kind: str) -> list[dict[str, Any]]:
    """Every object with that `type` at any depth, in order."""
    objects = [value] if isinstance(value, dict) and value.get("type") == kind else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return objects + [child for part in inner for child in find_objects(part, kind)]


@pytest.mark.parametrize("corpus", CORPORA)
def test_recorded_responses_are_read_without_loss(corpus: str) -> None:
    """S2.13: text, calls, arguments, reasoning, usage and ids of every recorded response are in its reply."""
    reply_count = 0
    for exchange in list_whole_exchanges(corpus):
        body = json.loads(exchange.response_body)
        reply, output = decode_reply(body), body["output"]
        assert (reply.content or "") == "".join(text["text"] for text in find_objects(output, "output_text"))
        call_items = [item for item in output if item["type"] in ("function_call", "custom_tool_call")]
        assert [(c.id, c.name) for c in reply.tool_calls] == [(m["call_id"], m["name"]) for m in call_items]
        for call, item in zip(reply.tool_calls, call_items, strict=True):
            arguments = {"input": item["input"]} if "input" in item else json.loads(item["arguments"])
            assert call.arguments == arguments
        for summary in find_objects(output, "summary_text"):
            assert summary["text"] in (reply.reasoning or "")
        for thought in find_objects(output, "reasoning"):
            assert reply.provider_data is not None
            assert thought in reply.provider_data["output"]
        if body.get("usage"):
            assert reply.usage is not None
            assert reply.usage.total == body["usage"]["total_tokens"]
            assert reply.usage.output == body["usage"]["output_tokens"]
        assert (reply.response_id, reply.model) == (body["id"], body["model"])
        reply_count += 1
    assert reply_count >= {"own": 3, "recorded": 111}[corpus]


def build_response(*output: Any, **more: Any) -> dict[str, Any]:
    """A response body."""
    return {"id": "resp_1", "status": "completed", "model": "m", "output": list(output), **more}


CALL = {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"}


@pytest.mark.parametrize(
    ("body", "reason", "native"),
    [
        (build_response(), "stop", "completed"),
        (build_response(CALL), "tool_calls", "completed"),
        (
            build_response(CALL, status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
            "length",
            "max_output_tokens",
        ),
        (
            build_response(status="incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
            "content_filter",
        ),
        (build_response(status="queued"), "error", "queued"),
        (build_response(status="cancelled"), "error", "cancelled"),
        (build_response(status="new word"), "unknown", "new word"),
        (
            build_response({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}),
            "content_filter",
            "completed",
        ),
    ],
)
def test_why_a_response_ended(body: dict[str, Any], reason: str, native: str) -> None:
    """Status and reason are mapped to our finish reasons; a cut reply never has the reason tool_calls."""
    reply = decode_reply(body)
    assert (reply.finish_reason, reply.native_reason) == (reason, native)


def test_broken_arguments_are_kept_as_they_came() -> None:
    """S1.17: arguments that cannot be parsed give the call a problem and are never replaced by `{}`."""
    (call,) = decode_reply(build_response({**CALL, "arguments": '{"a":'})).tool_calls
    assert (call.arguments, call.raw) == (None, '{"a":')
    assert call.problem


@pytest.mark.parametrize("corpus", CORPORA)
def test_own_items_are_sent_back_unchanged(corpus: str) -> None:
    """S3.8: reasoning, encrypted or not, is sent before its calls in the next request, unchanged."""
    reply_count = encrypted_count = 0
    for exchange in list_whole_exchanges(corpus):
        reply = decode_reply(json.loads(exchange.response_body))
        if reply.provider_data is None:
            continue
        message = Message(
            role="assistant",
            content=reply.content,
            tool_calls=reply.tool_calls,
            provider_data=reply.provider_data,
        )
        results = [
            Message(role="tool", tool_call_id=call.id, name=call.name, content="{}")
            for call in reply.tool_calls
        ]
        items = encode_request(Request(model="m", messages=[message, *results]))["input"]
        output = json.loads(exchange.response_body)["output"]
        assert items[: len(output)] == output
        kinds = {"custom_tool_call": "custom_tool_call_output"}
        call_items = [item for item in output if item["type"] in ("function_call", "custom_tool_call")]
        assert [item["type"] for item in items[len(output) :]] == [
            kinds.get(item["type"], "function_call_output") for item in call_items
        ]
        reply_count += 1
        encrypted_count += any(item.get("encrypted_content") for item in find_objects(output, "reasoning"))
    assert reply_count >= {"own": 1, "recorded": 21}[corpus]
    assert encrypted_count


def test_tool_choice_and_schema_are_encoded_flat() -> None:
    """Tools, choices and schemas are encoded without nesting; `seed` and `stop` give a warning."""
    tools = (ToolDefinition(name="a", description="A"), ToolDefinition(name="b", description="B"))
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    options = {
        "tool_choice": {"allowed": ["a", "b"], "mode": "required"},
        "seed": 1,
        "response_format": schema,
        "max_tokens": 5,
    }
    request = Request(model="m", messages=[], tools=tools, options=options)
    body = encode_request(request)
    assert body["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "a"}, {"type": "function", "name": "b"}],
    }
    assert body["text"]["format"] == {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
    assert body["max_output_tokens"] == 5
    assert "seed" not in body
    (warning,) = find_unsupported_options(request, SUPPORTED_OPTIONS, "the Responses API")
    assert warning.startswith("seed: the Responses API has no such option")


def test_notes_on_a_text_are_sources_and_files() -> None:
    """The notes on a text become parts, in order: sources, and files that code made."""
    notes = [
        {"type": "file_citation", "file_id": "f", "filename": "tides.pdf"},
        {"type": "url_citation", "url": "https://sea.test/a", "title": "Tides"},
        {"type": "container_file_citation", "file_id": "g"},
        {"type": "url_citation", "url": "https://sea.test/b"},
    ]
    text = {"type": "output_text", "text": "Twice a day.", "annotations": notes}
    item = {"type": "message", "role": "assistant", "content": [text], "status": "completed"}
    reply = decode_reply({"status": "completed", "output": [item]})
    assert reply.content == "Twice a day."
    assert list(reply.parts) == [
        TextPart(text="Twice a day."),
        CitationPart(title="tides.pdf", file_id="f"),
        CitationPart(url="https://sea.test/a", title="Tides"),
        FilePart(file_id="g"),
        CitationPart(url="https://sea.test/b"),
    ]


@pytest.mark.parametrize("end", ["nothing", "done", "item"])
@pytest.mark.parametrize(
    ("stem", "place", "kind", "key", "field"),
    [
        ("output_text", "content_index", "message", "text", "content"),
        ("refusal", "content_index", "message", "refusal", "refusal"),
        ("reasoning_text", "content_index", "reasoning", "text", "reasoning"),
        ("reasoning_summary_text", "summary_index", "reasoning", "text", "reasoning"),
    ],
)
def test_texts_of_every_kind_are_built_of_their_deltas(
    stem: str, place: str, kind: str, key: str, field: str, end: str
) -> None:
    """S3.4: text, refusals, reasoning and summaries are in the reply where the last event leaves them out."""
    keys = {"output_index": 0, "item_id": "i1", place: 0}
    item = {"type": kind, "id": "i1", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({"type": f"response.{stem}.delta", "delta": piece, **keys} for piece in ("Not ", "today.")),
        {"type": f"response.{stem}.done", key: "Not today.", **keys},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    events = events[: {"nothing": 3, "done": 4, "item": 5}[end]]
    events.append({"type": "response.completed", "response": {"status": "completed", "output": []}})
    data = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    reply = get_adapter("responses").decode_raw({}, data, is_streamed=True)
    assert getattr(reply, field) == "Not today."


@pytest.mark.parametrize("end", ["nothing", "item", "last event"])
@pytest.mark.parametrize(
    ("start", "pieces"),
    [
        ("", ["Not ", "today."]),
        ("Not today.", ["Not ", "today."]),
        ("Not today.", ["Not today."]),
        ("Not today.", []),
        ("Not ", ["to", "day."]),
        ("Not ", ["Not ", "today."]),
    ],
)
@pytest.mark.parametrize("begins", ["item", "part"])
def test_a_text_that_begins_with_its_item_is_said_once(
    begins: str, start: str, pieces: list[str], end: str
) -> None:
    """S3.4: an item or a part may begin with its text, or with the first piece of it. The deltas and the
    reply have the text once."""
    keys = {"output_index": 0, "item_id": "i1", "content_index": 0}
    part = {"type": "output_text", "text": start, "annotations": []}
    whole = {"type": "message", "id": "i1", "content": [{**part, "text": "Not today."}]}
    item = {"type": "message", "id": "i1", "content": [part] if begins == "item" else []}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *([{"type": "response.content_part.added", "part": part, **keys}] if begins == "part" else []),
        *({"type": "response.output_text.delta", "delta": piece, **keys} for piece in pieces),
        *([{"type": "response.output_item.done", "output_index": 0, "item": whole}] if end == "item" else []),
        {
            "type": "response.completed",
            "response": {"status": "completed", "output": [whole] if end == "last event" else []},
        },
    ]
    accumulator = ResponsesAccumulator()
    deltas = [delta for event in events for delta in accumulator.add_frame(event)]
    assert decode_reply(accumulator.build_body()).content == "Not today."
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Not today."
