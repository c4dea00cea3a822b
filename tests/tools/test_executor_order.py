"""The executor's checks in their order: known, allowed, parsed, valid, approved, not repeated, within the
budget; then the run and the cut of its result."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any

import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tool_calls import TEXT, build_snapshot, build_tool, make_call, make_executor, run_calls

from toolchart.states.events import Limits
from toolchart.states.message_list import PersistentList
from toolchart.states.messages import Message, ToolCall
from toolchart.states.snapshot import TrackedCall
from toolchart.tools.approval import parse_policy
from toolchart.tools.builtin import BUILTINS
from toolchart.tools.definition import ToolFailure
from toolchart.tools.execution.executor import CHANGED
from toolchart.tools.execution.results import (
    OutputLimits,
    OutputUse,
    compute_least_characters,
    compute_max_characters,
)


def return_text(arguments: Any) -> Any:
    return arguments["text"]


def test_a_result_has_exactly_four_keys() -> None:
    """S2.4: a success has exactly its four keys, and so has a failure."""
    good, bad = run_calls(
        make_executor(build_tool("echo", return_text, TEXT)),
        make_call("echo", {"text": "hi"}),
        make_call("nope"),
    )
    assert good.result.keys() == {"success", "result", "tool_name", "execution_time_ms"}
    assert bad.result.keys() == {"success", "error", "tool_name", "execution_time_ms"}
    assert good.result["result"] == "hi"
    assert good.outcome == "succeeded"
    assert isinstance(good.result["execution_time_ms"], float)


def test_the_error_for_an_unknown_tool_suggests_a_name() -> None:
    """S2.4: the error for an unknown tool says `not found` and suggests the most similar name."""
    (event,) = run_calls(
        make_executor(build_tool("echo", return_text, TEXT)), make_call("ecko", {"text": "x"})
    )
    assert event.result["error"].startswith("Tool 'ecko' not found")
    assert "'echo'" in event.result["error"]


def test_the_allow_list_holds_at_execution() -> None:
    """S2.9: a tool that is not in the allow list does not run, whatever tools the model was offered."""
    received_arguments: list[Any] = []
    executor = make_executor(
        build_tool("echo", return_text, TEXT), build_tool("danger", received_arguments.append)
    )
    (event,) = run_calls(executor, make_call("danger"), allowed=("echo",))
    assert event.outcome == "denied"
    assert "Tool 'danger' is not allowed here" in event.result["error"]
    assert received_arguments == []
    assert executor.review(make_call("danger"), ("echo",)).ruling == "denied"


def test_nothing_is_allowed_by_an_empty_list() -> None:
    """S2.9: for the executor an empty list allows nothing; only a handler's empty list means all."""
    (event,) = run_calls(
        make_executor(build_tool("echo", return_text, TEXT)), make_call("echo", {"text": "x"}), allowed=()
    )
    assert event.outcome == "denied"


