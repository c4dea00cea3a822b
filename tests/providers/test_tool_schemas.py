"""Tests of the tool schemas that hosts get, in requests and in the comparison with recorded requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from reply_comparison import drop_digest

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import wire as wire_openai
from toolchart.providers.recording.player import RecordedCall, RecordedProvider, get_request_reader
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolDefinition
from toolchart.states.schema_dialects import GEMINI, OLLAMA, OPENAI, SchemaDialect, lower_schema

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

EncodeBody = Callable[[Request], dict[str, Any]]


def encode_chat(request: Request) -> dict[str, Any]:
    """The body for OpenAI's chat."""
    return wire_openai.encode_request(request)


def encode_ollama(request: Request) -> dict[str, Any]:
    """The body for Ollama."""
    return wire_ollama.encode_request(request)


def encode_gemini(request: Request) -> dict[str, Any]:
    """The body for Gemini."""
    return wire_gemini.encode_request(request)


HOSTS: list[tuple[str, EncodeBody, SchemaDialect]] = [
    ("chat", encode_chat, OPENAI),
    ("ollama", encode_ollama, OLLAMA),
    ("gemini", encode_gemini, GEMINI),
]


def read_tool_parameters(body: dict[str, Any]) -> dict[str, Any]:
    """The parameters of the only tool in a request body."""
    (tool,) = body["tools"]
    if "functionDeclarations" in tool:
        return dict(tool["functionDeclarations"][0]["parametersJsonSchema"])
    return dict(tool["function"]["parameters"])


@pytest.mark.parametrize(("endpoint", "encode_body", "dialect"), HOSTS)
def test_a_host_gets_tool_schemas_in_its_dialect(
    endpoint: str, encode_body: EncodeBody, dialect: SchemaDialect
) -> None:
    """Issue 6, S4.5: an adapter sends the schema that `tools list --provider` shows, not the whole one."""
    parameters = read_tool_parameters(encode_body(REQUEST))
    assert parameters == lower_schema(SCHEMA, dialect)[0]
    assert parameters != SCHEMA
    assert parameters["properties"]["size"]


@pytest.mark.parametrize(("endpoint", "encode_body", "dialect"), HOSTS)
def test_a_recording_matches_tools_in_any_dialect(
    endpoint: str, encode_body: EncodeBody, dialect: SchemaDialect
) -> None:
    """S1.16: rewritten definitions in a recording match their own tools and no others."""
    recorded_request = get_request_reader(endpoint)(
        encode_body(REQUEST), "http://localhost/models/m:generateContent"
    )
    answer = Reply(content="5", finish_reason="stop")

    def build_provider() -> RecordedProvider:
        return RecordedProvider(
            [
                RecordedCall(
                    location="exchange 1", request=recorded_request, get_reply=lambda: answer, dialect=dialect
                )
            ]
        )

    assert drop_digest(asyncio.run(build_provider().complete(REQUEST))) == answer
    changed_schema = {**SCHEMA, "required": ["unit"]}
    changed_tool = ToolDefinition(name="measure", description="Measure.", parameters=changed_schema)
    changed_request = Request(model="m", messages=REQUEST.messages, tools=(changed_tool,))
    with pytest.raises(ProviderError, match="/tools/measure/parameters/required/0") as caught:
        asyncio.run(build_provider().complete(changed_request))
    assert "uniqueItems" not in str(caught.value), "the error names the nearest spelling"


def test_anthropic_gets_no_alternatives_at_the_root() -> None:
    """Issue 6: keywords that the Messages API refuses at the root are left out; the rest is unchanged."""
    parameters = {"type": "object", "anyOf": [{"required": ["size"]}], **SCHEMA}
    tool = ToolDefinition(name="measure", description="Measure.", parameters=parameters)
    body = wire_anthropic.encode_request(Request(model="m", messages=REQUEST.messages, tools=(tool,)))
    expected = {key: value for key, value in SCHEMA.items() if key != "not"}
    assert body["tools"][0]["input_schema"] == expected
