"""Tools in whole conversations with the real engine: results, plans and repairs come from the log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents import make_engine, make_function_tool, make_spec, reply_with_calls
from msgspec.structs import replace
from tool_calls import NOTHING

from toolchart import Decided, tool
from toolchart.states.messages import Reply, Request, ToolCall


def build_tools_section(*names: str) -> dict[str, Any]:
    """A tools section with these builtins."""
    return {"tools": {"registry": [{"name": name} for name in names]}}


def parse_latest_result(request: Request) -> Any:
    """The latest tool result that the model sees."""
    return json.loads(request.messages[-1].content or "")


def test_the_rest_of_a_cut_result_is_fetched_from_the_log() -> None:
    """S2.12: with the handle of a cut result the model gets the rest, in several calls."""
    full_text = "\n".join(f"line {n}" for n in range(900))
    tool_results: list[Any] = []

    def follow(request: Request) -> Reply:
        tool_results.append(parse_latest_result(request))
        handle = request.messages[-1].tool_call_id
        offset = len(tool_results[-1]["result"])
        more = ToolCall(name="fetch_result", arguments={"handle": handle, "offset": offset})
        return Reply(tool_calls=(more,), finish_reason="tool_calls")

    def finish(request: Request) -> Reply:
        tool_results.append(parse_latest_result(request))
        return Reply(content="done", finish_reason="stop")

    engine = make_engine(
        [reply_with_calls(("read", {})), follow, finish],
        functions=[make_function_tool("read", NOTHING, lambda arguments: full_text)],
        output={},
        **build_tools_section("fetch_result"),
    )
    result = engine.run("go")
    assert result.state == "finished"
    assert "did not see the whole result of 'read'" in result.warnings[0]
    assert full_text.startswith(tool_results[0]["result"])
    assert full_text[len(tool_results[0]["result"]) :].startswith(tool_results[1]["result"]["text"])
    assert result.tool_calls[0]["result"]["result"] == full_text


def test_a_plan_survives_its_process() -> None:
    """S4.7: a plan of one turn is there in the next, in a new engine with the same log."""
    create_call = reply_with_calls(("planner", {"action": "create_plan", "steps": ["a", "b"]}))
    first = make_engine([create_call, "planned"], **build_tools_section("planner"))
    conversation = first.run("plan").conversation
    mark_call = reply_with_calls(("planner", {"action": "mark_done", "step": 1}))
    second = make_engine([mark_call, "marked"], log=first.store, **build_tools_section("planner"))
    result = second.run("go on", conversation=conversation)
    plan = result.tool_calls[0]["result"]["result"]
    assert [step["done"] for step in plan["steps"]] == [True, False]


def test_repaired_arguments_are_run_and_recorded() -> None:
    """S3.5: the call runs with the repaired arguments, and the log records them and the repair."""
    engine = make_engine([reply_with_calls(("calculator", {"Expression": "6*7"})), "done"])
    result = engine.run("go")
    assert result.tool_calls[0]["params"] == {"expression": "6*7"}
    assert result.tool_calls[0]["result"]["result"] == 42
    log = b"\n".join(engine.store.read_lines(result.conversation)).decode()
    assert "misspelt name" in log


def run_repetitions(chart: str, replies: list[Any], **changes: Any) -> tuple[Any, list[int]]:
    """The result of a turn whose model may look and poll, and the runs of both tools."""
    runs: list[int] = []
    look = make_function_tool("look", NOTHING, lambda arguments: runs.append(1))
    poll = replace(make_function_tool("poll", NOTHING, lambda arguments: runs.append(1)), repeatable=True)
    engine = make_engine(replies, functions=[look, poll], **{**make_spec(), "chart": chart, **changes})
    return engine.run("go"), runs


LOOK_CALL = reply_with_calls(("look", {}))


@pytest.mark.parametrize("chart", ["full", "planner"])
def test_a_repeated_call_gets_a_notice_and_then_does_not_run(chart: str) -> None:
    """S2.8: the last call that `max_repeats` allows gets a notice; the next reply is not carried out."""
    result, runs = run_repetitions(
        chart, [LOOK_CALL, LOOK_CALL, LOOK_CALL, "enough"], limits={"max_repeats": 2}
    )
    assert (result.state, result.content) == ("finished", "enough")
    assert [call["result"]["success"] for call in result.tool_calls] == [True, True, False]
    assert "not executed" in result.tool_calls[2]["result"]["error"]
    assert len(runs) == 2


def test_a_chart_without_a_row_runs_repeated_calls() -> None:
    """Issue 10: where no row reads the repetitions, nothing else stops them."""
    result, runs = run_repetitions("tool_loop", [LOOK_CALL] * 4 + ["enough"])
    assert all(call["result"]["success"] for call in result.tool_calls)
    assert len(runs) == 4


def test_equal_calls_of_one_reply_are_no_repetition() -> None:
    """A model that asks five times in one reply is in no loop: every call runs."""
    result, runs = run_repetitions("full", [reply_with_calls(*[("look", {})] * 5), LOOK_CALL, "enough"])
    assert (result.content, len(runs)) == ("enough", 6)


def test_polling_is_no_repetition() -> None:
    """A tool that is declared `repeatable` may be called again and again."""
    result, runs = run_repetitions(
        "full", [{**reply_with_calls(("poll", {})), "content": "waiting"}] * 4 + ["ready"]
    )
    assert (result.content, len(runs)) == ("ready", 4)


@pytest.mark.parametrize("chart", ["full", "budgeted"])
def test_a_reply_over_the_budget_of_calls_does_not_run(chart: str) -> None:
    """Issue 10: a reply that asks for more calls than are left ends the turn before one of them runs."""
    two_calls = reply_with_calls(("look", {}), ("poll", {}))
    result, runs = run_repetitions(chart, [LOOK_CALL, two_calls, "never asked"], limits={"max_tool_calls": 2})
    assert (result.state, result.limit_reached) == ("out_of_budget", "max_tool_calls")
    assert "max_tool_calls" in result.content
    assert [call["result"]["success"] for call in result.tool_calls] == [True, False, False]
    assert len(runs) == 1


def test_a_reply_within_the_budget_of_calls_runs() -> None:
    """A reply that uses exactly what is left runs, and then the budget is spent."""
    two_calls = reply_with_calls(("look", {}), ("poll", {}))
    result, runs = run_repetitions("full", [two_calls, "never asked"], limits={"max_tool_calls": 2})
    assert (result.state, result.limit_reached, len(runs)) == ("out_of_budget", "max_tool_calls", 2)


@pytest.mark.parametrize(
    ("asked", "decided", "shown"),
    [
        ({"table": "old", "limit": 1}, None, None),
        ({"table": "old", "limit": "1"}, None, None),
        ({"table": "old", "limit": 1}, {"table": "new", "limit": 9}, {"table": "new", "limit": 9}),
        ({"table": "old", "limit": 1}, {"table": "new"}, {"table": "new", "limit": 1000}),
    ],
)
def test_the_model_reads_which_arguments_a_decision_gave(asked: Any, decided: Any, shown: Any) -> None:
    """A call that ran with arguments of a decision says so, with the default of what it left out. One that
    was repaired, and approved as it was, says nothing."""
    results: list[Any] = []

    @tool(requires_approval=True)
    def delete_rows(table: str, limit: int = 1000) -> str:
        """Delete rows."""
        return f"{limit} rows of {table}"

    async def approve(call: ToolCall) -> Decided:
        return Decided(call_id=call.id, approved=True, by="ann", arguments=decided)

    def finish(request: Request) -> Reply:
        results.append(parse_latest_result(request))
        return Reply(content="done", finish_reason="stop")

    replies = [reply_with_calls(("delete_rows", asked)), finish]
    make_engine(replies, functions=[delete_rows], approver=approve).run("go")
    assert results[0].get("arguments") == shown
    assert ("notice" in results[0]) == (shown is not None)