def test_unreadable_arguments_never_run_as_empty() -> None:
    """S1.17: text that cannot be parsed is an error with the position, never a run with `{}`."""
    received_arguments: list[Any] = []
    broken = make_call("note", '{"text": "cut off')
    (event,) = run_calls(make_executor(build_tool("note", received_arguments.append)), broken)
    assert event.outcome == "failed"
    assert "line 1 column" in event.result["error"]
    assert received_arguments == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["missing required parameter 'city'"]),
        ({"city": "Brno", "days": "soon"}, ["'days'", "an integer", "'soon'"]),
        ({"city": "Brno", "unit": "kelvin"}, ["'unit'", "'celsius', 'fahrenheit'", "'kelvin'"]),
        ({"city": "Brno", "where": {"lat": []}}, ["'where.lat'", "a number"]),
        ({"city": "Brno", "tags": ["a", None]}, ["'tags[1]'", "a string"]),
        ({"city": "Brno", "days": 99}, ["'days'", "99", "10"]),
        ({"city": "Brno", "where": {"lat": 1, "lng": 2}}, ["unknown parameter 'where.lng'", "lat"]),
    ],
)
def test_an_invalid_call_names_the_parameter(arguments: dict[str, Any], words: list[str]) -> None:
    """S2.6: the error names the parameter, what was expected and what is allowed."""
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
    received_arguments: list[Any] = []
    (event,) = run_calls(
        make_executor(build_tool("weather", received_arguments.append, schema)),
        make_call("weather", arguments),
    )
    assert received_arguments == []
    assert event.outcome == "failed"
    for word in words:
        assert word in event.result["error"]


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        ({"text": "x", "volume": 11}, TEXT),
        ({"text": "x", "volume": 11}, {**TEXT, "additionalProperties": False}),
        ({"volume": 11}, {"type": "object", "properties": {"text": {"type": "string", "default": "all"}}}),
        ({"volume": 11}, {"type": "object", "properties": {}}),
        ({"text": "x", "volume": None}, TEXT),
    ],
    ids=["beside others", "forbidden by the schema", "alone, beside a default", "tool without any", "null"],
)
def test_a_call_with_a_parameter_that_the_tool_does_not_have_is_refused(
    arguments: dict[str, Any], schema: dict[str, Any]
) -> None:
    """What the model asked is what runs: without the parameter the tool would run with its default, or with
    fewer conditions than were given. The model reads the name and those that there are."""
    ran: list[Any] = []
    executor = make_executor(build_tool("echo", ran.append, schema))
    (event,) = run_calls(executor, make_call("echo", arguments))
    assert (event.outcome, ran) == ("failed", [])
    known = ", ".join(schema["properties"]) or "none"
    assert f"unknown parameter 'volume' (known: {known})" in event.result["error"]
    verdict = executor.review(make_call("echo", arguments), ("echo",))
    assert verdict.ruling == "invalid"


def test_unknown_parameters_stay_where_the_schema_takes_any() -> None:
    """Issue 6: `additionalProperties: true` keeps what the schema does not list."""
    schema = {**TEXT, "additionalProperties": True}
    (event,) = run_calls(
        make_executor(build_tool("echo", lambda arguments: sorted(arguments), schema)),
        make_call("echo", {"text": "x", "volume": 11}),
    )
    assert event.result["result"] == ["text", "volume"]


def test_an_unapproved_call_does_not_run_in_a_conversation() -> None:
    """Issue 6, DESIGN 11: without a grant for this very call a risky tool does not run."""
    received_arguments: list[Any] = []
    executor = make_executor(build_tool("pay", lambda arguments: received_arguments.append(1), risk="high"))
    call = make_call("pay")
    approved_snapshot = build_snapshot(call, executor=executor)
    waiting_snapshot = replace(
        approved_snapshot, calls=(replace(approved_snapshot.calls[0], ruling="needs_approval"),)
    )
    (event,) = run_calls(executor.bind("c", lambda: waiting_snapshot), call)
    assert event.outcome == "denied"
    assert received_arguments == []
    (event,) = run_calls(executor.bind("c", lambda: approved_snapshot), call)
    assert event.outcome == "succeeded"
    assert executor.review(call, ("pay",)).ruling == "needs_approval"


def test_a_grant_covers_these_arguments_and_one_run() -> None:
    """Issue 6: a grant is bound to call id, tool and arguments, and good for one run."""
    executor = make_executor(
        build_tool("pay", lambda arguments: "paid", {"type": "object"}, requires_approval=True)
    )
    call = make_call("pay", {"to": "Ann"})
    snapshot = build_snapshot(call, executor=executor)
    bound_executor = executor.bind("c", lambda: snapshot)
    changed_call = replace(call, arguments={"to": "Eve"})
    other_call = replace(call, id="call_2")
    first, second, third, fourth = run_calls(bound_executor, changed_call, other_call, call, call)
    assert [first.outcome, second.outcome] == ["denied", "denied"]
    assert [third.outcome, fourth.outcome] == ["succeeded", "denied"]


