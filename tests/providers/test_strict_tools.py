"""Strict tools: the schema that a host keeps its calls to, and the calls that come back."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.providers.anthropic import wire as wire_anthropic
from toolchart.providers.openai import responses_wire as wire_responses
from toolchart.providers.openai import wire as wire_openai
from toolchart.states.messages import Message, Request, ToolDefinition
from toolchart.states.schema_dialects import (
    ANTHROPIC_STRICT,
    OPENAI_STRICT,
    find_strict_obstacle,
    lower_schema,
)
from toolchart.tools.formats import convert_tools
from toolchart.tools.schemas.repair import repair_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "unit": {"enum": ["C", "F"], "description": "Of the answer."},
        "days": {"type": "array", "items": {"type": "object", "properties": {"day": {"type": "integer"}}}},
    },
    "required": ["city"],
}

TOOL = ToolDefinition(name="weather", description="The weather.", parameters=SCHEMA)
OPEN_TOOL = ToolDefinition(
    name="store", description="Store.", parameters={"type": "object", "additionalProperties": True}
)


def make_request(**options: Any) -> Request:
    return Request(
        model="m", messages=[Message(role="user", content="?")], tools=(TOOL, OPEN_TOOL), options=options
    )


def read_strict_tools(wire: str, body: dict[str, Any]) -> list[tuple[bool, dict[str, Any]]]:
    """Of each tool: whether it is strict, and its schema."""
    tools = [tool.get("function", tool) for tool in body["tools"]]
    key = "input_schema" if wire == "messages" else "parameters"
    return [(tool.get("strict", False), tool[key]) for tool in tools]


ENCODERS = {
    "chat": wire_openai.encode_request,
    "responses": wire_responses.encode_request,
    "messages": wire_anthropic.encode_request,
}


@pytest.mark.parametrize("wire", ENCODERS)
def test_strict_tools_are_marked_and_others_sent_as_before(wire: str) -> None:
    """Issue 15, to build 2: a tool whose schema can be strict is; one with free keys is sent as without the
    option; and without the option nothing is strict."""
    (is_strict, schema), (is_open_strict, open_schema) = read_strict_tools(
        wire, ENCODERS[wire](make_request(strict_tools=True))
    )
    assert (is_strict, is_open_strict) == (True, False)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["days"]["items"]["additionalProperties"] is False
    assert open_schema["additionalProperties"] is True
    plain = read_strict_tools(wire, ENCODERS[wire](make_request()))
    assert [is_strict for is_strict, _ in plain] == [False, False]


def test_openai_wants_every_key_and_takes_null_for_an_optional_one() -> None:
    """Every key is required; an optional one may be null; each change is listed with its place."""
    schema, rewrites = lower_schema(SCHEMA, OPENAI_STRICT)
    assert schema["required"] == ["city", "unit", "days"]
    assert schema["properties"]["unit"] == {
        "anyOf": [{"enum": ["C", "F"]}, {"type": "null"}],
        "description": "Of the answer.",
    }
    assert schema["properties"]["days"]["type"] == ["array", "null"]
    assert "unit: optional, so it may be null" in rewrites
    assert "city: minLength moved into the description" in rewrites
    assert lower_schema(SCHEMA, ANTHROPIC_STRICT)[0]["required"] == ["city"]


def test_a_null_for_an_optional_value_is_left_out_again() -> None:
    """The tool gets what it declared: no null that its own schema refuses, and a record of the change."""
    arguments, repairs = repair_arguments({"city": "Brno", "unit": None, "days": None}, SCHEMA)
    assert arguments == {"city": "Brno"}
    assert [repair.path for repair in repairs] == ["unit", "days"]
    kept, _ = repair_arguments({"city": None}, SCHEMA)
    assert kept == {"city": None}, "a required value is never left out"


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "(root)"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "a"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "a"),
        (
            {"type": "object", "properties": {"a": {"items": {"type": "object", "patternProperties": {}}}}},
            "a[]",
        ),
    ],
)
def test_what_cannot_be_strict_is_named(schema: dict[str, Any], place: str) -> None:
    """An object with free keys, or a schema that names itself: the listing shows the place."""
    obstacle = find_strict_obstacle(schema)
    assert obstacle is not None
    assert obstacle.startswith(place)
    tool = ToolDefinition(name="t", description="", parameters=schema)
    assert f"t: not strict: {obstacle}" in convert_tools([tool], "openai-strict").rewrites


_LEAVES = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": ["boolean", "null"]}, {"enum": ["a", 1]}]
)
_OBJECTS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).flatmap(
            lambda properties: st.lists(st.sampled_from(sorted(properties)), unique=True).map(
                lambda required: {"type": "object", "properties": properties, "required": required}
            )
        ),
    ),
    max_leaves=8,
)


def _fill(schema: Any) -> st.SearchStrategy[Any]:
    """Values of a strict schema."""
    if "anyOf" in schema:
        return st.one_of(*map(_fill, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    values: dict[str, Any] = {
        "string": st.text(max_size=2),
        "integer": st.integers(0, 9),
        "boolean": st.booleans(),
        "null": st.none(),
        "array": st.lists(_fill(schema["items"]), max_size=2) if "items" in schema else st.just([]),
        "object": st.fixed_dictionaries(
            {name: _fill(item) for name, item in schema.get("properties", {}).items()}
        ),
    }
    return st.one_of(*(values[kind] for kind in kinds))


@settings(max_examples=60)
@given(st.data())
def test_what_a_strict_host_may_send_fits_the_tool(data: st.DataObject) -> None:
    """Any arguments that the strict schema allows fit the tool's own schema, once nulls are left out."""
    properties = data.draw(st.dictionaries(st.sampled_from("wxyz"), _OBJECTS, min_size=1, max_size=3))
    required = data.draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    schema = {"type": "object", "properties": properties, "required": required}
    assert find_strict_obstacle(schema) is None
    strict, _ = lower_schema(schema, OPENAI_STRICT)
    arguments = data.draw(_fill(strict))
    jsonschema.validate(arguments, strict)
    repaired, _ = repair_arguments(arguments, schema)
    jsonschema.validate(json.loads(json.dumps(repaired)), schema)
