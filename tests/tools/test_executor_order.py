"""The executor's order: known, allowed, parsed, valid, approved, no loop, within budget, run, cut."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_calls import TEXT, call, executor, made, ran, standing

from toolchart.states.events import Limits
from toolchart.states.messages import Message, ToolCall
from toolchart.tools.approval import parse_policy
from toolchart.tools.definition import ToolFailure
from toolchart.tools.execution.output_limits import OutputLimits


def echo(arguments: Any) -> Any:
    return arguments["text"]


def test_a_result_has_exactly_four_keys() -> None:
    """S2.4: success and failure have their four keys each and no other."""
    good, bad = ran(executor(made("echo", echo, TEXT)), call("echo", {"text": "hi"}), call("nope"))
    assert good.result.keys() == {"success", "result", "tool_name", "execution_time_ms"}
    assert bad.result.keys() == {"success", "error", "tool_name", "execution_time_ms"}
    assert good.result["result"] == "hi"
    assert good.outcome == "succeeded"
    assert isinstance(good.result["execution_time_ms"], float)


def test_an_unknown_tool_is_named_with_its_nearest() -> None:
    """S2.4: an unknown tool is `not found`, and the nearest known name is given."""
    (event,) = ran(executor(made("echo", echo, TEXT)), call("ecko", {"text": "x"}))
    assert event.result["error"].startswith("Tool 'ecko' not found")
    assert "'echo'" in event.result["error"]


def test_the_allow_list_holds_at_execution() -> None:
    """S2.9: a tool that is not allowed here does not run, whatever the model was shown."""
    seen: list[Any] = []
    ex = executor(made("echo", echo, TEXT), made("danger", seen.append))
    (event,) = ran(ex, call("danger"), allowed=("echo",))
    assert event.outcome == "denied"
    assert "Tool 'danger' is not allowed here" in event.result["error"]
    assert seen == []
    assert ex.review(call("danger"), ("echo",)).ruling == "denied"


def test_nothing_is_allowed_by_an_empty_list() -> None:
    """S2.9: an empty list allows nothing; that empty means all is the handler's reading, not this."""
    (event,) = ran(executor(made("echo", echo, TEXT)), call("echo", {"text": "x"}), allowed=())
    assert event.outcome == "denied"


def test_unreadable_arguments_never_run_as_empty() -> None:
    """S1.17: text that cannot be parsed is an error with its position, never a call with `{}`."""
    seen: list[Any] = []
    broken = call("note", '{"text": "cut off')
    (event,) = ran(executor(made("note", seen.append)), broken)
    assert event.outcome == "failed"
    assert "line 1 column" in event.result["error"]
    assert seen == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["missing required parameter 'city'"]),
        ({"city": "Brno", "days": "soon"}, ["'days'", "an integer", "'soon'"]),
        ({"city": "Brno", "unit": "kelvin"}, ["'unit'", "'celsius', 'fahrenheit'", "'kelvin'"]),
        ({"city": "Brno", "where": {"lat": None}}, ["'where.lat'", "a number"]),
        ({"city": "Brno", "tags": ["a", None]}, ["'tags[1]'", "a string"]),
        ({"city": "Brno", "days": 99}, ["'days'", "99", "10"]),
        ({"city": "Brno", "where": {"lat": 1, "lng": 2}}, ["unknown parameter 'where.lng'", "lat"]),
    ],
)
def test_an_invalid_call_names_the_parameter(arguments: dict[str, Any], words: list[str]) -> None:
    """S2.6: the error says which parameter, what was expected and what is allowed."""
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "maximum": 10},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "where": {
                "type": "object",
                "properties": {"lat": {"type": "number"}},
                "additionalProperties": False,
            },
        },
        "required": ["city"],
    }
    seen: list[Any] = []
    (event,) = ran(executor(made("weather", seen.append, schema)), call("weather", arguments))
    assert seen == []
    assert event.outcome == "failed"
    for word in words:
        assert word in event.result["error"]