def test_an_expired_grant_covers_nothing() -> None:
    """Issue 6: a call does not run when its approval is older than the rule's `expires_s`."""
    policy = parse_policy([{"tools": "pay", "decision": "ask", "expires_s": 60}])
    executor = make_executor(build_tool("pay", lambda arguments: "paid"), policy=policy)
    call = make_call("pay")

    def run_at(now: str) -> str:
        snapshot = build_snapshot(call, executor=executor, now=now)
        open_call = replace(snapshot.calls[0], decided_at="2026-01-01T00:00:00.000Z")
        later_snapshot = replace(snapshot, calls=(open_call,))
        return str(run_calls(executor.bind("c", lambda: later_snapshot), call)[0].outcome)

    assert run_at("2026-01-01T00:00:59.000Z") == "succeeded"
    assert run_at("2026-01-01T00:01:00.000Z") == "denied"


def test_a_repetition_gets_a_notice_and_runs() -> None:
    """S2.8: from the last call that the limit allows on, the result carries a notice; every call runs."""
    runs: list[int] = []
    executor = make_executor(build_tool("echo", lambda a: runs.append(1) or a["text"], TEXT))
    call = make_call("echo", {"text": "x"})
    events = []
    for repeat in (1, 2, 3, 4):
        snapshot = build_snapshot(call, repeat_count=repeat, limits=Limits(max_repeats=2))
        (event,) = run_calls(executor.bind("c", lambda s=snapshot: s), call)
        events.append(event)
    assert [event.outcome for event in events] == ["succeeded"] * 4
    assert events[0].shown is None
    for times, event in enumerate(events[1:], 2):
        assert f"{times} times" in json.loads(event.shown)["notice"]
    assert len(runs) == 4


def test_polling_tools_may_repeat() -> None:
    """Issue 6: `repeatable` tools get no notice and are not stopped."""
    executor = make_executor(build_tool("poll", lambda arguments: "not yet", repeatable=True))
    call = make_call("poll")
    snapshot = build_snapshot(call, repeat_count=9, limits=Limits(max_repeats=2))
    (event,) = run_calls(executor.bind("c", lambda: snapshot), call)
    assert (event.outcome, event.shown) == ("succeeded", None)


def test_the_executor_runs_what_the_chart_asks_for() -> None:
    """Issue 10: the budget of calls is the chart's decision; the executor refuses nothing because of it."""
    executor = make_executor(build_tool("echo", return_text, TEXT))
    calls = [make_call("echo", {"text": str(n)}, id=f"call_{n}") for n in range(4)]
    snapshot = build_snapshot(*calls, limits=Limits(max_tool_calls=2))
    events = run_calls(executor.bind("c", lambda: snapshot), *calls)
    assert [event.outcome for event in events] == ["succeeded"] * 4


def test_the_cut_keeps_the_log_whole_and_gives_a_handle() -> None:
    """S2.12: the model sees a part with a notice and a handle; the logged result stays whole."""
    lines = "\n".join(f"line {n}" for n in range(500))
    executor = make_executor(build_tool("read", lambda arguments: lines), BUILTINS["fetch_result"])
    (event,) = run_calls(executor, make_call("read", id="call_7"))
    model_result = json.loads(event.shown)
    assert event.result["result"] == lines
    assert len(model_result["result"]) <= 2000
    assert lines.startswith(model_result["result"] + "\n")
    assert '"call_7"' in model_result["truncated"]
    assert str(len(lines) - len(model_result["result"])) in model_result["truncated"]


def test_a_cut_without_fetch_result_gives_no_advice_that_cannot_be_followed() -> None:
    """Issue 16: where `fetch_result` is not offered, the notice does not name it."""
    executor = make_executor(build_tool("read", lambda arguments: "word " * 2000))
    (event,) = run_calls(executor, make_call("read"))
    truncated = json.loads(event.shown)["truncated"]
    assert "ask for less" in truncated
    assert "fetch_result" not in truncated


