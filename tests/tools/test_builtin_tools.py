"""Tests of the builtin tools: text, dates, clock, planner, fetch_result, algebra."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_calls import build_snapshot, build_tool, make_call, make_executor, run_calls

from toolchart.states.messages import Message, ToolCall
from toolchart.tools.builtin import BUILTINS, make_builtin
from toolchart.tools.builtin.algebra import solve_symbolically
from toolchart.tools.builtin.dates import run_date_operation
from toolchart.tools.builtin.planner import MAX_STEPS
from toolchart.tools.definition import Tool, ToolFailure


def call_builtin(name: str, **arguments: Any) -> Any:
    """The result of one call, or its error text."""
    (event,) = run_calls(make_executor(BUILTINS[name]), make_call(name, arguments))
    return event.result["result"] if event.outcome == "succeeded" else event.result["error"]


def test_every_builtin_validates_against_its_own_schema() -> None:
    """S2.6: every builtin has a valid schema that describes each of its parameters."""
    from toolchart.tools.schemas.checks import check_schema

    for name, tool in BUILTINS.items():
        check_schema(tool.definition.parameters, name)
        assert tool.definition.description
        for parameter, schema in tool.definition.parameters["properties"].items():
            assert schema.get("description"), (name, parameter)


# -- text ----------------------------------------------------------------------------------------


def test_text_counts_and_changes() -> None:
    """Issue 6: count, case, replace and slice give the expected results."""
    assert call_builtin("text", operation="count", text="a b\nc") == {"characters": 5, "words": 3, "lines": 2}
    assert call_builtin("text", operation="count", text="Aa a", find="a", ignore_case=True) == {"count": 3}
    assert call_builtin("text", operation="case", text="Hello bigWorld-x", to="snake") == "hello_big_world_x"
    assert call_builtin("text", operation="case", text="hello_world", to="camel") == "helloWorld"
    assert call_builtin("text", operation="case", text="straße", to="upper") == "STRASSE"
    assert call_builtin("text", operation="replace", text="aaa", find="a", replacement="b")["count"] == 3
    assert call_builtin("text", operation="slice", text="abcdef", start=-3) == "def"
    assert call_builtin("text", operation="slice", text="abcdef", start=1, end=3) == "bc"


def test_text_compares() -> None:
    """Issue 6: a diff shows the changed lines, or reports that there is no difference."""
    assert call_builtin("text", operation="diff", text="a\nb", other="a\nb") == "no difference"
    assert call_builtin("text", operation="diff", text="a\nb", other="a\nc").endswith("-b\n+c")


def test_text_regex_finds_and_replaces() -> None:
    """Issue 6: matches have positions and groups; a replacement may refer to groups."""
    matches = call_builtin("text", operation="regex", text="a1 b22", find=r"([a-z])(\d+)")
    assert matches["count"] == 2
    assert matches["matches"][1] == {"text": "b22", "start": 3, "groups": ["b", "22"]}
    swap = call_builtin("text", operation="regex", text="a1 b2", find=r"(\w)(\d)", replacement=r"\2\1")
    assert swap == {"text": "1a 2b", "count": 2}
    assert "not a regular expression" in call_builtin("text", operation="regex", text="x", find="(")
    error = call_builtin("text", operation="regex", text="x", find="x", replacement=r"\9")
    assert "cannot be used" in error


def test_text_names_what_an_operation_needs() -> None:
    """S2.6: an error names the missing parameter of the operation."""
    assert "needs 'to'" in call_builtin("text", operation="case", text="x")
    assert "needs 'other'" in call_builtin("text", operation="diff", text="x")


# -- dates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"date": "2026-01-31", "amount": 1, "unit": "months"}, "2026-02-28"),
        ({"date": "2024-02-29", "amount": -1, "unit": "years"}, "2023-02-28"),
        ({"date": "2026-12-31", "amount": 1, "unit": "days"}, "2027-01-01"),
        ({"date": "2026-03-01", "amount": 36, "unit": "hours"}, "2026-03-02T12:00:00"),
        ({"date": "2026-03-01T23:30:00+01:00", "amount": 45, "unit": "minutes"}, "2026-03-02T00:15:00+01:00"),
    ],
)
def test_dates_add(arguments: dict[str, Any], expected: str) -> None:
    """Issue 6: adding months stops at the end of a month; adding hours to a date gives a time."""
    assert call_builtin("date_arithmetic", operation="add", **arguments)["date"] == expected


@given(start=st.dates(date(1000, 1, 1), date(3000, 1, 1)), days=st.integers(-9999, 9999))
def test_dates_add_and_differ_agree(start: date, days: int) -> None:
    """Issue 6: the difference between a date and the date plus n days is n days."""
    end = run_date_operation({"operation": "add", "date": start.isoformat(), "amount": days, "unit": "days"})[
        "date"
    ]
    span = run_date_operation({"operation": "difference", "date": start.isoformat(), "other": end})
    assert end == (start + timedelta(days=days)).isoformat()
    assert span["days"] == days


def test_dates_differ_weekday_and_convert() -> None:
    """Issue 6: differences across zones count real time; zones convert by their names."""
    difference = call_builtin(
        "date_arithmetic",
        operation="difference",
        date="2026-03-01T12:00+01:00",
        other="2026-03-01T12:00+00:00",
    )
    assert difference["seconds"] == 3600
    assert call_builtin("date_arithmetic", operation="weekday", date="2026-11-20")["weekday"] == "Friday"
    conversion = call_builtin(
        "date_arithmetic", operation="convert", date="2026-07-01T12:00+00:00", timezone="Europe/Prague"
    )
    assert conversion["date"] == "2026-07-01T14:00:00+02:00"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"operation": "weekday", "date": "soon"}, "not an ISO date"),
        ({"operation": "add", "date": "2026-01-01"}, "needs 'amount'"),
        ({"operation": "add", "date": "9999-12-31", "amount": 1, "unit": "days"}, "years 1 to 9999"),
        ({"operation": "add", "date": "2026-01-01", "amount": 10**12, "unit": "months"}, "years 1"),
        ({"operation": "convert", "date": "2026-01-01", "timezone": "UTC"}, "its own zone"),
        (
            {"operation": "difference", "date": "2026-01-01", "other": "2026-01-02", "timezone": "Mars/Base"},
            "no time zone 'Mars/Base'",
        ),
    ],
)
def test_impossible_dates_are_explained(arguments: dict[str, Any], words: str) -> None:
    """S2.4: invalid dates, missing parameters and results out of range are explained."""
    with pytest.raises(ToolFailure, match=words):
        run_date_operation(arguments)


def test_the_clock_notes_an_unknown_zone() -> None:
    """Issue 6: an unknown zone gives UTC with a note; the name of a city is enough."""
    bad = call_builtin("get_current_datetime", timezone="Mars/Base")
    assert bad["timezone"] == "UTC"
    assert "Mars/Base" in bad["note"]
    assert call_builtin("get_current_datetime", timezone="prague")["timezone"] == "Europe/Prague"
    assert datetime.fromisoformat(call_builtin("get_current_datetime")["iso"]).utcoffset() == timedelta(0)


# -- planner -------------------------------------------------------------------------------------


def make_messages(*results: tuple[str, Any]) -> tuple[Message, ...]:
    """A conversation in which planner calls had these results."""
    messages = [Message(role="user", content="go")]
    for number, (name, result) in enumerate(results):
        content = json.dumps({"success": True, "result": result, "tool_name": name})
        messages.append(Message(role="tool", content=content, tool_call_id=f"c{number}", name=name))
    return tuple(messages)


def make_planner() -> Tool:
    """A planner without any memory, as in a new process."""
    tool = make_builtin("planner", {}, "planner")
    assert tool is not None
    return tool


def run_planner(arguments: dict[str, Any], *before: tuple[str, Any]) -> Any:
    """The event of one planner call after these results."""
    call = make_call("planner", arguments, id="now")
    snapshot = build_snapshot(call, messages=make_messages(*before))
    (event,) = run_calls(make_executor(make_planner()).bind("c", lambda: snapshot), call)
    return event


def test_the_plan_lives_in_the_conversation() -> None:
    """S4.7: the newest planner result is the plan; a new process continues from it."""
    plan = run_planner({"action": "create_plan", "goal": "g", "steps": ["a", "b"]}).result["result"]
    assert (plan["done"], plan["next"]) == (0, 1)
    second_plan = run_planner(
        {"action": "mark_done", "step": 1, "note": "ok"}, ("planner", plan), ("echo", "x")
    ).result["result"]
    assert second_plan["steps"][0] == {"text": "a", "done": True, "note": "ok", "step": 1}
    assert second_plan["next"] == 2
    newest_plan = run_planner(
        {"action": "update_plan", "steps": ["b", "a", "c"]}, ("planner", plan), ("planner", second_plan)
    ).result["result"]
    assert [step["done"] for step in newest_plan["steps"]] == [False, True, False]
    assert run_planner({"action": "read_plan"}, ("planner", newest_plan)).result["result"] == newest_plan


def test_planner_calls_of_one_reply_see_each_other() -> None:
    """S4.6: several planner calls in one reply work on one plan, in the model's order."""
    calls = [
        make_call("planner", {"action": "create_plan", "steps": ["a", "b"]}, id="1"),
        make_call("planner", {"action": "mark_done", "step": 1}, id="2"),
        make_call("planner", {"action": "mark_done", "step": 2}, id="3"),
    ]
    snapshot = build_snapshot(*calls)
    events = run_calls(make_executor(make_planner()).bind("c", lambda: snapshot), *calls)
    assert events[-1].result["result"]["done"] == 2