def test_unknown_parameters_are_dropped_with_a_note() -> None:
    """Issue 6: a parameter that the schema does not know is left out, and the record says so."""
    ex = executor(made("echo", lambda arguments: sorted(arguments), TEXT))
    (event,) = ran(ex, call("echo", {"text": "x", "volume": 11}))
    assert event.result["result"] == ["text"]
    assert event.notes == ("dropped 'volume', which the tool does not know",)
    verdict = ex.review(call("echo", {"text": "x", "volume": 11}), ("echo",))
    assert verdict.arguments == {"text": "x"}


def test_unknown_parameters_are_an_error_where_the_schema_forbids_them() -> None:
    """Issue 6: `additionalProperties: false` turns an unknown parameter into an error."""
    schema = {**TEXT, "additionalProperties": False}
    (event,) = ran(executor(made("echo", echo, schema)), call("echo", {"text": "x", "volume": 11}))
    assert event.outcome == "failed"
    assert "unknown parameter 'volume'" in event.result["error"]


def test_unknown_parameters_stay_where_the_schema_takes_any() -> None:
    """Issue 6: `additionalProperties: true` keeps what the schema does not list."""
    schema = {**TEXT, "additionalProperties": True}
    (event,) = ran(
        executor(made("echo", lambda arguments: sorted(arguments), schema)),
        call("echo", {"text": "x", "volume": 11}),
    )
    assert event.result["result"] == ["text", "volume"]


def test_an_unapproved_call_does_not_run_in_a_conversation() -> None:
    """Issue 6, DESIGN 11: without a grant for this very call a risky tool does not run."""
    seen: list[Any] = []
    ex = executor(made("pay", lambda arguments: seen.append(1), risk="high"))
    one = call("pay")
    asked = standing(one)
    waiting = asked.evolve(calls=(replace(asked.calls[0], ruling="needs_approval"),))
    (event,) = ran(ex.bind("c", lambda: waiting), one)
    assert event.outcome == "denied"
    assert seen == []
    (event,) = ran(ex.bind("c", lambda: asked), one)
    assert event.outcome == "succeeded"
    assert ex.review(one, ("pay",)).ruling == "needs_approval"


def test_a_grant_covers_these_arguments_and_one_run() -> None:
    """Issue 6: a grant is bound to call id, tool and arguments, and good for one run."""
    ex = executor(made("pay", lambda arguments: "paid", {"type": "object"}, requires_approval=True))
    one = call("pay", {"to": "Ann"})
    snapshot = standing(one)
    bound = ex.bind("c", lambda: snapshot)
    changed = replace(one, arguments={"to": "Eve"})
    other_id = replace(one, id="call_2")
    first, second, third, fourth = ran(bound, changed, other_id, one, one)
    assert [first.outcome, second.outcome] == ["denied", "denied"]
    assert [third.outcome, fourth.outcome] == ["succeeded", "denied"]


def test_an_expired_grant_covers_nothing() -> None:
    """Issue 6: an approval that is older than its rule allows no longer lets the call run."""
    policy = parse_policy([{"tools": "pay", "decision": "ask", "expires_s": 60}])
    ex = executor(made("pay", lambda arguments: "paid"), policy=policy)
    one = call("pay")

    def at(now: str) -> str:
        snapshot = standing(one, now=now)
        opened = replace(snapshot.calls[0], decided_at="2026-01-01T00:00:00.000Z")
        moment = snapshot.evolve(calls=(opened,))
        return str(ran(ex.bind("c", lambda: moment), one)[0].outcome)

    assert at("2026-01-01T00:00:59.000Z") == "succeeded"
    assert at("2026-01-01T00:01:00.000Z") == "denied"


def test_repetition_nudges_then_blocks() -> None:
    """S2.8: beyond the limit the result says so; one more time and the call is not run."""
    ran_times: list[int] = []
    ex = executor(made("echo", lambda a: ran_times.append(1) or a["text"], TEXT))
    one = call("echo", {"text": "x"})
    told = []
    for repeat in (1, 2, 3, 4, 5):
        snapshot = standing(one, repeat=repeat, limits=Limits(max_repeats=2))
        (event,) = ran(ex.bind("c", lambda s=snapshot: s), one)
        told.append(event)
    assert [event.outcome for event in told] == ["succeeded"] * 3 + ["skipped"] * 2
    assert told[1].shown is None
    assert "3 times" in json.loads(told[2].shown)["notice"]
    assert "already called 3 times" in told[3].result["error"]
    assert len(ran_times) == 3