def test_the_output_budget_shrinks_and_is_shared() -> None:
    """S3.6: earlier output of the turn lowers the limit of a call; calls of one reply share the rest."""
    executor = make_executor(build_tool("read", lambda arguments: "word " * 2000), output=OutputLimits())
    calls = [make_call("read", id=f"call_{n}") for n in range(4)]
    spent = (
        Message(role="user", content="go"),
        Message(role="assistant", content=None, tool_calls=(make_call("read", id="call_old"),)),
        Message(role="tool", content="x" * 3000, tool_call_id="call_old", name="read"),
    )
    fresh = run_calls(executor.bind("c", lambda: build_snapshot(*calls)), *calls)
    tracked_call = TrackedCall(
        tool="read", params={}, result={}, iteration=0, execution_time_ms=0.0, outcome="succeeded", repeat=1
    )
    tracked_calls = PersistentList([tracked_call])
    said_meanwhile = (*spent, Message(role="user", content="and quickly"))
    for messages in (spent, said_meanwhile):
        snapshot = build_snapshot(*calls, messages=messages, tracked_calls=tracked_calls)
        later = run_calls(executor.bind("c", lambda s=snapshot: s), *calls)
        assert [len(json.loads(e.shown)["result"]) for e in later] == [749] * 4
    assert [len(json.loads(e.shown)["result"]) for e in fresh] == [1499] * 4


def test_a_new_turn_has_the_whole_output_budget() -> None:
    """S3.6: what earlier turns of the conversation put out takes nothing from this one."""
    executor = make_executor(build_tool("read", lambda arguments: "word " * 2000), output=OutputLimits())
    call = make_call("read", id="call_new")
    spent = (
        Message(role="user", content="go"),
        Message(role="assistant", content=None, tool_calls=(make_call("read", id="call_old"),)),
        Message(role="tool", content="x" * 5000, tool_call_id="call_old", name="read"),
    )
    tracked_call = TrackedCall(
        tool="read", params={}, result={}, iteration=0, execution_time_ms=0.0, outcome="succeeded", repeat=1
    )
    first = build_snapshot(call, messages=spent, tracked_calls=PersistentList([tracked_call]))
    messages = (*spent, Message(role="user", content="and again"))
    second = replace(build_snapshot(call, messages=messages), turn=2)
    snapshots = [first]
    bound_executor = executor.bind("c", lambda: snapshots[-1])
    lengths = []
    for snapshot in (first, second):
        snapshots.append(snapshot)
        (event,) = run_calls(bound_executor, call)
        lengths.append(len(json.loads(event.shown)["result"]))
    (fresh_event,) = run_calls(executor.bind("c", lambda: second), call)
    assert lengths[0] < lengths[1] == len(json.loads(fresh_event.shown)["result"])


def test_the_limit_of_a_call_falls_with_the_calls_of_the_turn() -> None:
    """Issue 16, to build 4: `per_tool_after` counts the calls of earlier replies; the model and the record
    read which limit it was."""
    limits = OutputLimits(total=90_000, per_tool=2000, least=100, per_tool_after=((1, 1000), (3, 50)))
    executor = make_executor(build_tool("read", lambda arguments: "word " * 2000), output=limits)
    calls = [make_call("read", id=f"call_{n}") for n in range(2)]
    tracked_call = TrackedCall(
        tool="read", params={}, result={}, iteration=0, execution_time_ms=0.0, outcome="succeeded", repeat=1
    )
    sizes, reasons = [], []
    for count in (0, 1, 2, 3):
        snapshot = build_snapshot(*calls, tracked_calls=PersistentList([tracked_call] * count))
        events = run_calls(executor.bind("c", lambda s=snapshot: s), *calls)
        sizes.append([len(json.loads(event.shown)["result"]) for event in events])
        reasons.append(json.loads(events[0].shown)["truncated"])
        assert reasons[-1].partition("(")[2].partition(")")[0] in events[0].notes[-1]
    assert sizes == [[1999] * 2, [999] * 2, [999] * 2, [49] * 2]
    assert "(a result may have 2000)" in reasons[0]
    assert "(after 2 calls of this turn a result may have 1000)" in reasons[2]


