"""Tests of the tool schemas that hosts get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.gemini import wire as wire_gemini
from toolchart.providers.ollama import wire as wire_ollama
from toolchart.providers.openai import wire as wire_openai
from toolchart.states.messages import Message, Request, ToolDefinition
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


def test_anthropic_gets_no_alternatives_at_the_root() -> None:
    """Issue 6: keywords that the Messages API refuses at the root are left out; the rest is unchanged."""
    parameters = {"type": "object", "anyOf": [{"required": ["size"]}], **SCHEMA}
    tool = ToolDefinition(name="measure", description="Measure.", parameters=parameters)
    body = wire_anthropic.encode_request(Request(model="m", messages=REQUEST.messages, tools=(tool,)))
    expected = {key: value for key, value in SCHEMA.items() if key != "not"}
    assert body["tools"][0]["input_schema"] == expected