def test_a_plan_is_shown_whole_and_bounded() -> None:
    """S4.7: the longest possible plan is not cut in the output, and a longer one is refused."""
    steps = ["x" * 300] * MAX_STEPS
    event = run_planner({"action": "create_plan", "steps": steps})
    assert event.shown is None
    too_many = run_planner({"action": "create_plan", "steps": [*steps, "one more"]})
    assert too_many.outcome == "failed"


def test_the_planner_names_what_is_missing() -> None:
    """S4.7: a missing plan and an unknown step are errors with a reason."""
    assert "no plan yet" in run_planner({"action": "mark_done", "step": 1}).result["error"]
    plan = run_planner({"action": "create_plan", "steps": ["a"]}).result["result"]
    beyond = run_planner({"action": "mark_done", "step": 9}, ("planner", plan))
    assert "from 1 to 1" in beyond.result["error"]


# -- fetch_result --------------------------------------------------------------------------------


def run_fetch_result(whole: Any, **arguments: Any) -> Any:
    """The event of one fetch_result call for the handle `h`."""
    call = make_call("fetch_result", {"handle": "h", **arguments})
    snapshot = build_snapshot(call)
    results = {"h": {"success": True, "result": whole}}
    (event,) = run_calls(
        make_executor(BUILTINS["fetch_result"]).bind("c", lambda: snapshot, results.get), call
    )
    return event


