"""Tools in whole conversations with the real engine: results, plans and repairs come from the log."""

from __future__ import annotations

import json
from typing import Any

from agents import make_engine, make_function_tool, make_spec, reply_with_calls
from tool_calls import NOTHING

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
        **build_tools_section("fetch_result"),
    )
    result = engine.run("go")
    assert result.state == "finished"
    assert full_text.startswith(tool_results[0]["result"])
    assert full_text[len(tool_results[0]["result"]) :].startswith(tool_results[1]["result"]["text"])
    assert result.tool_calls[0]["result"]["result"] == full_text


def test_a_plan_survives_its_process() -> None:
    """S4.7: a plan of one turn is there in the next, in a new engine with the same log."""
    create_call = reply_with_calls(("planner", {"action": "create_plan", "steps": ["a", "b"]}))
    first = make_engine([create_call, "planned"], **build_tools_section("planner"))
    conversation = first.run("plan").conversation_id
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
    log = b"\n".join(engine.store.read_lines(result.conversation_id)).decode()
    assert "misspelt name" in log


def test_repeated_calls_get_a_notice_and_then_stop() -> None:
    """S2.8: a call that repeats in one turn gets a notice, and later does not run."""
    runs: list[int] = []
    look_call = reply_with_calls(("look", {}))
    engine = make_engine(
        [look_call, look_call, look_call, look_call, "enough"],
        functions=[make_function_tool("look", NOTHING, lambda arguments: runs.append(1))],
        **{**make_spec(), "limits": {"max_repeats": 2}, **build_tools_section("echo")},
    )
    result = engine.run("go")
    assert [call["result"]["success"] for call in result.tool_calls] == [True] * 3 + [False]
    assert len(runs) == 3
    assert "already called 3 times" in result.tool_calls[3]["result"]["error"]
