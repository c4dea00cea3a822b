"""The registry, the providers' forms, and what a subset of JSON Schema forces."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tool_calls import NOTHING, TEXT, call, executor, made, ran

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.schema_dialects import GEMINI, OLLAMA, OPENAI, lowered
from toolchart.tools.formats import NAME, convert, portable_name
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
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "number"}},
        }
    },
}


def test_a_duplicate_is_an_error_and_the_first_stays() -> None:
    """S2.1: two tools of one name are refused, also when only the case differs."""
    registry = Registry([made("echo", lambda a: 1)])
    for name in ("echo", "Echo"):
        with pytest.raises(SpecError, match="two tools"):
            registry.add(made(name, lambda a: 2))
    tool = registry.get("echo")
    assert tool is not None
    assert tool.run({}) == 1


def test_names_that_a_provider_refuses_are_mapped_and_mapped_back() -> None:
    """Issue 6: a dotted name gets a portable one; the tool answers to both, and is allowed by both."""
    registry = Registry([made("geo_look_up", lambda a: "b"), made("geo.look up", lambda a: "here")])
    assert registry.names() == ("geo_look_up", "geo_look_up_2")
    tool = registry.get("geo.look up")
    assert tool is not None
    assert tool.alias == "geo.look up"
    ex = executor(made("geo.look", lambda a: "here"))
    for wanted in ("geo.look", "geo_look"):
        for allowed in (("geo.look",), ("geo_look",), ("geo*",)):
            (event,) = ran(ex, call(wanted), allowed=allowed)
            assert event.result["result"] == "here"


@settings(max_examples=200, deadline=None)
@given(names=st.lists(st.text(max_size=80), max_size=6))
def test_portable_names_suit_every_provider_and_differ(names: list[str]) -> None:
    """Issue 6: whatever a tool is called, its portable name is legal and nobody else's."""
    taken: list[str] = []
    for name in names:
        fresh = portable_name(name, taken)
        assert NAME.fullmatch(fresh)
        assert fresh.lower() not in {one.lower() for one in taken}
        taken.append(fresh)


def test_the_three_forms() -> None:
    """S2.2: OpenAI and Ollama take functions, Gemini one tool with all declarations."""
    tools = [ToolDefinition(name=n, description=n, parameters=TEXT) for n in ("a", "b")]
    for provider in ("openai", "ollama"):
        forms = convert(tools, provider).tools
        assert [form["type"] for form in forms] == ["function"] * 2
        assert forms[0]["function"] == {"name": "a", "description": "a", "parameters": TEXT}
    (gemini,) = convert(tools, "gemini").tools
    assert [one["name"] for one in gemini["function_declarations"]] == ["a", "b"]
    with pytest.raises(SpecError, match="did you mean 'gemini'"):
        convert(tools, "gemni")


def test_conversion_happens_once() -> None:
    """Issue 6: converted once and cached; a further tool makes it anew."""
    registry = Registry([made("a", lambda a: 1)])
    first = registry.converted("openai")
    assert registry.converted("openai") is first
    registry.add(made("b", lambda a: 1))
    assert len(registry.converted("openai").tools) == 2


def test_every_rewrite_is_listed() -> None:
    """Issue 6: what a provider's subset forces is listed with its place, never silent."""
    rewrites = "\n".join(lowered(RICH, GEMINI)[1])
    for words in (
        "mode: const written as enum",
        "size: oneOf written as anyOf",
        "tree: #/$defs/node",
        "names itself",
        "both: allOf merged",
    ):
        assert words in rewrites
    schema, further = lowered(RICH, OLLAMA)
    assert "(root): additionalProperties left out" in further
    text = json.dumps(schema)
    assert not re.search(r'"(\$ref|oneOf|allOf|const|additionalProperties|\$defs)"', text)
    assert schema["properties"]["mode"] == {"enum": ["fast"]}
    assert schema["properties"]["both"]["required"] == ["b"]
    assert "minimum: 1" in json.dumps(schema)


def test_a_schema_within_the_subset_is_not_touched() -> None:
    """Issue 6: nothing is rewritten that need not be."""
    for dialect in (OPENAI, OLLAMA, GEMINI):
        assert lowered(TEXT, dialect) == (TEXT, ())
        assert lowered(NOTHING, dialect) == (NOTHING, ())


def test_a_schema_that_would_explode_is_cut() -> None:
    """Issue 6: references that double at every step do not fill the memory."""
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, 40):
        pair = {
            "properties": {"l": {"$ref": f"#/$defs/d{n - 1}"}, "r": {"$ref": f"#/$defs/d{n - 1}"}}
        }
        defs[f"d{n}"] = {"type": "object", **pair}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d39"}}, "$defs": defs}
    result, rewrites = lowered(schema, GEMINI)
    assert len(json.dumps(result)) < 1_000_000
    assert any("too large" in rewrite for rewrite in rewrites)


def test_openai_gets_no_alternatives_at_the_root() -> None:
    """Issue 6: what the chat API refuses at the root is left out and listed."""
    schema, rewrites = lowered({"anyOf": [{"type": "object"}], "type": "object"}, OPENAI)
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


@settings(max_examples=200, deadline=None)
@given(schema=tree, definition=tree)
def test_lowering_always_ends_in_the_dialect(schema: Any, definition: Any) -> None:
    """Issue 6: every schema, recursive ones too, comes out finite, valid and in the subset."""
    whole = {**schema, "type": "object", "$defs": {"a": definition}}
    for dialect in (OLLAMA, GEMINI):
        result, rewrites = lowered(whole, dialect)
        assert dialect.keywords is not None
        Draft202012Validator.check_schema(result)
        assert _keywords(result) <= dialect.keywords
        assert bool(rewrites) or _keywords(whole) - {"$defs"} <= dialect.keywords


def _keywords(schema: Any) -> set[str]:
    found = set(schema)
    for key in ("items",):
        found |= _keywords(schema[key]) if key in schema else set()
    for inner in schema.get("properties", {}).values():
        found |= _keywords(inner)
    for inner in schema.get("anyOf", ()):
        found |= _keywords(inner)
    return found
