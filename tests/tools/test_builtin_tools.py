"""The builtin tools: text, dates, planner, fetch_result, algebra, clock."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_calls import call, executor, made, ran, standing

from toolchart.states.messages import Message, ToolCall
from toolchart.tools.builtin import BUILTINS, make_builtin
from toolchart.tools.builtin.dates import date_arithmetic
from toolchart.tools.builtin.planner import MOST_STEPS
from toolchart.tools.definition import Tool, ToolFailure


def told(name: str, **arguments: Any) -> Any:
    """The result, or the words of the error, of one call."""
    (event,) = ran(executor(BUILTINS[name]), call(name, arguments))
    return event.result["result"] if event.outcome == "succeeded" else event.result["error"]


def test_every_builtin_validates_against_its_own_schema() -> None:
    """S2.6: every builtin's schema is a schema, and describes each of its parameters."""
    from toolchart.tools.execution.arguments import check_schema

    for name, tool in BUILTINS.items():
        check_schema(tool.definition.parameters, name)
        assert tool.definition.description
        for parameter, schema in tool.definition.parameters["properties"].items():
            assert schema.get("description"), (name, parameter)


# -- text ----------------------------------------------------------------------------------------


def test_text_counts_and_changes() -> None:
    """Issue 6: count, case, replace and slice do what they say."""
    assert told("text", operation="count", text="a b\nc") == {
        "characters": 5,
        "words": 3,
        "lines": 2,
    }
    assert told("text", operation="count", text="Aa a", find="a", ignore_case=True) == {"count": 3}
    assert (
        told("text", operation="case", text="Hello bigWorld-x", to="snake") == "hello_big_world_x"
    )
    assert told("text", operation="case", text="hello_world", to="camel") == "helloWorld"
    assert told("text", operation="case", text="straße", to="upper") == "STRASSE"
    assert told("text", operation="replace", text="aaa", find="a", replacement="b")["count"] == 3
    assert told("text", operation="slice", text="abcdef", start=-3) == "def"
    assert told("text", operation="slice", text="abcdef", start=1, end=3) == "bc"


def test_text_compares() -> None:
    """Issue 6: a diff shows what changed, and says when nothing did."""
    assert told("text", operation="diff", text="a\nb", other="a\nb") == "no difference"
    assert told("text", operation="diff", text="a\nb", other="a\nc").endswith("-b\n+c")


def test_text_regex_finds_and_replaces() -> None:
    """Issue 6: matches come with places and groups; a replacement may use groups."""
    found = told("text", operation="regex", text="a1 b22", find=r"([a-z])(\d+)")
    assert found["count"] == 2
    assert found["matches"][1] == {"text": "b22", "start": 3, "groups": ["b", "22"]}
    replaced = told("text", operation="regex", text="a1 b2", find=r"(\w)(\d)", replacement=r"\2\1")
    assert replaced == {"text": "1a 2b", "count": 2}
    assert "not a regular expression" in told("text", operation="regex", text="x", find="(")
    wrong = told("text", operation="regex", text="x", find="x", replacement=r"\9")
    assert "cannot be used" in wrong


def test_text_names_what_an_operation_needs() -> None:
    """S2.6: a parameter that this operation needs is named."""
    assert "needs 'to'" in told("text", operation="case", text="x")
    assert "needs 'other'" in told("text", operation="diff", text="x")


# -- dates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"date": "2026-01-31", "amount": 1, "unit": "months"}, "2026-02-28"),
        ({"date": "2024-02-29", "amount": -1, "unit": "years"}, "2023-02-28"),
        ({"date": "2026-12-31", "amount": 1, "unit": "days"}, "2027-01-01"),
        ({"date": "2026-03-01", "amount": 36, "unit": "hours"}, "2026-03-02T12:00:00"),
        (
            {"date": "2026-03-01T23:30:00+01:00", "amount": 45, "unit": "minutes"},
            "2026-03-02T00:15:00+01:00",
        ),
    ],
)
def test_dates_add(arguments: dict[str, Any], expected: str) -> None:
    """Issue 6: months end where they end, and hours make a time of a date."""
    assert told("date_arithmetic", operation="add", **arguments)["date"] == expected


