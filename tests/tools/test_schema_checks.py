"""The compiled schema check agrees with `jsonschema`; invalid schemas are refused."""

from __future__ import annotations

import inspect
import socket
import sys
from typing import Any

import pytest
from effort import choose_count
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from toolchart.states.errors import SpecError
from toolchart.tools.schemas.checks import (
    ArgumentCheck,
    check_schema,
    close_schema,
    compile_schema,
    make_validator_class,
)
from toolchart.tools.schemas.examination import ArgumentExaminer

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, 0.1, 0.1 + 0.2, 1e16, 1e300, float(2**53)])
    | st.sampled_from([2**53 + 1, 2**63, 2**64 + 1, -(2**63) - 1, 10**400])
    | st.sampled_from(
        ["", "a", "b", "ab", "1", "b\n1", "\xe9", "\U0001f600", "e\u0301", "\u0663", "\xa0", "\u2028"]
    )
)
instances = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
types = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])


def _nested_schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    small = st.integers(0, 3)
    bound = small | st.sampled_from([0.5, 0.3, 2**53, 2**63, 2**64, float(2**53), -(2**63), 1e300])
    return st.fixed_dictionaries(
        {},
        optional={
            "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
            "enum": st.lists(instances, min_size=1, max_size=3),
            "const": instances,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "minimum": bound,
            "maximum": bound,
            "exclusiveMinimum": bound,
            "exclusiveMaximum": bound,
            "minLength": small,
            "maxLength": small,
            "minItems": small,
            "maxItems": small,
            "pattern": st.sampled_from(
                ["a", "^b", "1$", r"^\d$", r"^\w+$", r"\s", r"\b", "(?i)A", "^.$", r"\W"]
            ),
            "format": st.sampled_from(["date", "email", "regex", "odd"]),
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
            "$ref": st.sampled_from(["#/$defs/x"]),
            "title": st.just("t"),
            "default": scalars,
        },
    )


schemas = st.recursive(st.booleans() | st.just({}), _nested_schemas, max_leaves=6)


@settings(max_examples=choose_count(short=150, long=600), deadline=None)
@given(schema=schemas, definition=schemas, instance=instances)
def test_the_compiled_check_agrees_with_the_library(schema: Any, definition: Any, instance: Any) -> None:
    """S2.6: for every schema that can be compiled, the compiled check gives jsonschema's answer."""
    if not isinstance(schema, dict):
        schema = {"allOf": [schema]}
    schema = {**schema, "$defs": {"x": definition}}
    check = compile_schema(schema)
    assume(check is not None or "$ref" not in str(definition))  # else it may contain itself
    assert check is not None
    assert check(instance) == make_validator_class()(schema).is_valid(instance)


@settings(max_examples=choose_count(short=150, long=600), deadline=None)
@given(schema=schemas, instance=st.dictionaries(st.sampled_from("abcd"), instances, max_size=3))
def test_what_fits_at_once_needs_no_examination(schema: Any, instance: Any) -> None:
    """Issue 27: arguments that fit at once are valid for jsonschema and name known parameters only; a call
    with them is not examined any further."""
    schema = {**(schema if isinstance(schema, dict) else {}), "$defs": {"x": {}}}
    examiner = ArgumentExaminer(schema, "t", is_trusted=True)
    if examiner.fits is not None and examiner.fits(instance):
        assert Draft202012Validator(schema).is_valid(instance)
        assert close_schema(schema) is schema or instance.keys() <= schema["properties"].keys()
        assert examiner.examine(instance) == (instance, (), None, False)


odd_operands = st.sampled_from(
    [
        None,
        True,
        -1,
        1.5,
        "a",
        "string",
        "a b",
        [],
        ["a", "a"],
        [1],
        [{}],
        ["null", "odd"],
        {},
        {"a": 1},
        {"a": []},
    ]
)
odd_schemas = st.dictionaries(
    st.sampled_from(
        [
            *("type", "enum", "const", "properties", "required", "additionalProperties", "items", "minimum"),
            *(
                "maxLength",
                "anyOf",
                "not",
                "$ref",
                "$defs",
                "title",
                "deprecated",
                "default",
                "examples",
                "odd",
            ),
        ]
    ),
    odd_operands | schemas,
    max_size=3,
)


