"""Argument repair: deterministic, recorded, and without invented values."""

from __future__ import annotations

from typing import Any

import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_calls import build_tool, make_call, make_executor, run_calls

from toolchart.tools.schemas.checks import compile_schema
from toolchart.tools.schemas.repair import is_misspelling, repair_arguments, repair_json_text

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "ratio": {"type": "number"},
        "exact": {"type": "boolean"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("arguments", "repaired_arguments", "rule"),
    [
        ({"city": 5}, {"city": "5"}, "text written as a number"),
        ({"city": "B", "days": " 3 "}, {"city": "B", "days": 3}, "a number written as text"),
        ({"city": "B", "ratio": "-1.5e2"}, {"city": "B", "ratio": -150.0}, "a number written"),
        ({"city": "B", "exact": "True"}, {"city": "B", "exact": True}, "true or false"),
        ({"city": "B", "tags": "x"}, {"city": "B", "tags": ["x"]}, "one value where a list"),
        ({"city": "B", "sizes": "7"}, {"city": "B", "sizes": [7]}, "one value where a list"),
        ({"city": "B", "sizes": [1, "2"]}, {"city": "B", "sizes": [1, 2]}, "a number written"),
        ({"city": "B", "tags": '["x", "y"]'}, {"city": "B", "tags": ["x", "y"]}, "JSON written"),
        ({"city": "B", "where": '{"lat": 1}'}, {"city": "B", "where": {"lat": 1}}, "JSON written"),
        ({"city": "B", "unit": "Celsius"}, {"city": "B", "unit": "celsius"}, "letter case"),
        ({"City": "B"}, {"city": "B"}, "misspelt name"),
        ({"citty": "B"}, {"city": "B"}, "misspelt name"),
        ({"ctiy": "B"}, {"city": "B"}, "misspelt name"),
        ({"city": "B", "limit": "4"}, {"city": "B", "limit": 4}, "a number written"),
        ({"city": "B", "where": {"lat": "50.1"}}, {"city": "B", "where": {"lat": 50.1}}, "a number"),
    ],
)
def test_a_mistake_with_one_reading_is_repaired(
    arguments: dict[str, Any], repaired_arguments: dict[str, Any], rule: str
) -> None:
    """S3.5: each rule makes exactly its change, and a note records it."""
    received_arguments: list[Any] = []
    (event,) = run_calls(
        make_executor(build_tool("w", received_arguments.append, SCHEMA)), make_call("w", arguments)
    )
    assert received_arguments == [repaired_arguments]
    assert any(rule in note and "->" in note for note in event.notes)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"days": 1},
        {"town": "B"},
        {"city": None},
        {"city": "B", "days": "three"},
        {"city": "B", "days": "1.5"},
        {"city": "B", "exact": "yes"},
        {"city": "B", "unit": "K"},
        {"city": "B", "sizes": "many"},
        {"city": "B", "where": {}},
        {"city": ["B"]},
        {"city": "B", "days": "9" * 40},
        {"city": "B", "ratio": "NaN"},
        {"city": "B", "ratio": "1e999"},
        {"city": "B", "days": True},
    ],
)
def test_a_mistake_without_a_single_reading_is_an_error(arguments: dict[str, Any]) -> None:
    """S3.5: a repair never invents a value; a missing parameter stays missing."""
    received_arguments: list[Any] = []
    (event,) = run_calls(
        make_executor(build_tool("w", received_arguments.append, SCHEMA)), make_call("w", arguments)
    )
    assert received_arguments == []
    assert event.outcome == "failed"
    assert "Invalid arguments for 'w'" in event.result["error"]


@pytest.mark.parametrize(
    ("raw", "expected_arguments"),
    [
        ('{"a": 1,}', {"a": 1}),
        ("{'a': 'x'}", {"a": "x"}),
        ('{"a": True, "b": None}', {"a": True, "b": None}),
        ('```json\n{"a": 1,}\n```', {"a": 1}),
        ('{"a": "x" "b": "y"}', {"a": "x", "b": "y"}),
    ],
)
def test_broken_json_with_a_clear_meaning_is_repaired(raw: str, expected_arguments: dict[str, Any]) -> None:
    """S3.5: a trailing comma, Python literals and a code fence are repaired and recorded."""
    repair_result = repair_json_text(raw)
    assert repair_result is not None
    assert repair_result[0] == expected_arguments
    assert repair_result[1].before == raw


@pytest.mark.parametrize(
    "raw",
    [
        '{"a": {"b": 1',
        '{"amount": 100',
        '{"a": "he said',
        "",
        "   ",
        "none",
        '"text"',
        "[1, 2,]",
        '{"a": 1}{"b": 2}',
        '{"a": 1, "a": 2,}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 1e999,}',
        "{}}",
        "{" * 9000,
        '{"a": 1]',
        "{" + " " * 30_000 + "'a': 1}",
        '{\u201c```json{""}```}',  # json_repair raises AssertionError
    ],
)
def test_truncated_or_ambiguous_json_is_not_repaired(raw: str) -> None:
    """DESIGN 5 and 11: text that was cut off, or has a key twice, is refused."""
    assert repair_json_text(raw) is None


def test_misspellings_are_not_other_words() -> None:
    """S3.5: a misspelling differs in one letter or in case; another number or word is none."""
    assert is_misspelling("startDate", "start_date")
    assert is_misspelling("querry", "query")
    assert not is_misspelling("x1", "x2")
    assert not is_misspelling("address1", "address2")
    assert not is_misspelling("min_price", "max_price")
    assert not is_misspelling("to", "on")


def test_a_name_near_two_parameters_is_not_renamed() -> None:
    """S3.5: a name that is similar to two parameters is left as it is."""
    schema = {"type": "object", "properties": {"colour": {"type": "string"}, "colours": {"type": "string"}}}
    value, repairs = repair_arguments({"coloura": "x"}, schema)
    assert value == {"coloura": "x"}
    assert repairs == ()


def test_recursive_schemas_are_repaired() -> None:
    """S3.5: repair follows local references, also recursive ones."""
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"size": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
            }
        },
    }
    received_arguments: list[Any] = []
    arguments = {"tree": {"size": "1", "next": {"size": "2"}}}
    run_calls(make_executor(build_tool("w", received_arguments.append, schema)), make_call("w", arguments))
    assert received_arguments == [{"tree": {"size": 1, "next": {"size": 2}}}]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "lat", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=choose_count(short=75, long=300), deadline=None)
@given(arguments=st.dictionaries(st.sampled_from([*SCHEMA["properties"], "Citty"]), values))
def test_repair_is_deterministic_and_leaves_good_arguments_alone(arguments: dict[str, Any]) -> None:
    """S3.5: the same arguments give the same repair; valid arguments are not changed."""
    check = compile_schema(SCHEMA)
    assert check is not None
    before = repr(arguments)
    repaired_arguments, repairs = repair_arguments(arguments, SCHEMA)
    assert repr(arguments) == before
    assert (repaired_arguments, repairs) == repair_arguments(arguments, SCHEMA)
    assert bool(repairs) == (repaired_arguments != arguments) or all(r.before == r.after for r in repairs)
    if check(arguments):
        assert repairs == ()
    if check(repaired_arguments):
        assert repair_arguments(repaired_arguments, SCHEMA)[1] == ()
    assert len(repaired_arguments) <= len(arguments)
