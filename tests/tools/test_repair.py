"""Repair: deterministic, recorded, and never an invention."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_calls import call, executor, made, ran

from toolchart.tools.execution.argument_repair import is_near, repaired_arguments, repaired_text
from toolchart.tools.execution.compiled_schema import compile_check

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
    ("given_", "fixed", "rule"),
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
        (
            {"city": "B", "where": {"lat": "50.1"}},
            {"city": "B", "where": {"lat": 50.1}},
            "a number",
        ),
    ],
)
def test_what_has_one_reading_is_put_right(
    given_: dict[str, Any], fixed: dict[str, Any], rule: str
) -> None:
    """S3.5: each rule changes exactly what it names, and the record says what it did."""
    seen: list[Any] = []
    (event,) = ran(executor(made("w", seen.append, SCHEMA)), call("w", given_))
    assert seen == [fixed]
    assert any(rule in note and "->" in note for note in event.notes)


@pytest.mark.parametrize(
    "given_",
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
        {"city": "B", "days": True},
    ],
)
def test_what_has_no_single_reading_is_an_error(given_: dict[str, Any]) -> None:
    """S3.5: a repair never makes up a value; a missing parameter stays missing."""
    seen: list[Any] = []
    (event,) = ran(executor(made("w", seen.append, SCHEMA)), call("w", given_))
    assert seen == []
    assert event.outcome == "failed"
    assert "Invalid arguments for 'w'" in event.result["error"]


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ('{"a": 1,}', {"a": 1}),
        ("{'a': 'x'}", {"a": "x"}),
        ('{"a": True, "b": None}', {"a": True, "b": None}),
        ('```json\n{"a": 1,}\n```', {"a": 1}),
        ('{"a": "x" "b": "y"}', {"a": "x", "b": "y"}),
    ],
)
def test_broken_text_is_read_where_its_sense_is_plain(raw: str, meant: dict[str, Any]) -> None:
    """S3.5: a comma too many, Python's spelling and a code fence are read, and recorded."""
    found = repaired_text(raw)
    assert found is not None
    assert found[0] == meant
    assert found[1].before == raw


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
        "{}}",
        "{" * 9000,
        '{"a": 1]',
        "{" + " " * 30_000 + "'a': 1}",
    ],
)
def test_cut_or_ambiguous_text_is_never_completed(raw: str) -> None:
    """DESIGN 5 and 11: text that was cut off, or says a key twice, is refused, not completed."""
    assert repaired_text(raw) is None


def test_near_names_are_slips_not_other_words() -> None:
    """S3.5: a slip is one letter or the writing; another number or another word is not."""
    assert is_near("startDate", "start_date")
    assert is_near("querry", "query")
    assert not is_near("x1", "x2")
    assert not is_near("address1", "address2")
    assert not is_near("min_price", "max_price")
    assert not is_near("to", "on")


def test_two_near_neighbours_are_no_answer() -> None:
    """S3.5: where two parameters are near, none is chosen."""
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string"}, "colours": {"type": "string"}},
    }
    value, repairs = repaired_arguments({"coloura": "x"}, schema)
    assert value == {"coloura": "x"}
    assert repairs == ()


def test_a_schema_that_names_itself_is_repaired_too() -> None:
    """S3.5: repair follows local references, recursive ones included."""
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "next": {"$ref": "#/$defs/node"},
                },
            }
        },
    }
    seen: list[Any] = []
    given_ = {"tree": {"size": "1", "next": {"size": "2"}}}
    ran(executor(made("w", seen.append, schema)), call("w", given_))
    assert seen == [{"tree": {"size": 1, "next": {"size": 2}}}]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "lat", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(arguments=st.dictionaries(st.sampled_from([*SCHEMA["properties"], "Citty"]), values))
def test_repair_is_deterministic_and_leaves_good_arguments_alone(arguments: dict[str, Any]) -> None:
    """S3.5: the same arguments give the same repair; fitting ones and known values are untouched."""
    check = compile_check(SCHEMA)
    assert check is not None
    before = repr(arguments)
    mended, repairs = repaired_arguments(arguments, SCHEMA)
    assert repr(arguments) == before
    assert (mended, repairs) == repaired_arguments(arguments, SCHEMA)
    assert bool(repairs) == (mended != arguments) or all(r.before == r.after for r in repairs)
    if check(arguments):
        assert repairs == ()
    if check(mended):
        assert repaired_arguments(mended, SCHEMA)[1] == ()
    assert len(mended) <= len(arguments)