@settings(max_examples=choose_count(short=300, long=3000), deadline=None)
@given(schema=odd_schemas)
def test_a_schema_is_refused_exactly_where_the_metaschema_refuses_it(schema: Any) -> None:
    """Issue 27: most schemas are not checked against the metaschema, since they are seen to be valid."""
    schema = {**schema, "type": "object", "properties": {"x": schema}}
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        with pytest.raises(SpecError, match="not a JSON Schema"):
            check_schema(schema, "t")
    else:
        check_schema(schema, "t")


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {"a": {}}},
        {"uniqueItems": True},
        {"type": "strange"},
        {"if": {}},
        {"$ref": "http://x/y"},
        {"$ref": "#/$defs/none"},
        {"pattern": "("},
        {"prefixItems": [{}]},
        {"multipleOf": 0.1},
        {"properties": {"a": {"$ref": "#"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
        {"pattern": "(?=a)"},
        {"minimum": "a"},
    ],
)
def test_unsupported_keywords_are_left_to_the_library(schema: dict[str, Any]) -> None:
    """S2.6: a schema with a keyword that is not compiled is left to jsonschema, never half checked."""
    assert compile_schema(schema) is None


_HIDDEN_CIRCLE = {"properties": {"n": {"$ref": "#/$defs/c"}}}

_NAMED_PARTS: dict[str, Any] = {
    "a percent sign": {
        "properties": {"n": {"$ref": "#/$defs/a%25b"}},
        "$defs": {"a%25b": {}, "a%b": {"properties": {"n": {"$ref": "#/$defs/a%25b"}}}},
    },
    "an address inside": {
        "properties": {"n": {"$ref": "#/$defs/a/$defs/b"}},
        "$defs": {
            "c": {},
            "a": {"$id": "http://x/", "$defs": {"b": {"$ref": "#/$defs/c"}, "c": _HIDDEN_CIRCLE}},
        },
    },
    "an address in definitions": {"definitions": {"a": {"$id": "http://x/"}}},
    "an address at the root": {"$id": "http://x/"},
    "an anchor": {"$defs": {"a": {"$anchor": "x"}}},
    "a dynamic anchor": {"$defs": {"a": {"items": [{"$dynamicAnchor": "x"}]}}},
    "a dynamic reference": {"properties": {"a": {"$dynamicRef": "#x"}}},
    "a recursive reference": {"$defs": {"a": {"$recursiveRef": "#"}}},
    "a reference to an anchor": {"$defs": {"a": {"$ref": "#x"}}},
    "a reference to an address": {"$defs": {"a": {"$ref": "http://x/#/a"}}},
    "a reference with a space": {"$defs": {"a b": {}}, "properties": {"a": {"$ref": "#/$defs/a b"}}},
    "another dialect": {"$schema": "http://json-schema.org/draft-07/schema#"},
    "another dialect inside": {"$defs": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}},
}


@pytest.mark.parametrize("name", _NAMED_PARTS)
def test_a_schema_whose_parts_have_other_names_is_left_to_the_library(name: str) -> None:
    """Where a reference leads is certain only for a plain pointer from the root; otherwise a schema could
    contain itself unseen, and compiled code would end the process."""
    assert compile_schema(_NAMED_PARTS[name]) is None