def test_polling_tools_may_repeat() -> None:
    """Issue 6: `repeatable` tools are neither nudged nor blocked."""
    ex = executor(made("poll", lambda arguments: "not yet", repeatable=True))
    one = call("poll")
    snapshot = standing(one, repeat=9, limits=Limits(max_repeats=2))
    (event,) = ran(ex.bind("c", lambda: snapshot), one)
    assert (event.outcome, event.shown) == ("succeeded", None)


def test_the_budget_of_calls_holds_within_one_reply() -> None:
    """Issue 6: calls beyond the turn's budget are skipped, also in the reply that reaches it."""
    ex = executor(made("echo", echo, TEXT))
    calls = [call("echo", {"text": str(n)}, id=f"call_{n}") for n in range(4)]
    snapshot = standing(*calls, limits=Limits(max_tool_calls=2))
    events = ran(ex.bind("c", lambda: snapshot), *calls)
    assert [event.outcome for event in events] == ["succeeded"] * 2 + ["skipped"] * 2
    assert "budget of 2 calls" in events[2].result["error"]


def test_the_cut_keeps_the_log_whole_and_gives_a_handle() -> None:
    """S2.12: the model is shown a part with a notice and a handle; the result stays whole."""
    lines = "\n".join(f"line {n}" for n in range(500))
    ex = executor(made("read", lambda arguments: lines))
    (event,) = ran(ex, call("read", id="call_7"))
    shown = json.loads(event.shown)
    assert event.result["result"] == lines
    assert len(shown["result"]) <= 2000
    assert lines.startswith(shown["result"] + "\n")
    assert '"call_7"' in shown["truncated"]
    assert str(len(lines) - len(shown["result"])) in shown["truncated"]


def test_the_output_budget_shrinks_and_is_shared() -> None:
    """S3.6: what a turn has shown lowers what a call may show; calls of one reply share the rest."""
    ex = executor(made("read", lambda arguments: "word " * 2000), output=OutputLimits())
    calls = [call("read", id=f"call_{n}") for n in range(4)]
    spent = (
        Message(role="user", content="go"),
        Message(role="assistant", content=None, tool_calls=(call("read", id="call_old"),)),
        Message(role="tool", content="x" * 3000, tool_call_id="call_old", name="read"),
    )
    fresh = ran(ex.bind("c", lambda: standing(*calls)), *calls)
    later = ran(ex.bind("c", lambda: standing(*calls, messages=spent)), *calls)
    assert [len(json.loads(e.shown)["result"]) for e in fresh] == [1499] * 4
    assert [len(json.loads(e.shown)["result"]) for e in later] == [749] * 4


def test_listings_have_a_larger_budget_and_tools_their_own() -> None:
    """S3.6: listings may show 5000 characters; `max_result_size` goes before every other limit."""
    text = "word " * 4000
    ex = executor(
        made("list", lambda arguments: text, listing=True),
        made("small", lambda arguments: text, max_result_size=50),
    )
    listing, small = ran(ex, call("list"), call("small"))
    assert 4900 < len(json.loads(listing.shown)["result"]) <= 5000
    assert len(json.loads(small.shown)["result"]) <= 50


def test_cached_answers_are_recorded_as_such() -> None:
    """S3.12: the same call of a cacheable tool in a turn is answered once and says so."""
    runs: list[int] = []
    ex = executor(made("rate", lambda a: runs.append(1) or len(runs), TEXT, cacheable=True))
    one, two = call("rate", {"text": "x"}, id="a"), call("rate", {"text": "x"}, id="b")
    snapshot = standing(one, two)
    first, second = ran(ex.bind("c", lambda: snapshot), one, two)
    assert first.result["result"] == second.result["result"] == 1
    assert second.notes == ("cached: the answer of call a",)
    next_turn = standing(one).evolve(turn=2)
    (third,) = ran(ex.bind("c", lambda: next_turn), one)
    assert third.result["result"] == 2
    (other,) = ran(ex.bind("other", lambda: next_turn), one)
    assert other.result["result"] == 3


