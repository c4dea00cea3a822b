"""Stubborn models end at a limit that the result names; strict policies end at a tool's exception."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from agents import make_engine, reply_with_calls
from child_agents import FunctionModel

from toolchart.app.cli.exit_codes import find_result_code
from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.runtime.result import Turn
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.specs.unread_limits import find_read_limits
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Delta, Reply, Request, TextDelta
from toolchart.testing import TurnableClock
from toolchart.tools.definition import ToolFailure

LLMS = {"model": {"provider": "scripted", "model": "m", "context_limit": 100_000}}

SAME = reply_with_calls(("echo", {"text": "a"}))

FORCING_CHARTS = ("forced_answer", "full", "compacting", "planner")
"""Charts that ask for an answer without tools where a limit is reached."""


def call_anew(number: int) -> dict[str, Any]:
    """A reply that calls `echo` with an argument of its own."""
    return reply_with_calls(("echo", {"text": str(number)}))


def run_stubborn(replies: list[Any], chart: str, **changes: Any) -> Turn:
    """The result of a turn whose model gives these replies; its log replays."""
    with make_engine(replies, chart=chart, llms=LLMS, **changes) as engine:
        result = engine.run("go", conversation="c")
        list(replay_conversation(engine.store, "c"))
        return result


@pytest.mark.parametrize("chart", list_shipped_charts())
def test_a_model_that_only_calls_tools_ends_at_a_named_limit(chart: str) -> None:
    """S1.14: a model that goes on calling tools, also where they are left out, ends at the number of
    iterations: the result names it and its value, and is no error."""
    result = run_stubborn([call_anew(number) for number in range(30)], chart)
    assert_ends_at(result, "max_iterations", 5)
    assert "a limit ended the turn: max_iterations (5)" in result.warnings
    assert result.to_dict()["limit_value"] == 5
    assert {call.outcome for call in result.tool_calls} <= {"succeeded", "skipped"}


@pytest.mark.parametrize("chart", list_shipped_charts())
def test_a_model_that_repeats_a_call_ends_at_a_named_limit(
    chart: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S2.8: in every chart a call that is asked for a third time is told to the user, and in all but the
    smallest one it is not run a third time."""
    result = run_stubborn([SAME] * 30, chart)
    is_smallest = chart == "tool_loop"
    assert_ends_at(result, *(("max_iterations", 5) if is_smallest else ("max_repeats", 2)))
    third = "succeeded" if is_smallest else "skipped"
    assert [call.outcome for call in result.tool_calls][:3] == ["succeeded", "succeeded", third]
    warnings = [text for text in result.warnings if "same call of 'echo' 3 times" in text]
    assert len(warnings) == 1
    assert sum(warnings[0] in record.getMessage() for record in caplog.records) == 1


def assert_ends_at(result: Turn, limit: str, value: int) -> None:
    """The turn ended with the text of this limit, and in no error."""
    assert (result.limit_reached, result.limit_value, result.error) == (limit, value, None)
    assert (result.state, result.ok, find_result_code(result)) == ("max_iterations", False, 4)


@pytest.mark.parametrize("chart", ["forced_answer", "full", "compacting"])
def test_replies_without_text_are_limited_where_that_is_set(chart: str) -> None:
    """S3.2: tools are left out after as many replies in a row without text as the spec says, and never by
    themselves: many models say nothing beside their calls, and only the iterations count for them."""
    replies = [call_anew(number) for number in range(30)]
    result = run_stubborn(replies, chart, limits={"max_tool_only_streak": 3, "max_iterations": 12})
    assert_ends_at(result, "max_tool_only_streak", 3)
    result = run_stubborn([*replies[:8], "done"], chart, limits={"max_iterations": 9})
    assert (result.content, result.limit_reached, result.warnings) == ("done", None, ())
    assert (len(result.tool_calls), result.iterations) == (8, 8)


