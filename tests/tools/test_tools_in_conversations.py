"""Tools inside whole conversations: what lives in the log works through the real engine."""

from __future__ import annotations

import json
from typing import Any

from agents import calls, engine, fixed_tool, spec
from tool_calls import NOTHING

from toolchart.states.messages import Reply, Request, ToolCall


def with_tools(*names: str) -> dict[str, Any]:
    """A tools section of these builtins."""
    return {"tools": {"registry": [{"name": name} for name in names]}}


def newest(request: Request) -> Any:
    """The newest tool result that the model was shown."""
    return json.loads(request.messages[-1].content or "")


def test_a_cut_result_is_read_on_from_the_log() -> None:
    """S2.12: the model follows the handle of a cut result and gets the rest, turn after turn."""
    whole = "\n".join(f"line {n}" for n in range(900))
    seen: list[Any] = []

    def follow(request: Request) -> Reply:
        seen.append(newest(request))
        handle = request.messages[-1].tool_call_id
        offset = len(seen[-1]["result"])
        more = ToolCall(name="fetch_result", arguments={"handle": handle, "offset": offset})
        return Reply(tool_calls=(more,), finish_reason="tool_calls")

    def finish(request: Request) -> Reply:
        seen.append(newest(request))
        return Reply(content="done", finish_reason="stop")

    run = engine(
        [calls(("read", {})), follow, finish],
        functions=[fixed_tool("read", NOTHING, lambda arguments: whole)],
        **with_tools("fetch_result"),
    )
    result = run.run("go")
    assert result.state == "finished"
    assert whole.startswith(seen[0]["result"])
    assert whole[len(seen[0]["result"]) :].startswith(seen[1]["result"]["text"])
    assert result.tool_calls[0]["result"]["result"] == whole


def test_a_plan_survives_its_process() -> None:
    """S4.7: a plan made in one turn is found in the next one by an engine that only has the log."""
    create = calls(("planner", {"action": "create_plan", "steps": ["a", "b"]}))
    first = engine([create, "planned"], **with_tools("planner"))
    conversation = first.run("plan").conversation_id
    mark = calls(("planner", {"action": "mark_done", "step": 1}))
    second = engine([mark, "marked"], log=first.store, **with_tools("planner"))
    result = second.run("go on", conversation=conversation)
    plan = result.tool_calls[0]["result"]["result"]
    assert [step["done"] for step in plan["steps"]] == [True, False]


def test_repaired_arguments_are_what_ran_and_what_the_record_says() -> None:
    """S3.5: the repaired arguments are tracked, run, and recorded with what was put right."""
    run = engine([calls(("calculator", {"Expression": "6*7"})), "done"])
    result = run.run("go")
    assert result.tool_calls[0]["params"] == {"expression": "6*7"}
    assert result.tool_calls[0]["result"]["result"] == 42
    log = b"\n".join(run.store.read(result.conversation_id)).decode()
    assert "misspelt name" in log


def test_going_in_circles_is_told_and_then_blocked() -> None:
    """S2.8: the same call again and again is nudged, then not run, within one turn."""
    ran_times: list[int] = []
    again = calls(("look", {}))
    run = engine(
        [again, again, again, again, "enough"],
        functions=[fixed_tool("look", NOTHING, lambda arguments: ran_times.append(1))],
        **{**spec(), "limits": {"max_repeats": 2}, **with_tools("echo")},
    )
    result = run.run("go")
    assert [call["result"]["success"] for call in result.tool_calls] == [True] * 3 + [False]
    assert len(ran_times) == 3
    assert "already called 3 times" in result.tool_calls[3]["result"]["error"]