def test_failures_are_never_cached() -> None:
    """S3.12: a failing run of a cacheable tool is tried again."""
    runs: list[int] = []

    def flaky(arguments: Any) -> Any:
        runs.append(1)
        if len(runs) == 1:
            raise ToolFailure("not now")
        return "now"

    ex = executor(made("flaky", flaky, cacheable=True, cache_ttl_s=60))
    assert ran(ex, call("flaky"))[0].outcome == "failed"
    assert ran(ex, call("flaky"))[0].result["result"] == "now"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(text=st.text() | json_values.map(lambda v: json.dumps(v)) | st.binary().map(repr))
def test_no_argument_text_crashes_or_runs_as_nothing(text: str) -> None:
    """Issue 6: no argument text whatever crashes the executor or is run as `{}`."""
    seen: list[Any] = []
    ex = executor(made("note", lambda arguments: seen.append(arguments), {"type": "object"}))
    try:
        value = json.loads(text)
    except ValueError as error:
        value, problem = None, str(error)
    else:
        problem = "not an object"
    readable = isinstance(value, dict)
    one = ToolCall(
        id="c",
        name="note",
        raw=text,
        arguments=value if readable else None,
        problem=None if readable else problem,
    )
    verdict = ex.review(one, ("note",))
    (event,) = ran(ex, one)
    assert (event.outcome == "succeeded") == (verdict.ruling == "run")
    if readable:
        assert seen == [value]
    else:
        assert seen != [{}]


@settings(max_examples=100, deadline=None)
@given(name=st.text(), allowed=st.lists(st.sampled_from(["a", "b", "a*", "*", "?"]), max_size=3))
def test_no_tool_outside_the_allow_list_runs(name: str, allowed: list[str]) -> None:
    """Issue 6: whatever the call is named, a tool runs only when the list names it."""
    ran_tools: list[str] = []
    tools = [made(one, lambda arguments, n=one: ran_tools.append(n)) for one in ("a", "b", "ab")]
    for wanted in (name, "a", "b", "ab"):
        ran(executor(*tools), call(wanted), allowed=tuple(allowed))
    for one in ran_tools:
        assert (
            one in allowed
            or "*" in allowed
            or (one[0] == "a" and "a*" in allowed)
            or (len(one) == 1 and "?" in allowed)
        )


@settings(max_examples=200, deadline=None)
@given(value=json_values | st.binary() | st.complex_numbers() | st.sets(st.integers()))
def test_every_result_becomes_json(value: Any) -> None:
    """S1.16: whatever a tool returns, the event is plain JSON that reads back as it is."""
    (event,) = ran(executor(made("give", lambda arguments: value)), call("give"))
    assert json.loads(json.dumps(event.result, allow_nan=False)) == event.result


def test_cancellation_reaches_a_running_tool() -> None:
    """Issue 6: cancelling the run cancels the tool, and nothing but the cancellation escapes."""
    ended: list[str] = []

    async def slow(arguments: Any) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def scenario() -> None:
        task = asyncio.ensure_future(executor(made("slow", slow)).run(call("slow"), ("slow",)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert ended == ["cancelled"]


def test_the_log_for_people_holds_no_values(caplog: pytest.LogCaptureFixture) -> None:
    """S2.12: verbose logging names tool, parameters, outcome and time; values stay out of it."""
    with caplog.at_level("DEBUG", logger="toolchart.tools"):
        ran(executor(made("echo", echo, TEXT)), call("echo", {"text": "hush-hush"}))
    (line,) = caplog.messages
    assert line.startswith("tool echo(text) succeeded in ")
    assert "hush" not in line
