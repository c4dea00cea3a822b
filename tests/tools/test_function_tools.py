"""Tests of Python functions as tools: the schema from the signature, arguments with their types."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from tool_calls import make_call, make_executor, run_calls
from typing_extensions import TypedDict

from toolchart.states.errors import SpecError
from toolchart.tools import tool
from toolchart.tools.sources.python import make_tool


class Colour(enum.Enum):
    """An enumeration."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Rows:
    """A dataclass as a parameter."""

    table: str = "all"
    limit: int = 1000


class RowsModel(BaseModel):
    """The same as a model."""

    table: str = "all"
    limit: int = 1000


class RowsDict(TypedDict, total=False):
    """The same as a dictionary."""

    table: str
    limit: int


class OpenRows(RowsModel):
    """A model that takes what it does not know."""

    model_config = ConfigDict(extra="allow")


class Person(BaseModel):
    """A model as a parameter."""

    name: str
    born: date


@tool(idempotent=True, risk="high", timeout_s=2.0)
def plan(
    who: Person,
    day: date,
    colours: list[Colour],
    kind: Literal["fast", "slow"] = "slow",
    size: Annotated[int, Field(ge=1, description="How many.")] = 1,
    note: str | None = None,
) -> dict[str, Any]:
    """Plan a day.

    The second paragraph.

    Args:
        who: The person
            who travels.
        day: When.

    Returns:
        Anything.
    """
    return {"born": who.born.year, "day": day, "colours": colours, "kind": kind, "size": size, "note": note}


def test_the_schema_comes_from_the_signature() -> None:
    """Issue 2: types, defaults, constraints and the docstring make the schema."""
    plan_tool = make_tool(plan)
    schema = plan_tool.definition.parameters
    assert schema["required"] == ["who", "day", "colours"]
    assert schema["properties"]["size"]["minimum"] == 1
    assert schema["properties"]["size"]["description"] == "How many."
    assert schema["properties"]["who"]["description"] == "The person who travels."
    assert schema["properties"]["day"]["format"] == "date"
    assert schema["properties"]["kind"]["enum"] == ["fast", "slow"]
    assert plan_tool.definition.description == "Plan a day.\n\nThe second paragraph."
    assert (plan_tool.idempotent, plan_tool.risk, plan_tool.timeout_s) == (True, "high", 2.0)


def test_values_arrive_as_the_types_say() -> None:
    """Issue 2: arguments arrive as model, date and enumeration; the result becomes plain JSON."""
    arguments = {
        "who": {"name": "Ada", "born": "1815-12-10"},
        "day": "2026-01-02",
        "colours": ["red"],
        "note": None,
    }
    (event,) = run_calls(make_executor(make_tool(plan)), make_call("plan", arguments))
    assert event.result["result"] == {
        "born": 1815,
        "day": "2026-01-02",
        "colours": ["red"],
        "kind": "slow",
        "size": 1,
        "note": None,
    }


def test_values_that_only_the_type_refuses_name_their_parameter() -> None:
    """S2.6: a value that fits the schema but not the type names its parameter."""
    arguments = {"who": {"name": "A", "born": "1815-12-10"}, "day": "soon", "colours": []}
    (event,) = run_calls(make_executor(make_tool(plan)), make_call("plan", arguments))
    assert event.outcome == "failed"
    assert "'day'" in event.result["error"]


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (datetime, "20200102", "'20200102' is no date-time: write it as 2026-01-31T10:00:00Z"),
        (datetime, 1577923200, "is no date-time"),
        (datetime | None, "1577923200.5", "is no date-time"),
        (date, "1577923200", "is no date: write it as 2026-01-31"),
        (date, 0, "is no date"),
        (list[date], ["2026-01-02", "-0"], "parameter 'value[1]'"),
        (dict[str, date], {"a": "0"}, "parameter 'value.a'"),
        (Person, {"name": "A", "born": "0"}, "parameter 'value.born'"),
        (time, 90, "'90' is no time: write it as 10:00:00"),
        (timedelta, 90, "'90' is no duration: write it as PT5M"),
        (Decimal, 12345678901234567.89, "may have lost digits: write it as a text"),
        (list[Decimal] | None, [0.12345678901234567], "may have lost digits"),
        (int, 12345678901234567.0, "several integers"),
        (int, 5.5, "must be an integer"),
        (bool, "perhaps", "must be a boolean"),
    ],
)
def test_no_time_or_number_is_made_up(kind: Any, value: Any, words: str) -> None:
    """What the model asked is what runs: digits are no seconds since 1970, and no digit of a number is lost
    or rounded away; the error says the form that is meant."""
    ran: list[Any] = []

    def take(value: Any) -> None:
        ran.append(value)

    take.__annotations__["value"] = kind
    (event,) = run_calls(make_executor(make_tool(take)), make_call("take", {"value": value}))
    assert (event.result.get("error", event), ran) == (event.result["error"], [])
    assert words in event.result["error"]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (datetime, "2020-01-02", datetime(2020, 1, 2)),
        (datetime, "2020-01-02 10:00", datetime(2020, 1, 2, 10)),
        (datetime | str, "20200102", "20200102"),
        (datetime | int, 20200102, 20200102),
        (time, "10:30", time(10, 30)),
        (timedelta, "PT5M", timedelta(minutes=5)),
        (Decimal, "12345678901234567.89", Decimal("12345678901234567.89")),
        (Decimal, 0.1, Decimal("0.1")),
        (Decimal, 10**20, Decimal(10**20)),
        (int, 5.0, 5),
        (float, 0.1 + 0.2, 0.1 + 0.2),
    ],
)
def test_a_value_with_one_meaning_arrives(kind: Any, value: Any, expected: Any) -> None:
    """ISO forms, numbers that a float holds, and what another alternative of the type takes as it stands."""
    ran: list[Any] = []

    def take(value: Any) -> None:
        ran.append(value)

    take.__annotations__["value"] = kind
    run_calls(make_executor(make_tool(take)), make_call("take", {"value": value}))
    assert ran == [expected]