@given(start=st.dates(date(1000, 1, 1), date(3000, 1, 1)), days=st.integers(-9999, 9999))
def test_dates_add_and_differ_agree(start: date, days: int) -> None:
    """Issue 6: what is added is the difference afterwards."""
    there = date_arithmetic(
        {"operation": "add", "date": start.isoformat(), "amount": days, "unit": "days"}
    )["date"]
    span = date_arithmetic({"operation": "difference", "date": start.isoformat(), "other": there})
    assert there == (start + timedelta(days=days)).isoformat()
    assert span["days"] == days


def test_dates_differ_weekday_and_convert() -> None:
    """Issue 6: differences across zones count real time; zones convert by their names."""
    between = told(
        "date_arithmetic",
        operation="difference",
        date="2026-03-01T12:00+01:00",
        other="2026-03-01T12:00+00:00",
    )
    assert between["seconds"] == 3600
    assert told("date_arithmetic", operation="weekday", date="2026-11-20")["weekday"] == "Friday"
    converted = told(
        "date_arithmetic",
        operation="convert",
        date="2026-07-01T12:00+00:00",
        timezone="Europe/Prague",
    )
    assert converted["date"] == "2026-07-01T14:00:00+02:00"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"operation": "weekday", "date": "soon"}, "no ISO date"),
        ({"operation": "add", "date": "2026-01-01"}, "needs 'amount'"),
        (
            {"operation": "add", "date": "9999-12-31", "amount": 1, "unit": "days"},
            "years 1 to 9999",
        ),
        ({"operation": "add", "date": "2026-01-01", "amount": 10**12, "unit": "months"}, "years 1"),
        ({"operation": "convert", "date": "2026-01-01", "timezone": "UTC"}, "its own zone"),
        (
            {
                "operation": "difference",
                "date": "2026-01-01",
                "other": "2026-01-02",
                "timezone": "Mars/Base",
            },
            "no time zone 'Mars/Base'",
        ),
    ],
)
def test_dates_say_what_is_wrong(arguments: dict[str, Any], words: str) -> None:
    """S2.4: what cannot be a date or lies out of reach is told in words."""
    with pytest.raises(ToolFailure, match=words):
        date_arithmetic(arguments)


def test_the_clock_says_when_a_zone_is_unknown() -> None:
    """Issue 6: a bad zone gives UTC and says so; a city's name is enough."""
    bad = told("get_current_datetime", timezone="Mars/Base")
    assert bad["timezone"] == "UTC"
    assert "Mars/Base" in bad["note"]
    assert told("get_current_datetime", timezone="prague")["timezone"] == "Europe/Prague"
    assert datetime.fromisoformat(told("get_current_datetime")["iso"]).utcoffset() == timedelta(0)


# -- planner -------------------------------------------------------------------------------------


def answered(*results: tuple[str, Any]) -> tuple[Message, ...]:
    """A conversation in which planner calls had these results."""
    messages = [Message(role="user", content="go")]
    for number, (name, result) in enumerate(results):
        content = json.dumps({"success": True, "result": result, "tool_name": name})
        messages.append(Message(role="tool", content=content, tool_call_id=f"c{number}", name=name))
    return tuple(messages)


def fresh_planner() -> Tool:
    """A planner as a new process has it."""
    tool = make_builtin("planner", {}, "planner")
    assert tool is not None
    return tool


def planned(arguments: dict[str, Any], *before: tuple[str, Any]) -> Any:
    """The event of one planner call after these results."""
    one = call("planner", arguments, id="now")
    snapshot = standing(one, messages=answered(*before))
    (event,) = ran(executor(fresh_planner()).bind("c", lambda: snapshot), one)
    return event


def test_the_plan_lives_in_the_conversation() -> None:
    """S4.7: the newest planner result is the plan; a fresh process goes on from it."""
    created = planned({"action": "create_plan", "goal": "g", "steps": ["a", "b"]}).result["result"]
    assert (created["done"], created["next"]) == (0, 1)
    done = planned(
        {"action": "mark_done", "step": 1, "note": "ok"}, ("planner", created), ("echo", "x")
    ).result["result"]
    assert done["steps"][0] == {"text": "a", "done": True, "note": "ok", "step": 1}
    assert done["next"] == 2
    updated = planned(
        {"action": "update_plan", "steps": ["b", "a", "c"]}, ("planner", created), ("planner", done)
    ).result["result"]
    assert [step["done"] for step in updated["steps"]] == [False, True, False]
    assert planned({"action": "read_plan"}, ("planner", updated)).result["result"] == updated