@pytest.mark.parametrize(
    ("chart", "limits", "calls", "limit"),
    [
        *((chart, {"max_iterations": 2}, 2, ("max_iterations", 2)) for chart in FORCING_CHARTS),
        *((chart, {}, 3, ("max_repeats", 2)) for chart in FORCING_CHARTS),
        *(
            (chart, {"max_tool_only_streak": 1}, 1, ("max_tool_only_streak", 1))
            for chart in FORCING_CHARTS
            if chart != "planner"
        ),
    ],
)
def test_everybody_is_told_that_an_answer_came_without_tools(
    chart: str, limits: dict[str, int], calls: int, limit: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """S1.14, S3.2: where a limit takes the tools away and the model answers, the turn has its answer, and
    the result, its warnings, its JSON form and a line in `logging` name the limit. The next turn has its
    tools."""
    with make_engine(
        [*[SAME] * calls, "In short: a.", SAME, "b"], chart=chart, llms=LLMS, limits=limits
    ) as engine:
        result = engine.run("go", conversation="c")
        assert (result.content, result.ok, result.state) == ("In short: a.", True, "finished")
        assert (result.limit_reached, result.limit_value) == limit
        assert result.max_iterations_reached == (limit[0] == "max_iterations")
        warning = f"the model answered without its tools: {limit[0]} ({limit[1]})"
        assert result.warnings[-1:] == (warning,)
        assert [record.levelname for record in caplog.records if warning in record.getMessage()] == [
            "WARNING"
        ]
        assert (result.failure, find_result_code(result)) == (None, 0)
        assert {"ok": True, "limit_reached": limit[0]}.items() <= result.to_dict().items()
        assert engine.conversation("c").read_turn().warnings == result.warnings
        if limit[0] == "max_repeats":
            again = engine.run("again", conversation="c")
            assert (again.content, again.limit_reached, again.warnings) == ("b", None, ())


@pytest.mark.parametrize("chart", FORCING_CHARTS)
def test_a_model_that_talks_and_calls_tools_ends_at_the_iterations(chart: str) -> None:
    """S1.14: with text beside each call only the number of iterations is reached, and the text is kept."""
    replies = [{**call_anew(number), "content": f"hm {number}"} for number in range(30)]
    result = run_stubborn(replies, chart)
    assert (result.limit_reached, result.limit_value) == ("max_iterations", 5)
    assert "hm" in result.content


def test_another_call_in_the_last_reply_does_not_hide_the_limit() -> None:
    """S2.8: the reply that was to be an answer calls another tool and has text; the limit before counts."""
    last = {**reply_with_calls(("calculator", {"expression": "1"})), "content": "one more"}
    result = run_stubborn([SAME, SAME, SAME, last], "full")
    assert (result.limit_reached, result.limit_value) == ("max_repeats", 2)
    assert "one more" in result.content


def test_a_refusal_of_tools_is_no_limit() -> None:
    """S3.3: where a host refuses the tools and the model calls some all the same, no limit was reached: the
    turn ends in error, as before."""

    def refuse(request: Request) -> Reply:
        raise ProviderError(kind="bad_request", message="no tools here", status=400)

    result = run_stubborn([refuse, SAME], "full")
    assert (result.limit_reached, result.limit_value) == (None, None)
    assert result.error is not None
    assert result.error.kind == "finish_reason"


# -- seconds -----------------------------------------------------------------------------------------


class SlowModel(FunctionModel):
    """A model that says one word and then nothing more."""

    def __init__(self) -> None:
        super().__init__(lambda said, request: "x")

    async def stream(self, request: Request) -> Any:
        """One delta, and no end."""
        yield TextDelta(text="Well")
        await asyncio.Event().wait()

    async def complete(self, request: Request) -> Reply:
        """No end."""
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("chart", ["full", "budgeted", "compacting"])
def test_the_seconds_of_a_turn_are_a_limit(chart: str) -> None:
    """S1.14: `max_seconds` that ends a model call ends the turn at a limit with its name; what was streamed
    is kept."""
    seen: list[Delta] = []
    spec = {"chart": chart, "llms": LLMS, "limits": {"max_seconds": 0.05}, "responses": [{"llm": "model"}]}
    with Engine(spec, log="memory", providers={"model": SlowModel()}) as engine:
        result = engine.run("go", conversation="c", on_delta=seen.append)
        assert (result.limit_reached, result.limit_value, result.error) == ("max_seconds", 0.05, None)
        assert result.state == "out_of_budget"
        assert "Well" in result.content
        list(replay_conversation(engine.store, "c"))


# -- strict policy -----------------------------------------------------------------------------------


def break_down(text: str) -> str:
    """Break down."""
    raise ValueError(f"no {text}")


def say_no(text: str) -> str:
    """Refuse."""
    raise ToolFailure(f"no {text}")


@pytest.mark.parametrize("chart", ["full", "compacting"])
def test_a_strict_policy_ends_the_turn_at_an_exception_of_a_tool(chart: str) -> None:
    """S3.10: under `policy: strict` an exception that a tool raises ends the turn in error, before the model
    is asked again; the outcome of the call is kept. A lenient policy records it and goes on."""
    replies = [reply_with_calls(("break_down", {"text": "luck"})), "done"]
    options: dict[str, Any] = {"chart": chart, "llms": LLMS, "functions": [break_down], "tools": {}}
    with make_engine(replies, policy="strict", **options) as engine:
        result = engine.run("go", conversation="c")
        assert result.error is not None
        assert (result.state, result.error.kind) == ("error", "strict_policy")
        assert "the tool 'break_down' raised ValueError: no luck" in result.error.message
        assert [call.outcome for call in result.tool_calls] == ["failed"]
        list(replay_conversation(engine.store, "c"))
    with make_engine(replies, **options) as engine:
        result = engine.run("go", conversation="c")
        assert (result.content, result.warnings) == ("done", ())
        (event,) = [
            orjson.loads(line)["event"]
            for line in engine.store.read_lines("c")
            if b'"type":"tool_finished"' in line
        ]
        assert event["raised"] is True


def test_a_tool_that_says_no_is_no_exception() -> None:
    """S1.16: a tool that says itself that it failed gives the model a result, under a strict policy too."""
    replies = [reply_with_calls(("say_no", {"text": "luck"})), "done"]
    options: dict[str, Any] = {"chart": "full", "functions": [say_no], "tools": {}}
    with make_engine(replies, policy="strict", **options) as engine:
        result = engine.run("go", conversation="c")
        assert (result.content, result.error) == ("done", None)
        assert b'"raised"' not in b"".join(engine.store.read_lines("c"))


@pytest.mark.parametrize("chart", ["full", "compacting"])
def test_a_strict_policy_ends_the_turn_at_repaired_arguments(chart: str) -> None:
    """S3.10: under `policy: strict` arguments that the review had to repair end the turn in error before the
    call runs, and the result names the tool. A lenient policy runs the call and records the repair."""
    replies = [reply_with_calls(("calculator", {"expresion": "6*7"})), "done"]
    strict = run_stubborn(replies, chart, policy="strict")
    assert strict.error is not None
    assert (strict.state, strict.error.kind) == ("error", "strict_policy")
    assert strict.error.message == "the arguments of a call of 'calculator' were repaired"
    assert [call.outcome for call in strict.tool_calls] == ["skipped"]
    lenient = run_stubborn(replies, chart)
    assert (lenient.content, lenient.warnings) == ("done", ())
    assert [call.outcome for call in lenient.tool_calls] == ["succeeded"]


# -- every shipped chart, every limit ----------------------------------------------------------------


BUDGETS: dict[str, Any] = {
    "max_tool_calls": 1,
    "max_tokens": 10,
    "max_cost": 0.000001,
    "max_seconds": 0.5,
    "max_iterations": 2,
    "max_tool_only_streak": 2,
    "max_repeats": 1,
}
"""Each limit that a spec can set and that a model runs into, with a low value."""


PRICES = {"currency": "USD", "models": {"m": {"input": 2.5, "output": 10}}}


def run_into(chart: str, limit: str) -> Turn:
    """A turn that reaches one limit.

    Raises:
        SpecError: the chart does not read it.
    """
    same = limit == "max_repeats"
    replies = [SAME if same else call_anew(number) for number in range(30)]
    for reply in replies:
        reply["usage"] = {"input": 9, "output": 9}
    clock = TurnableClock()

    def pass_time(event: Any, step: Any) -> None:
        clock.advance(0.2)

    limits = {limit: BUDGETS[limit]}
    options: dict[str, Any] = {"chart": chart, "llms": LLMS, "limits": limits, "prices": PRICES}
    with make_engine(replies, clock=clock, observer=pass_time, **options) as engine:
        result = engine.run("go", conversation="c")
        list(replay_conversation(engine.store, "c"))
        return result


@pytest.mark.parametrize("limit", BUDGETS)
@pytest.mark.parametrize("chart", list_shipped_charts())
def test_each_end_at_a_limit_names_it_and_its_value(chart: str, limit: str) -> None:
    """Under each shipped chart, each limit that its rows read ends the turn with its name and its value in
    the result and in the text, and with exit code 4. A limit that no row reads is refused at load."""
    if limit not in find_read_limits(load_chart(chart)):
        with pytest.raises(SpecError, match=limit):
            run_into(chart, limit)
        return
    result = run_into(chart, limit)
    assert (result.limit_reached, result.limit_value, result.error) == (limit, BUDGETS[limit], None)
    assert str(BUDGETS[limit]) in result.content
    assert (limit in result.content) or limit == "max_iterations"
    assert find_result_code(result) == 4


@pytest.mark.parametrize("chart", list_shipped_charts())
def test_each_other_end_has_its_exit_code(chart: str) -> None:
    """Under each shipped chart an answer is 0, a failure 1 with its kind, and a cancellation 3."""

    def refuse(request: Request) -> Reply:
        raise ProviderError(kind="auth", message="no key", status=401)

    assert find_result_code(run_stubborn(["hello"], chart)) == 0
    failed = run_stubborn([refuse], chart)
    assert failed.error is not None
    assert (failed.error.kind, find_result_code(failed)) == ("auth", 1)
    cancelled = asyncio.run(cancel_turn(chart))
    assert cancelled.error is not None
    assert (cancelled.error.kind, find_result_code(cancelled)) == ("cancelled", 3)


async def cancel_turn(chart: str) -> Turn:
    """The result of a turn that somebody cancels while the model is asked."""
    spec = {"chart": chart, "llms": LLMS, "responses": [{"llm": "model"}]}
    model = FunctionModel(lambda said, request: asyncio.Event())
    async with Engine(spec, log="memory", providers={"model": model}) as engine:
        turn = asyncio.create_task(engine.arun("go", conversation="c"))
        await model.wait_for_requests(1)
        await engine.conversation("c").acancel("enough")
        return await turn
