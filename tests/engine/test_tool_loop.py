"""Whole turns on the tool_loop chart: requests, tool calls, limits and errors, by requirement."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, make_function_tool, reply_with_calls

from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.chat_messages import encode_chat_message
from toolchart.states.errors import ToolchartError
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall

NOTHING = {"type": "object", "properties": {}}


def get_requests(run: Engine) -> list[Any]:
    """The requests that the scripted model received."""
    provider = run.hosts.providers["model"]
    assert isinstance(provider, ScriptedProvider)
    return provider.requests


def get_request_messages(run: Engine, request: int = -1) -> list[dict[str, Any]]:
    """The messages of a request in OpenAI's format."""
    return [encode_chat_message(message) for message in get_requests(run)[request].messages]


def test_answers_without_calls() -> None:
    """S1.4, S1.8: `stop` ends the turn with content, service, model and an empty list of calls."""
    result = make_engine(["Hello."]).run("Hi")
    assert result.to_dict() | {"conversation": "c"} == {
        "ok": True,
        "is_over": True,
        "content": "Hello.",
        "service": "model",
        "model": "m",
        "tool_calls": [],
        "state": "finished",
        "conversation": "c",
        "iterations": 0,
        "usage": {},
        "finish_reason": "stop",
    }


def test_messages_are_system_history_user() -> None:
    """S1.2, S1.3: the request is `[system, ...history, user]` with the handler's model and options."""
    from toolchart.specs.chat_messages import read_history

    run = make_engine(
        ["ok"],
        responses=[
            {
                "llm": "model",
                "model": "big",
                "max_tokens": 9,
                "temperature": 0.5,
                "prompt": "For {{service}}: {{rag_context}} {{a.b}}",
            }
        ],
    )
    history = read_history([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}])
    run.run("3", history=history, variables={"rag_context": "ctx", "a": {"b": "deep"}})
    assert get_request_messages(run) == [
        {"role": "system", "content": "For model: ctx deep"},
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3"},
    ]
    assert get_requests(run)[0].model == "big"
    assert get_requests(run)[0].options == {"max_tokens": 9, "temperature": 0.5}


def test_runs_calls_and_asks_again() -> None:
    """S1.9-13: calls are executed in order, answered under their ids, tracked, and the model asked again."""
    run = make_engine(
        [reply_with_calls(("calculator", {"expression": "6*7"}), ("weather", {"city": "Brno"})), "Done."]
    )
    result = run.run("go")
    assert result.content == "Done."
    assert [(c["tool"], c["params"], c["iteration"]) for c in result.tool_calls] == [
        ("calculator", {"expression": "6*7"}, 0),
        ("weather", {"city": "Brno"}, 0),
    ]
    assert [c["result"]["result"] for c in result.tool_calls] == [42, {"sky": "blue"}]
    _, _, assistant, first, second = get_request_messages(run)
    assert assistant["content"] is None
    assert [c["id"] for c in assistant["tool_calls"]] == [first["tool_call_id"], second["tool_call_id"]]
    assert first["name"] == "calculator"
    assert set(json.loads(first["content"])) == {"success", "result", "tool_name", "execution_time_ms"}


def test_calls_override_the_finish_reason() -> None:
    """S1.9: calls in a reply are run even where the provider's finish reason is `stop`."""
    from toolchart.providers.openai.wire import FINISH_WORDS
    from toolchart.providers.shared.replies import resolve_finish_reason

    assert resolve_finish_reason("stop", FINISH_WORDS, call_count=1, has_answer=False) == "tool_calls"
    assert resolve_finish_reason("length", FINISH_WORDS, call_count=1, has_answer=False) == "length"
    assert resolve_finish_reason("tool_calls", FINISH_WORDS, call_count=0, has_answer=False) == "unknown"
    assert resolve_finish_reason("tool_calls", FINISH_WORDS, call_count=0, has_answer=True) == "tool_calls"