@given(text=st.text(min_size=1, max_size=4000).map(lambda t: t * 3))
def test_the_parts_make_the_whole(text: str) -> None:
    """S2.12: the parts read from offset to offset make up the whole result; no part is cut."""
    whole, offset, parts = text.encode("utf-8", "replace").decode(), 0, ""
    while offset is not None:
        event = run_fetch_result(whole, offset=offset)
        assert event.outcome == "succeeded"
        assert event.shown is None
        part = event.result["result"]
        gap = part["offset"] - len(parts)
        assert gap == 0
        parts += part["text"]
        offset = part["next_offset"]
    assert parts == whole


def test_what_is_not_text_is_fetched_as_json() -> None:
    """S2.12: a structured result is read as the JSON text that was cut."""
    event = run_fetch_result([1, {"a": "b"}], length=4)
    assert event.result["result"]["text"].startswith("[1,")


def test_an_unknown_handle_or_offset_is_an_error() -> None:
    """S2.12: an unknown handle and an offset behind the end are errors with a reason."""
    call = make_call("fetch_result", {"handle": "zzz"})
    snapshot = build_snapshot(call)
    (event,) = run_calls(make_executor(BUILTINS["fetch_result"]).bind("c", lambda: snapshot), call)
    assert "no result of this conversation has the handle 'zzz'" in event.result["error"]
    assert "behind the end" in run_fetch_result("abc", offset=3).result["error"]


@pytest.mark.parametrize("variable", ["", "x y", "__class__", "x1", "ä"])
async def test_a_variable_is_a_word_of_letters(variable: str) -> None:
    """Anything else fails before a worker is started, and says what a variable is."""
    arguments = {"expression": "2*y + 6", "operation": "solve", "variable": variable}
    with pytest.raises(ToolFailure, match="one to ten letters"):
        await solve_symbolically(arguments)


def test_cut_output_and_fetch_result_fit_together() -> None:
    """S2.12: the handle and offset in the notice of a cut result fetch exactly the rest."""
    whole = "\n".join(f"line {n}" for n in range(2000))
    ex = make_executor(build_tool("read", lambda a: whole), BUILTINS["fetch_result"])
    call = make_call("read", id="h")
    snapshot = build_snapshot(call)
    log: dict[str, Any] = {}
    bound = ex.bind("c", lambda: snapshot, log.get)
    (event,) = run_calls(bound, call)
    log["h"] = event.result
    model_result = json.loads(event.shown)
    offset = int(model_result["truncated"].rsplit("offset ", 1)[1].split()[0])
    (rest,) = run_calls(
        bound, ToolCall(id="f", name="fetch_result", arguments={"handle": "h", "offset": offset})
    )
    assert whole.startswith(model_result["result"])
    assert whole[offset:].startswith(rest.result["result"]["text"])


# -- algebra -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"expression": "x**2 = 4", "operation": "solve"}, {"variable": "x", "solutions": ["-2", "2"]}),
        (
            {"expression": "2*y + 6", "operation": "solve", "variable": "y"},
            {"variable": "y", "solutions": ["-3"]},
        ),
        ({"expression": "sin(x)**2 + cos(x)**2", "operation": "simplify"}, {"result": "1"}),
        ({"expression": "x^3", "operation": "derivative"}, {"result": "3*x**2"}),
        ({"expression": "a*x", "operation": "integral"}, {"result": "a*x**2/2"}),
    ],
)
def test_algebra(arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    """Issue 6: solve, simplify, derivative and integral give exact results."""
    assert call_builtin("calculator", **arguments) == expected
