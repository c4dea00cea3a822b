"""What hosts are told of tools: their part of JSON Schema, also where a recording is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.recording.player import RecordedProvider
from toolchart.providers.recording.recorded_calls import Take
from toolchart.providers.recording.request_readers import READERS
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolDefinition
from toolchart.states.schema_dialects import GEMINI, OLLAMA, OPENAI, Dialect, lowered

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "unit": {"const": "metre"},
        "size": {"oneOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/pair"}]},
    },
    "required": ["size"],
    "additionalProperties": False,
    "minProperties": 1,
    "not": {"required": ["mass"]},
    "$defs": {"pair": {"type": "array", "items": {"type": "number"}, "uniqueItems": True}},
}
TOOL = ToolDefinition(name="measure", description="Measure.", parameters=SCHEMA)
REQUEST = Request(model="m", messages=(Message(role="user", content="go"),), tools=(TOOL,))

Body = Callable[[Request], dict[str, Any]]


def chat(request: Request) -> dict[str, Any]:
    """The body for OpenAI's chat."""
    return wire_openai.to_wire(request)


def ollama(request: Request) -> dict[str, Any]:
    """The body for Ollama."""
    return wire_ollama.to_wire(request)


def gemini(request: Request) -> dict[str, Any]:
    """The body for Gemini, as the SDK would spell it."""
    wire = wire_gemini.to_wire(request)
    return {"model": wire["model"], "contents": wire["contents"], "tools": wire["config"]["tools"]}


HOSTS: list[tuple[str, Body, Dialect]] = [
    ("chat", chat, OPENAI),
    ("ollama", ollama, OLLAMA),
    ("gemini", gemini, GEMINI),
]


def told(body: dict[str, Any]) -> dict[str, Any]:
    """The parameters of the one tool of a body."""
    (tool,) = body["tools"]
    if "function_declarations" in tool:
        return dict(tool["function_declarations"][0]["parameters_json_schema"])
    return dict(tool["function"]["parameters"])


@pytest.mark.parametrize(("endpoint", "body", "dialect"), HOSTS)
def test_a_host_is_told_of_tools_in_its_part_of_json_schema(
    endpoint: str, body: Body, dialect: Dialect
) -> None:
    """Issue 6, S4.5: what an adapter sends is what `tools list --provider` shows, and not the whole."""
    sent = told(body(REQUEST))
    assert sent == lowered(SCHEMA, dialect)[0]
    assert sent != SCHEMA
    assert sent["properties"]["size"]


@pytest.mark.parametrize(("endpoint", "body", "dialect"), HOSTS)
def test_a_recording_of_ours_answers_whatever_its_host_was_told(
    endpoint: str, body: Body, dialect: Dialect
) -> None:
    """S1.16: rewritten definitions in a recording match the tools they came from, and no others."""
    asked = READERS[endpoint](body(REQUEST), "http://localhost/models/m:generateContent")
    answer = Reply(content="5", finish_reason="stop")

    def take() -> RecordedProvider:
        return RecordedProvider(
            [Take(place="exchange 1", asked=asked, answer=lambda: answer, dialect=dialect)]
        )

    assert asyncio.run(take().complete(REQUEST)) == answer
    renamed = {**SCHEMA, "required": ["unit"]}
    other = ToolDefinition(name="measure", description="Measure.", parameters=renamed)
    changed = Request(model="m", messages=REQUEST.messages, tools=(other,))
    with pytest.raises(ProviderError, match="/tools/measure/parameters/required/0") as missed:
        asyncio.run(take().complete(changed))
    assert "uniqueItems" not in str(missed.value), "the nearest spelling is told, not the farthest"


def test_anthropic_is_told_of_no_alternatives_at_the_root() -> None:
    """Issue 6: what the Messages API refuses at the root is left out; the rest is told as it is."""
    parameters = {"type": "object", "anyOf": [{"required": ["size"]}], **SCHEMA}
    tool = ToolDefinition(name="measure", description="Measure.", parameters=parameters)
    body = wire_anthropic.to_wire(Request(model="m", messages=REQUEST.messages, tools=(tool,)))
    told_of = {key: value for key, value in SCHEMA.items() if key != "not"}
    assert body["tools"][0]["input_schema"] == told_of