def test_ids_are_unique_in_the_conversation() -> None:
    """S1.11: a missing or repeated call id is replaced; a call and its result have the same id."""
    two_equal_calls = {"tool_calls": [{"name": "echo", "id": "x", "arguments": {"text": "a"}}] * 2}
    run = make_engine([two_equal_calls, two_equal_calls, reply_with_calls(("echo", {"text": "b"})), "end"])
    run.run("go")
    messages = get_request_messages(run)
    call_ids = [call["id"] for m in messages for call in m.get("tool_calls", ())]
    answered_ids = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    assert call_ids == answered_ids
    assert len(set(call_ids)) == 5
    assert call_ids[0] == "x"


def test_stops_at_the_limit_and_loses_nothing() -> None:
    """S1.7, S1.14: at the limit the turn ends in `max_iterations`, with an explanation and every call."""
    call_reply = reply_with_calls(("echo", {"text": "again"}))
    run = make_engine(
        [call_reply] * 9,
        tools={"registry": [{"name": "echo"}]},
        responses=[{"llm": "model", "tools": {"enabled": True, "max_iterations": 3}}],
    )
    result = run.run("go")
    assert result.state == "max_iterations"
    assert result.max_iterations_reached
    assert result.content.startswith("I reached the maximum number of tool calls")
    assert len(result.tool_calls) == result.iterations == 3


@pytest.mark.parametrize(
    ("handler_limit", "global_limit", "expected_limit"), [(2, 4, 2), (None, 4, 4), (None, None, 5)]
)
def test_the_handlers_limit_goes_before_the_global_one(
    handler_limit: int | None, global_limit: int | None, expected_limit: int
) -> None:
    """S1.7, S2.3: max_iterations is the handler's, else the global one, else 5."""
    tools = {"registry": [{"name": "echo"}], **({"max_iterations": global_limit} if global_limit else {})}
    handler = {"enabled": True, **({"max_iterations": handler_limit} if handler_limit else {})}
    run = make_engine(
        [reply_with_calls(("echo", {"text": str(i)})) for i in range(9)],
        tools=tools,
        responses=[{"llm": "model", "tools": handler}],
    )
    assert run.run("go").iterations == expected_limit


@pytest.mark.parametrize("reason", ["length", "content_filter", "unknown"])
def test_other_reasons_end_in_error_with_what_was_said(reason: str) -> None:
    """S1.15: any other finish reason ends in error with the content, else with a text that names it."""
    with_content = make_engine([{"content": "half", "finish_reason": reason}]).run("go")
    assert (with_content.state, with_content.content) == ("error", "half")
    if reason == "unknown":
        return  # without content it is an empty reply
    without_content = make_engine([{"finish_reason": reason}]).run("go")
    assert without_content.content.startswith("I encountered an issue")
    assert reason in without_content.content


def test_failing_tools_are_data() -> None:
    """S1.16-17, S2.4, S4.5: unknown, refused, invalid, unreadable and failing calls give error results."""

    def raise_error(arguments: Any) -> Any:
        raise RuntimeError("boom")

    run = make_engine(
        [
            reply_with_calls(
                ("calculater", {"expression": "1"}),
                ("calculator", {}),
                ("echo", '{"text": "cut'),
                ("bad", {}),
                ("weather", {"city": ["x"]}),
                ("echo", {"text": "fine"}),
            ),
            "I saw.",
        ],
        functions=[make_function_tool("bad", NOTHING, raise_error)],
    )
    result = run.run("go")
    assert result.state == "finished"
    outcomes = [call["result"] for call in result.tool_calls]
    assert [outcome["success"] for outcome in outcomes] == [False] * 5 + [True]
    errors = [outcome.get("error", "") for outcome in outcomes]
    assert "'calculater' not found" in errors[0]
    assert "calculator" in errors[0]
    assert "'expression'" in errors[1]
    assert "not valid JSON" in errors[2]
    assert "boom" in errors[3]
    assert "'city'" in errors[4]
    assert result.tool_calls[2]["params"] is None
    assert [m["role"] for m in get_request_messages(run)].count("tool") == 6