def test_what_fits_whatever_was_used_fits_the_limit_of_its_call() -> None:
    """S3.6: the limit of a call is not computed where its result fits every one: then it fits that too."""
    fitting, cut = 0, 0
    for own_size, *sizes, after, used, earlier, calls, length in product(
        (None, 1), (0, 3), (1, 3), (0, 2), ((), ((1, 1),), ((0, 2), (2, 0))), (0, 2), (0, 2), (1, 2), range(4)
    ):
        total, per_tool, least = sizes
        limits = OutputLimits(total=total, per_tool=per_tool, least=least, per_tool_after=after)
        use = OutputUse(characters_shown=used, earlier_calls=earlier, calls_in_reply=calls)
        tool = build_tool("read", return_text, max_result_size=own_size)
        is_cut = length > compute_max_characters(limits, tool, use)
        is_fit = length <= compute_least_characters(limits, tool)
        assert not (is_cut and is_fit)
        fitting, cut = fitting + is_fit, cut + is_cut
    assert fitting
    assert cut


def test_listings_have_a_larger_budget_and_tools_their_own() -> None:
    """S3.6: the limit of listings is 5000 characters; `max_result_size` overrides every limit."""
    text = "word " * 4000
    executor = make_executor(
        build_tool("list", lambda arguments: text, listing=True),
        build_tool("small", lambda arguments: text, max_result_size=50),
    )
    listing, small = run_calls(executor, make_call("list"), make_call("small"))
    assert 4900 < len(json.loads(listing.shown)["result"]) <= 5000
    assert len(json.loads(small.shown)["result"]) <= 50


def test_cached_answers_are_recorded_as_such() -> None:
    """S3.12: a repeated call of a cacheable tool in a turn is answered from the first, with a note."""
    runs: list[int] = []
    executor = make_executor(build_tool("rate", lambda a: runs.append(1) or len(runs), TEXT, cacheable=True))
    call, two = make_call("rate", {"text": "x"}, id="a"), make_call("rate", {"text": "x"}, id="b")
    snapshot = build_snapshot(call, two)
    first, second = run_calls(executor.bind("c", lambda: snapshot), call, two)
    assert first.result["result"] == second.result["result"] == 1
    assert second.notes == ("cached: the answer of call a",)
    next_turn = replace(build_snapshot(call), turn=2)
    (third,) = run_calls(executor.bind("c", lambda: next_turn), call)
    assert third.result["result"] == 2
    (other,) = run_calls(executor.bind("other", lambda: next_turn), call)
    assert other.result["result"] == 3


def test_failures_are_never_cached() -> None:
    """S3.12: a failing run of a cacheable tool is tried again."""
    runs: list[int] = []

    def flaky(arguments: Any) -> Any:
        runs.append(1)
        if len(runs) == 1:
            raise ToolFailure("not now")
        return "now"

    executor = make_executor(build_tool("flaky", flaky, cacheable=True, cache_ttl_s=60))
    assert run_calls(executor, make_call("flaky"))[0].outcome == "failed"
    assert run_calls(executor, make_call("flaky"))[0].result["result"] == "now"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=choose_count(short=75, long=300), deadline=None)