def test_planner_calls_of_one_reply_see_each_other() -> None:
    """S4.6: several planner calls in one reply work on one plan, in the model's order."""
    calls = [
        call("planner", {"action": "create_plan", "steps": ["a", "b"]}, id="1"),
        call("planner", {"action": "mark_done", "step": 1}, id="2"),
        call("planner", {"action": "mark_done", "step": 2}, id="3"),
    ]
    snapshot = standing(*calls)
    events = ran(executor(fresh_planner()).bind("c", lambda: snapshot), *calls)
    assert events[-1].result["result"]["done"] == 2


def test_a_plan_is_shown_whole_and_bounded() -> None:
    """S4.7: the longest plan is never cut, since the log's newest result is the plan."""
    steps = ["x" * 300] * MOST_STEPS
    event = planned({"action": "create_plan", "steps": steps})
    assert event.shown is None
    too_many = planned({"action": "create_plan", "steps": [*steps, "one more"]})
    assert too_many.outcome == "failed"


def test_the_planner_says_what_is_missing() -> None:
    """S4.7: without a plan, and with a step that there is not, it says so."""
    assert "no plan yet" in planned({"action": "mark_done", "step": 1}).result["error"]
    plan = planned({"action": "create_plan", "steps": ["a"]}).result["result"]
    beyond = planned({"action": "mark_done", "step": 9}, ("planner", plan))
    assert "from 1 to 1" in beyond.result["error"]


# -- fetch_result --------------------------------------------------------------------------------


def fetched(whole: Any, **arguments: Any) -> Any:
    """The event of one fetch_result call for the handle `h`."""
    one = call("fetch_result", {"handle": "h", **arguments})
    snapshot = standing(one)
    results = {"h": {"success": True, "result": whole}}
    (event,) = ran(executor(BUILTINS["fetch_result"]).bind("c", lambda: snapshot, results.get), one)
    return event


@given(text=st.text(min_size=1, max_size=4000).map(lambda t: t * 3))
def test_the_parts_make_the_whole(text: str) -> None:
    """S2.12: read from offset to offset, the parts are the whole result, and no part is cut."""
    whole, offset, parts = text.encode("utf-8", "replace").decode(), 0, ""
    while offset is not None:
        event = fetched(whole, offset=offset)
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
    event = fetched([1, {"a": "b"}], length=4)
    assert event.result["result"]["text"].startswith("[1,")


def test_an_unknown_handle_or_offset_is_told() -> None:
    """S2.12: a handle of no result of this conversation, and an offset behind the end."""
    one = call("fetch_result", {"handle": "zzz"})
    snapshot = standing(one)
    (event,) = ran(executor(BUILTINS["fetch_result"]).bind("c", lambda: snapshot), one)
    assert "no result of this conversation has the handle 'zzz'" in event.result["error"]
    assert "behind the end" in fetched("abc", offset=3).result["error"]


def test_cut_output_and_fetch_result_fit_together() -> None:
    """S2.12: the handle and offset in the notice fetch exactly what was left out."""
    whole = "\n".join(f"line {n}" for n in range(2000))
    ex = executor(made("read", lambda a: whole), BUILTINS["fetch_result"])
    one = call("read", id="h")
    snapshot = standing(one)
    log: dict[str, Any] = {}
    bound = ex.bind("c", lambda: snapshot, log.get)
    (event,) = ran(bound, one)
    log["h"] = event.result
    shown = json.loads(event.shown)
    offset = int(shown["truncated"].rsplit("offset ", 1)[1].split()[0])
    (rest,) = ran(
        bound, ToolCall(id="f", name="fetch_result", arguments={"handle": "h", "offset": offset})
    )
    assert whole.startswith(shown["result"])
    assert whole[offset:].startswith(rest.result["result"]["text"])


# -- algebra -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"expression": "x**2 = 4", "operation": "solve"},
            {"variable": "x", "solutions": ["-2", "2"]},
        ),
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
    """Issue 6: solve, simplify, derivative and integral on request."""
    assert told("calculator", **arguments) == expected