@pytest.mark.parametrize("number", ["1e999", "-1e999", "Infinity", "NaN"])
def test_a_number_out_of_range_is_refused_not_changed(number: str) -> None:
    """A call whose number no float can hold does not run, and the model hears why."""
    received: list[Any] = []
    schema = {"type": "object", "properties": {"amount": {"minimum": 0}}}
    run = make_engine(
        [reply_with_calls(("pay", f'{{"amount": {number}}}')), "I saw."],
        functions=[make_function_tool("pay", schema, received.append)],
    )
    (call,) = run.run("go").tool_calls
    assert received == []
    assert number in call["result"]["error"]


def test_a_tool_outside_the_allow_list_does_not_run() -> None:
    """S1.6, S2.9: a tool that the handler does not allow is neither offered to the model nor run."""
    runs: list[Any] = []
    run = make_engine(
        [reply_with_calls(("secret", {}), ("echo", {"text": "x"})), "end"],
        functions=[make_function_tool("secret", NOTHING, lambda a: runs.append(a))],
        responses=[{"llm": "model", "tools": {"enabled": True, "allowed_tools": ["ec*"]}}],
    )
    result = run.run("go")
    assert [tool.name for tool in get_requests(run)[0].tools] == ["echo"]
    assert "not allowed" in result.tool_calls[0]["result"]["error"]
    assert runs == []


@pytest.mark.parametrize(
    ("tools", "handler"),
    [
        (None, {"enabled": True}),
        ({"enabled": False, "registry": [{"name": "echo"}]}, {"enabled": True}),
        ({"registry": [{"name": "echo"}]}, {"enabled": False}),
        ({"registry": [{"name": "echo"}]}, None),
        ({"registry": [{"name": "echo"}]}, {"enabled": True, "allowed_tools": ["nothing"]}),
    ],
)
def test_the_standard_flow_without_tools(tools: Any, handler: Any) -> None:
    """S1.5-6, S2.11: where no tools are configured, enabled or allowed, there is one call without tools."""
    run = make_engine(["plain"], tools=tools, responses=[{"llm": "model", "tools": handler}])
    result = run.run("go")
    assert (result.content, result.state) == ("plain", "finished")
    assert len(get_requests(run)) == 1
    assert get_requests(run)[0].tools == ()
    has_no_tools = handler == {"enabled": True, "allowed_tools": ["nothing"]}
    assert any("leaves no tool" in warning for warning in result.warnings) == has_no_tools


def test_a_failed_model_call_ends_in_error_with_what_was_found() -> None:
    """Invariant 4: a provider's failure ends the turn in error; the calls made so far are kept."""
    run = make_engine(
        [reply_with_calls(("echo", {"text": "kept"})), {"fail": {"kind": "auth", "status": 401}}]
    )
    result = run.run("go")
    assert result.state == "error"
    assert result.content.startswith("I encountered an issue")
    assert len(result.tool_calls) == 1


def test_a_second_turn_sees_the_first() -> None:
    """S3.1: a second turn sees the first with its calls and results, also when read from the log."""
    store = make_engine([]).store
    first = make_engine([reply_with_calls(("echo", {"text": "x"})), "one"], log=store)
    first.run("a", conversation="c")
    second_engine = make_engine(["two"], log=store)
    second_engine.run("b", conversation="c")
    roles = [m["role"] for m in get_request_messages(second_engine)]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    second_engine.hosts.providers["model"] = ScriptedProvider(["three"])
    second_engine.run("c", conversation="c")
    assert len(get_request_messages(second_engine)) == 8


def test_cut_calls_are_answered_before_the_next_request() -> None:
    """Invariant 1: calls of a reply that was cut off get results that say they were not executed."""
    cut = {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}], "finish_reason": "length"}
    run = make_engine([cut, "better"])
    result = run.run("go", conversation="c")
    assert result.state == "error"
    assert result.tool_calls[0]["result"]["success"] is False
    run.run("again", conversation="c")
    messages = get_request_messages(run)
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "user"]
    assert "not executed" in messages[3]["content"]


