"""The registry, tool definitions encoded per provider, and schemas rewritten for a provider's subset."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tool_calls import NOTHING, TEXT, build_tool, make_call, make_executor, run_calls

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.schema_dialects import GEMINI, OLLAMA, OPENAI, lower_schema
from toolchart.tools.formats import PORTABLE_NAME, convert_tools, make_portable_name
from toolchart.tools.registry import Registry

RICH: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "mode": {"const": "fast"},
        "size": {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "tree": {"$ref": "#/$defs/node"},
        "both": {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            ]
        },
    },
    "required": ["mode"],
    "additionalProperties": False,
    "$defs": {
        "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "number"}}}
    },
}


def test_a_duplicate_is_an_error_and_the_first_stays() -> None:
    """S2.1: a second tool with the same name is refused, also when only the case differs."""
    registry = Registry([build_tool("echo", lambda a: 1)])
    for name in ("echo", "Echo"):
        with pytest.raises(SpecError, match="two tools"):
            registry.add(build_tool(name, lambda a: 2))
    tool = registry.get("echo")
    assert tool is not None
    assert tool.run({}) == 1


def test_names_that_a_provider_refuses_become_portable() -> None:
    """Issue 6: a dotted name gets a portable name; the tool can be called and allowed by both."""
    registry = Registry(
        [build_tool("geo_look_up", lambda a: "b"), build_tool("geo.look up", lambda a: "here")]
    )
    assert registry.names() == ("geo_look_up", "geo_look_up_2")
    tool = registry.get("geo.look up")
    assert tool is not None
    assert tool.alias == "geo.look up"
    executor = make_executor(build_tool("geo.look", lambda a: "here"))
    for called_name in ("geo.look", "geo_look"):
        for allowed in (("geo.look",), ("geo_look",), ("geo*",)):
            (event,) = run_calls(executor, make_call(called_name), allowed=allowed)
            assert event.result["result"] == "here"


@settings(max_examples=choose_count(short=50, long=200), deadline=None)
@given(names=st.lists(st.text(max_size=80), max_size=6))
def test_portable_names_suit_every_provider_and_differ(names: list[str]) -> None:
    """Issue 6: for any tool name, the portable name is legal for every provider and unused."""
    used_names: list[str] = []
    for name in names:
        portable_name = make_portable_name(name, used_names)
        assert PORTABLE_NAME.fullmatch(portable_name)
        assert portable_name.lower() not in {name.lower() for name in used_names}
        used_names.append(portable_name)


def test_the_three_provider_formats() -> None:
    """S2.2: OpenAI and Ollama get functions, Gemini one tool with all declarations."""
    tools = [ToolDefinition(name=n, description=n, parameters=TEXT) for n in ("a", "b")]
    for provider in ("openai", "ollama"):
        entries = convert_tools(tools, provider).tools
        assert [entry["type"] for entry in entries] == ["function"] * 2
        assert entries[0]["function"] == {"name": "a", "description": "a", "parameters": TEXT}
    (gemini,) = convert_tools(tools, "gemini").tools
    assert [entry["name"] for entry in gemini["function_declarations"]] == ["a", "b"]
    with pytest.raises(SpecError, match="did you mean 'gemini'"):
        convert_tools(tools, "gemni")


def test_every_rewrite_is_listed() -> None:
    """Issue 6: every change for a provider's subset is listed with its path."""
    rewrites = "\n".join(lower_schema(RICH, GEMINI)[1])
    for words in (
        "mode: const written as enum",
        "size: oneOf written as anyOf",
        "tree: #/$defs/node",
        "names itself",
        "both: allOf merged",
    ):
        assert words in rewrites
    schema, ollama_rewrites = lower_schema(RICH, OLLAMA)
    assert "(root): additionalProperties left out" in ollama_rewrites
    text = json.dumps(schema)
    assert not re.search(r'"(\$ref|oneOf|allOf|const|additionalProperties|\$defs)"', text)
    assert schema["properties"]["mode"] == {"enum": ["fast"]}
    assert schema["properties"]["both"]["required"] == ["b"]
    assert "minimum: 1" in json.dumps(schema)


def test_a_schema_within_the_subset_is_not_touched() -> None:
    """Issue 6: a schema within the subset is returned as it is."""
    for dialect in (OPENAI, OLLAMA, GEMINI):
        assert lower_schema(TEXT, dialect) == (TEXT, ())
        assert lower_schema(NOTHING, dialect) == (NOTHING, ())


def test_a_schema_that_would_explode_is_cut() -> None:
    """Issue 6: a schema whose references double at every step is cut at a size limit."""
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, 40):
        pair = {"properties": {"l": {"$ref": f"#/$defs/d{n - 1}"}, "r": {"$ref": f"#/$defs/d{n - 1}"}}}
        defs[f"d{n}"] = {"type": "object", **pair}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d39"}}, "$defs": defs}
    result, rewrites = lower_schema(schema, GEMINI)
    assert len(json.dumps(result)) < 1_000_000
    assert any("too large" in rewrite for rewrite in rewrites)


def test_openai_gets_no_alternatives_at_the_root() -> None:
    """Issue 6: a root `anyOf`, which the chat API refuses, is left out and listed."""
    schema, rewrites = lower_schema({"anyOf": [{"type": "object"}], "type": "object"}, OPENAI)
    assert "anyOf" not in schema
    assert rewrites == ("(root): anyOf at the root left out",)


names = st.sampled_from(["a", "b"])
leaf = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "object"]),
        "enum": st.just(["x", 1]),
        "const": st.sampled_from(["x", 1]),
        "minimum": st.integers(0, 3),
        "additionalProperties": st.booleans(),
    },
)
tree = st.recursive(
    leaf,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array"]),
            "properties": st.dictionaries(names, inner, max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "required": st.lists(names, max_size=2, unique=True),
            "$ref": st.sampled_from(["#/$defs/a", "#", "#/$defs/zzz"]),
        },
    ),
    max_leaves=6,
)


@settings(max_examples=choose_count(short=50, long=200), deadline=None)
@given(schema=tree, definition=tree)
def test_lowering_always_ends_in_the_dialect(schema: Any, definition: Any) -> None:
    """Issue 6: every schema, recursive ones too, becomes finite, valid and within the subset."""
    whole = {**schema, "type": "object", "$defs": {"a": definition}}
    for dialect in (OLLAMA, GEMINI):
        result, rewrites = lower_schema(whole, dialect)
        assert dialect.keywords is not None
        Draft202012Validator.check_schema(result)
        assert _collect_keywords(result) <= dialect.keywords
        assert bool(rewrites) or _collect_keywords(whole) - {"$defs"} <= dialect.keywords


def _collect_keywords(schema: Any) -> set[str]:
    keywords = set(schema)
    for key in ("items",):
        keywords |= _collect_keywords(schema[key]) if key in schema else set()
    for inner in schema.get("properties", {}).values():
        keywords |= _collect_keywords(inner)
    for inner in schema.get("anyOf", ()):
        keywords |= _collect_keywords(inner)
    return keywords