def _nest_schema(depth: int, keyword: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        inner: Any = {"a": schema} if keyword == "properties" else [schema]
        schema = {"type": "object", keyword: inner}
    return schema


@pytest.mark.parametrize("keyword", ["allOf", "properties"])
def test_a_schema_that_nests_deep_is_not_compiled(keyword: str) -> None:
    """Compiled code needs a part of the stack for each level of a schema."""
    assert compile_schema(_nest_schema(50, keyword)) is not None
    assert compile_schema(_nest_schema(100, keyword)) is None


def test_references_count_as_levels() -> None:
    """A schema whose parts refer to one another nests as deep as with its references written out, in
    whatever order they stand."""

    def make_chain(length: int) -> dict[str, Any]:
        parts: dict[str, Any] = {"d0": {"type": "object"}}
        for number in range(1, length):
            parts[f"d{number}"] = {"allOf": [{"$ref": f"#/$defs/d{number - 1}"}]}
        return {"properties": {name: {"$ref": f"#/$defs/{name}"} for name in parts}, "$defs": parts}

    assert compile_schema(make_chain(20)) is not None
    assert compile_schema(make_chain(100)) is None


@pytest.mark.parametrize("depth", [100, 300, 5000])
@pytest.mark.parametrize("keyword", ["allOf", "properties"])
def test_a_schema_that_nests_too_deeply_is_refused(depth: int, keyword: str) -> None:
    """A schema may be nested 64 deep; a deeper one is an error of the spec, not a crash."""
    check_schema(_nest_schema(60, keyword), "t")
    with pytest.raises(SpecError, match="nests too deeply"):
        check_schema(_nest_schema(depth, keyword), "t")


def test_a_full_stack_does_not_crash_the_check_of_a_schema() -> None:
    """A schema within the bound, checked where little is left of the stack, is an error of the spec."""
    schema = _nest_schema(60, "allOf")
    schema["uniqueItems"] = True

    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        else:
            check_schema(schema, "t")

    check_schema(schema, "t")
    with pytest.raises(SpecError, match="nests too deeply"):
        descend(sys.getrecursionlimit() - len(inspect.stack()) - 100)


@pytest.mark.parametrize("step", ["\xb2", "\u0663", "9" * 5000, "1"])
def test_a_reference_to_no_item_leads_nowhere(step: str) -> None:
    """Only ASCII digits count items; any other step in a list leads to nothing."""
    schema = {"properties": {"a": {"$ref": f"#/anyOf/{step}"}}, "anyOf": [{}]}
    check_schema(schema, "t")
    assert "cannot be used" in str(ArgumentCheck(schema, "t").describe_problem({"a": 1}))


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"minimum": 0},
        {"maximum": 0},
        {"not": {"type": "string"}},
        {"not": {"type": "number"}},
        {"type": "number"},
        {"multipleOf": 1, "type": ["null", "number"]},
        {"type": "integer"},
        {"type": "null"},
        {"anyOf": [{"type": "number"}, {"type": "null"}, {"type": "string"}]},
        {"anyOf": [{"type": "number"}, {}]},
        {"type": "number", "anyOf": [{}]},
        {"type": ["string", "array", "object"]},
        {"type": "array", "items": {"type": "number"}},
        {"type": "array"},
        {"type": "object", "properties": {"c": {"type": "number"}}, "additionalProperties": False},
        {"type": "object", "properties": {"c": {}}, "additionalProperties": False},
        {"type": "object"},
    ],
)
def test_a_number_that_json_does_not_have_never_fits(schema: Any, number: float) -> None:
    """Infinity and NaN are refused under every schema, compiled or not, at any depth."""
    check = ArgumentCheck({"type": "object", "properties": {"a": schema}}, "t")
    fits = compile_schema({"type": "object", "properties": {"a": schema}, "additionalProperties": False})
    for arguments in ({"a": number}, {"a": [number]}, {"a": {"c": number}}, {"b": [{"c": number}]}):
        assert not check.is_valid(arguments)
        assert check.describe_problem(arguments)
        assert fits is None or not fits(arguments)


def test_keywords_beyond_the_compiler_still_hold() -> None:
    """S2.6: all keywords of 2020-12 are checked; jsonschema checks those that are not compiled."""
    check = ArgumentCheck(
        {"type": "object", "properties": {"ids": {"type": "array", "uniqueItems": True}}}, "t"
    )
    assert check.describe_problem({"ids": [1, 2]}) is None
    assert "'ids'" in str(check.describe_problem({"ids": [1, 1]}))


def test_a_reference_to_an_address_is_not_fetched() -> None:
    """A schema that refers to an address cannot be used; nobody is asked for what is there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema"
        check = ArgumentCheck({"type": "object", "properties": {"a": {"$ref": address}}}, "t")
        assert not check.is_compiled
        assert "cannot be used" in str(check.describe_problem({"a": 1}))
        with pytest.raises(TimeoutError):
            server.accept()


def test_what_is_no_json_is_left_to_the_library() -> None:
    """A lone surrogate, which `jsonschema-rs` cannot read, is checked by `jsonschema`."""
    check = ArgumentCheck({"type": "object", "properties": {"a": {"type": "string", "maxLength": 1}}}, "t")
    assert check.is_compiled
    assert check.is_valid({"a": "\ud83d"})
    assert check.describe_problem({"a": "\ud83d"}) is None
    assert "'a'" in str(check.describe_problem({"a": "\ud83d\ud83d"}))


def test_a_pattern_is_matched_with_a_very_long_text() -> None:
    """A pattern is linear, so that it is matched with any text."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    check = ArgumentCheck(schema, "t")
    assert check.describe_problem({"a": "a" * 20_000}) is None
    assert check.describe_problem({"a": "a" * 20_000 + "!"}) is not None


def test_endless_nesting_is_refused_not_a_crash() -> None:
    """S1.17: arguments that are nested too deeply are a problem with an error text, not a crash."""
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    value: Any = {}
    for _ in range(100_000):
        value = {"a": value}
    check = ArgumentCheck(schema, "t")
    assert not check.is_valid(value)
    assert "nested too deeply" in str(check.describe_problem(value))


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "parameters/properties/a/type"),
        ({"type": "array"}, ""),
        ({"type": "object", "required": "a"}, "parameters/required"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_path(schema: Any, path: str) -> None:
    """S2.6: an invalid schema is a SpecError with the path inside the schema."""
    with pytest.raises(SpecError) as caught:
        ArgumentCheck(schema, "weather")
    assert path in str(caught.value)
    assert "weather" in str(caught.value)