def test_state_persists_across_steps_and_python_functions_are_tools() -> None:
    """S4.6-7: a Python function is a tool, and its state lasts across the steps of a turn."""
    from toolchart import tool

    plan: list[str] = []

    @tool
    def planner(step: str) -> str:
        """Note a step.

        Args:
            step: What to do next.
        """
        plan.append(step)
        return f"{len(plan)} steps"

    run = make_engine(
        [reply_with_calls(("planner", {"step": "a"})), reply_with_calls(("planner", {"step": "b"})), "end"],
        functions=[planner],
    )
    result = run.run("go")
    assert [c["result"]["result"] for c in result.tool_calls] == ["1 steps", "2 steps"]
    schema = next(t for t in get_requests(run)[0].tools if t.name == "planner").parameters
    assert schema["properties"]["step"] == {"type": "string", "description": "What to do next."}


async def test_parallel_calls_keep_the_replys_order() -> None:
    """Results arrive in any order and are reported in the order of the calls."""

    async def slow(arguments: Any) -> Any:
        await asyncio.sleep(arguments["s"])
        return arguments["s"]

    schema = {"type": "object", "properties": {"s": {"type": "number"}}}
    run = make_engine(
        [reply_with_calls(("slow", {"s": 0.05}), ("slow", {"s": 0})), "end"],
        functions=[make_function_tool("slow", schema, slow)],
    )
    result = await run.arun("go")
    assert [c["result"]["result"] for c in result.tool_calls] == [0.05, 0]


async def test_cancelling_records_running_calls() -> None:
    """A cancelled turn interrupts its running calls, the model reads that, and the next turn is valid."""
    has_started = asyncio.Event()

    async def hang(arguments: Any) -> Any:
        has_started.set()
        await asyncio.sleep(60)

    run = make_engine(
        [reply_with_calls(("hang", {}), ("hang", {})), "next"],
        functions=[make_function_tool("hang", NOTHING, hang)],
    )
    turn = asyncio.create_task(run.arun("go", conversation="c"))
    await has_started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    kinds = [json.loads(line)["event"]["type"] for line in run.store.read_lines("c")]
    assert kinds[-3:] == ["reviewed", "calls_started", "cancelled"]
    result = await run.arun("again", conversation="c")
    assert result.content == "next"
    tool_texts = [m["content"] for m in get_request_messages(run) if m["role"] == "tool"]
    assert ["interrupted" in text for text in tool_texts] == [True, True]


async def test_a_call_that_needs_approval_waits_or_is_asked_about() -> None:
    """A call that needs approval waits for a decision; the model reads why it was denied."""
    registry = [{"name": "echo", "requires_approval": True}]
    without_approver = make_engine([reply_with_calls(("echo", {"text": "x"}))], tools={"registry": registry})
    result = await without_approver.arun("go")
    assert not result.is_over
    assert [call["tool"] for call in result.pending_approvals] == ["echo"]

    async def deny(call: ToolCall) -> Decided:
        return Decided(call_id=call.id, approved=False, reason="not today")

    with_approver = make_engine(
        [reply_with_calls(("echo", {"text": "x"})), "ok"], tools={"registry": registry}, approver=deny
    )
    result = await with_approver.arun("go")
    assert result.state == "finished"
    assert "not today" in result.tool_calls[0]["result"]["error"]


def test_odd_values_are_logged_as_what_is_acted_on() -> None:
    """Results with big integers, bad Unicode or foreign objects are logged, and the log replays."""
    from toolchart.engine.log.replay import replay

    odd = {"n": 10**40, "s": "\ud800", 3: {1, 2}, "f": float("nan"), "o": Path("x")}
    run = make_engine(
        [reply_with_calls(("odd", {})), "end"], functions=[make_function_tool("odd", NOTHING, lambda a: odd)]
    )
    result = run.run("go", conversation="c")
    assert result.tool_calls[0]["result"]["success"] is True
    assert sum(1 for _ in replay(run.store.read_lines("c"), "c")) == 7


def test_run_inside_a_loop_is_refused() -> None:
    """`run` inside an event loop is one clear error."""

    async def run_inside_loop() -> None:
        with pytest.raises(ToolchartError, match="arun"):
            make_engine(["x"]).run("go")

    asyncio.run(run_inside_loop())