@given(text=st.text() | json_values.map(lambda v: json.dumps(v)) | st.binary().map(repr))
def test_no_argument_text_crashes_or_runs_as_nothing(text: str) -> None:
    """Issue 6: no argument text crashes the executor or runs as `{}`."""
    received_arguments: list[Any] = []
    executor = make_executor(
        build_tool("note", lambda arguments: received_arguments.append(arguments), {"type": "object"})
    )
    try:
        value = json.loads(text)
    except ValueError as error:
        value, problem = None, str(error)
    else:
        problem = "not an object"
    readable = isinstance(value, dict)
    call = ToolCall(
        id="c",
        name="note",
        raw=text,
        arguments=value if readable else None,
        problem=None if readable else problem,
    )
    verdict = executor.review(call, ("note",))
    (event,) = run_calls(executor, call)
    assert (event.outcome == "succeeded") == (verdict.ruling == "run")
    if readable:
        assert received_arguments == [value]
    else:
        assert received_arguments != [{}]


@settings(max_examples=choose_count(short=40, long=100), deadline=None)
@given(name=st.text(), allowed=st.lists(st.sampled_from(["a", "b", "a*", "*", "?"]), max_size=3))
def test_no_tool_outside_the_allow_list_runs(name: str, allowed: list[str]) -> None:
    """Issue 6: for any name of a call, a tool runs only when the allow list has it."""
    tools_run: list[str] = []
    tools = [build_tool(call, lambda arguments, n=call: tools_run.append(n)) for call in ("a", "b", "ab")]
    for tool_name in (name, "a", "b", "ab"):
        run_calls(make_executor(*tools), make_call(tool_name), allowed=tuple(allowed))
    for call in tools_run:
        assert (
            call in allowed
            or "*" in allowed
            or (call[0] == "a" and "a*" in allowed)
            or (len(call) == 1 and "?" in allowed)
        )


@settings(max_examples=choose_count(short=50, long=200), deadline=None)
@given(value=json_values | st.binary() | st.complex_numbers() | st.sets(st.integers()))
def test_every_result_becomes_json(value: Any) -> None:
    """S1.16: for any value that a tool returns, the event is plain JSON and parses to itself."""
    (event,) = run_calls(make_executor(build_tool("give", lambda arguments: value)), make_call("give"))
    assert json.loads(json.dumps(event.result, allow_nan=False)) == event.result


def test_cancellation_reaches_a_running_tool() -> None:
    """Issue 6: cancelling the run cancels the tool, and raises nothing but the cancellation."""
    endings: list[str] = []
    has_begun = asyncio.Event()

    async def slow(arguments: Any) -> None:
        has_begun.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            endings.append("cancelled")
            raise

    async def scenario() -> None:
        task = asyncio.ensure_future(
            make_executor(build_tool("slow", slow)).run(make_call("slow"), ("slow",))
        )
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert endings == ["cancelled"]


def test_debug_logging_holds_no_values(caplog: pytest.LogCaptureFixture) -> None:
    """S2.12: debug logging has tool, parameter names, outcome and time, and no values."""
    with caplog.at_level("DEBUG", logger="toolchart.tools"):
        run_calls(
            make_executor(build_tool("echo", return_text, TEXT)), make_call("echo", {"text": "hush-hush"})
        )
    (line,) = caplog.messages
    assert line.startswith("tool echo(text) succeeded in ")
    assert "hush" not in line


def test_a_decided_call_that_is_refused_says_that_its_arguments_changed_only_if_they_did() -> None:
    """An approved call whose arguments do not fit fails; it tells of other arguments only where a decision
    brought them."""
    executor = make_executor(build_tool("echo", lambda arguments: arguments["text"], TEXT))
    call = make_call("echo", {"text": ["no text"]})
    for asked in (call, replace(call, arguments={"text": "a text"})):
        messages = (Message(role="user", content="go"), Message(role="assistant", tool_calls=(asked,)))
        snapshot = build_snapshot(call, executor=executor, messages=messages)
        (event,) = run_calls(executor.bind("c", lambda s=snapshot: s), call)
        assert event.outcome == "failed"
        assert (CHANGED in (event.shown or "")) is (asked is not call)