@pytest.mark.parametrize("kind", [Rows, RowsModel, RowsDict, RowsDict | None, RowsModel | Rows])
@pytest.mark.parametrize("is_in_list", [False, True])
def test_an_unknown_field_of_a_class_is_refused(kind: Any, is_in_list: bool) -> None:
    """What the model asked is what runs: a class would make its object of its defaults, without the field."""
    ran: list[Any] = []

    def delete_rows(rows: Any) -> None:
        ran.append(rows)

    delete_rows.__annotations__["rows"] = list[kind] if is_in_list else kind
    executor = make_executor(make_tool(delete_rows))
    for rows in ({"where": "old"}, {"table": "old", "where": "old"}):
        (event,) = run_calls(executor, make_call("delete_rows", {"rows": [rows] if is_in_list else rows}))
        assert (event.outcome, ran) == ("failed", [])
        assert "'rows" in event.result["error"]
    (event,) = run_calls(
        executor, make_call("delete_rows", {"rows": [{"table": "old"}] if is_in_list else {"table": "old"}})
    )
    assert (event.outcome, len(ran)) == ("succeeded", 1)


def test_a_class_that_takes_unknown_fields_gets_them() -> None:
    """A model with `extra="allow"` says what becomes of a field that it does not have."""
    ran: list[OpenRows] = []

    def delete_rows(rows: OpenRows) -> None:
        ran.append(rows)

    delete_rows.__annotations__["rows"] = OpenRows
    (event,) = run_calls(
        make_executor(make_tool(delete_rows)), make_call("delete_rows", {"rows": {"where": "old"}})
    )
    assert event.outcome == "succeeded"
    assert ran[0].model_extra == {"where": "old"}


def test_odd_parameter_names_work() -> None:
    """Issue 2: a parameter may have a name that pydantic forbids for fields."""

    def odd(json: str, _x: int, model_config: int = 3, self_: int = 4) -> list[Any]:
        return [json, _x, model_config, self_]

    (event,) = run_calls(make_executor(make_tool(odd)), make_call("odd", {"json": "a", "_x": 1}))
    assert event.result["result"] == ["a", 1, 3, 4]


def test_a_callable_object_is_a_tool_too() -> None:
    """Issue 2: any callable with a signature can be a tool."""

    class Adder:
        """Adds."""

        def __call__(self, a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

    (event,) = run_calls(make_executor(make_tool(Adder())), make_call("Adder", {"a": 1, "b": 2}))
    assert event.result["result"] == 3


def test_functions_that_cannot_be_tools_are_explained() -> None:
    """Issue 2: a star parameter, a type without a schema and an unknown option are named."""

    def star(*args: int) -> None: ...

    with pytest.raises(SpecError, match="'args' of tool 'star'"):
        make_tool(star)
    with pytest.raises(SpecError, match="risk"):
        tool(rsik="high")

    class Opaque: ...

    def foreign(value: Opaque) -> None: ...

    foreign.__annotations__["value"] = Opaque
    with pytest.raises(SpecError, match="'foreign'"):
        make_tool(foreign)


def test_docstrings_in_the_other_style_are_read_too() -> None:
    """Issue 2: `:param name:` describes a parameter as `Args:` does."""

    def look(query: str) -> str:
        """Look something up.

        :param query: What to look for.
        :returns: What was found.
        """
        return query

    definition = make_tool(look).definition
    assert definition.description == "Look something up."
    assert definition.parameters["properties"]["query"]["description"] == "What to look for."
