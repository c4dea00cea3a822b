"""The loop from the outside: what a turn comes to, row by row of the requirements."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import calls, engine, fixed_tool

from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import IllegalEvent, SpecError, ToolchartError
from toolchart.states.events import Decided
from toolchart.states.messages import Reply, ToolCall, message_to_dict

NOTHING = {"type": "object", "properties": {}}


def asked(run: Engine) -> list[Any]:
    """The requests that the scripted model got."""
    provider = run.hosts.made["model"]
    assert isinstance(provider, ScriptedProvider)
    return provider.requests


def said(run: Engine, request: int = -1) -> list[dict[str, Any]]:
    """The messages of a request in OpenAI's form."""
    return [message_to_dict(message) for message in asked(run)[request].messages]


def test_answers_without_calls() -> None:
    """S1.4, S1.8: `stop` ends the turn with content, service, model and an empty list of calls."""
    result = engine(["Hello."]).run("Hi")
    assert result.to_dict() | {"conversation_id": "c"} == {
        "content": "Hello.",
        "service": "model",
        "model": "m",
        "tool_calls": [],
        "state": "finished",
        "conversation_id": "c",
        "iterations": 0,
        "usage": {},
        "finish_reason": "stop",
    }


def test_messages_are_system_history_user() -> None:
    """S1.2, S1.3: the request is `[system, ...history, user]` with the handler's model and options."""
    from toolchart.specs.history import messages_of

    run = engine(
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
    history = messages_of([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}])
    run.run("3", history=history, variables={"rag_context": "ctx", "a": {"b": "deep"}})
    assert said(run) == [
        {"role": "system", "content": "For model: ctx deep"},
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3"},
    ]
    assert asked(run)[0].model == "big"
    assert asked(run)[0].options == {"max_tokens": 9, "temperature": 0.5}


def test_runs_calls_and_asks_again() -> None:
    """S1.9-13: calls are executed in order, answered under their ids, tracked, and the model asked again."""
    run = engine(
        [calls(("calculator", {"expression": "6*7"}), ("weather", {"city": "Brno"})), "Done."]
    )
    result = run.run("go")
    assert result.content == "Done."
    assert [(c["tool"], c["params"], c["iteration"]) for c in result.tool_calls] == [
        ("calculator", {"expression": "6*7"}, 0),
        ("weather", {"city": "Brno"}, 0),
    ]
    assert [c["result"]["result"] for c in result.tool_calls] == [42, {"sky": "blue"}]
    _, _, assistant, first, second = said(run)
    assert assistant["content"] is None
    assert [c["id"] for c in assistant["tool_calls"]] == [
        first["tool_call_id"],
        second["tool_call_id"],
    ]
    assert first["name"] == "calculator"
    assert set(json.loads(first["content"])) == {
        "success",
        "result",
        "tool_name",
        "execution_time_ms",
    }


def test_calls_decide_whatever_the_word_is() -> None:
    """S1.9: a reply that carries calls is executed even when the provider said `stop`."""
    from toolchart.providers.shared.finish_reasons import OPENAI, finish_reason

    assert finish_reason("stop", OPENAI, calls=1) == "tool_calls"
    assert finish_reason("length", OPENAI, calls=1) == "length"
    assert finish_reason("tool_calls", OPENAI, calls=0) == "unknown"


def test_ids_are_unique_in_the_conversation() -> None:
    """S1.11: a missing or repeated id is replaced, and call and answer carry the same one."""
    twice = {"tool_calls": [{"name": "echo", "id": "x", "arguments": {"text": "a"}}] * 2}
    run = engine([twice, twice, calls(("echo", {"text": "b"})), "end"])
    run.run("go")
    messages = said(run)
    made = [call["id"] for m in messages for call in m.get("tool_calls", ())]
    answered = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    assert made == answered
    assert len(set(made)) == 5
    assert made[0] == "x"


def test_stops_at_the_limit_and_loses_nothing() -> None:
    """S1.7, S1.14: at the limit the turn says so, keeps every call and exits through its own state."""
    again = calls(("echo", {"text": "again"}))
    run = engine(
        [again] * 9,
        tools={"registry": [{"name": "echo"}]},
        responses=[{"llm": "model", "tools": {"enabled": True, "max_iterations": 3}}],
    )
    result = run.run("go")
    assert result.state == "max_iterations"
    assert result.max_iterations_reached
    assert result.content.startswith("I reached the maximum number of tool calls")
    assert len(result.tool_calls) == result.iterations == 3


@pytest.mark.parametrize(("own", "shared", "reached"), [(2, 4, 2), (None, 4, 4), (None, None, 5)])
def test_the_handlers_limit_goes_before_the_global_one(
    own: int | None, shared: int | None, reached: int
) -> None:
    """S1.7, S2.3: max_iterations is the handler's, else the global one, else 5."""
    tools = {"registry": [{"name": "echo"}], **({"max_iterations": shared} if shared else {})}
    handler = {"enabled": True, **({"max_iterations": own} if own else {})}
    run = engine(
        [calls(("echo", {"text": str(i)})) for i in range(9)],
        tools=tools,
        responses=[{"llm": "model", "tools": handler}],
    )
    assert run.run("go").iterations == reached


@pytest.mark.parametrize(
    "reason", ["length", "content_filter", "unknown", "paused", "malformed_call"]
)
def test_other_reasons_end_in_error_with_what_was_said(reason: str) -> None:
    """S1.15: any other finish reason ends with the content, else with a text that says so."""
    spoken = engine([{"content": "half", "finish_reason": reason}]).run("go")
    assert (spoken.state, spoken.content) == ("error", "half")
    silent = engine([{"finish_reason": reason}]).run("go")
    assert silent.content.startswith("I encountered an issue")
    assert reason in silent.content


def test_failing_tools_are_data() -> None:
    """S1.16-17, S2.4, S4.5: unknown, refused, invalid, unreadable and raising calls become results."""

    def bad(arguments: Any) -> Any:
        raise RuntimeError("boom")

    run = engine(
        [
            calls(
                ("calculater", {"expression": "1"}),
                ("calculator", {}),
                ("echo", '{"text": "cut'),
                ("bad", {}),
                ("weather", {"city": ["x"]}),
                ("echo", {"text": "fine"}),
            ),
            "I saw.",
        ],
        functions=[fixed_tool("bad", NOTHING, bad)],
    )
    result = run.run("go")
    assert result.state == "finished"
    outcomes = [call["result"] for call in result.tool_calls]
    assert [one["success"] for one in outcomes] == [False] * 5 + [True]
    told = [one.get("error", "") for one in outcomes]
    assert "'calculater' not found" in told[0]
    assert "calculator" in told[0]
    assert "'expression'" in told[1]
    assert "not valid JSON" in told[2]
    assert "boom" in told[3]
    assert "'city'" in told[4]
    assert result.tool_calls[2]["params"] is None
    assert [m["role"] for m in said(run)].count("tool") == 6


def test_a_tool_outside_the_allow_list_does_not_run() -> None:
    """S1.6, S2.9: what the handler does not allow is neither offered nor run."""
    ran: list[Any] = []
    run = engine(
        [calls(("secret", {}), ("echo", {"text": "x"})), "end"],
        functions=[fixed_tool("secret", NOTHING, lambda a: ran.append(a))],
        responses=[{"llm": "model", "tools": {"allowed_tools": ["ec*"]}}],
    )
    result = run.run("go")
    assert [tool.name for tool in asked(run)[0].tools] == ["echo"]
    assert "not allowed" in result.tool_calls[0]["result"]["error"]
    assert ran == []


@pytest.mark.parametrize(
    ("tools", "handler"),
    [
        (None, {"enabled": True}),
        ({"enabled": False, "registry": [{"name": "echo"}]}, {"enabled": True}),
        ({"registry": [{"name": "echo"}]}, {"enabled": False}),
        ({"registry": [{"name": "echo"}]}, None),
        ({"registry": [{"name": "echo"}]}, {"allowed_tools": ["nothing"]}),
    ],
)
def test_the_standard_flow_without_tools(tools: Any, handler: Any) -> None:
    """S1.5-6, S2.11: without a tools section, or switched off, or with nothing left: one plain call."""
    run = engine(["plain"], tools=tools, responses=[{"llm": "model", "tools": handler}])
    result = run.run("go")
    assert (result.content, result.state) == ("plain", "finished")
    assert len(asked(run)) == 1
    assert asked(run)[0].tools == ()
    left_nothing = handler == {"allowed_tools": ["nothing"]}
    assert any("leaves no tool" in warning for warning in result.warnings) == left_nothing


def test_a_failed_model_call_ends_in_error_with_what_was_found() -> None:
    """Invariant 4: a provider's failure is a final state that keeps the calls made so far."""
    run = engine([calls(("echo", {"text": "kept"})), {"fail": {"kind": "auth", "status": 401}}])
    result = run.run("go")
    assert result.state == "error"
    assert result.content.startswith("I encountered an issue")
    assert len(result.tool_calls) == 1


def test_conversations_go_on_with_their_history() -> None:
    """S3.1: a second turn sees the first, calls and results included, also from the log alone."""
    store = engine([]).store
    first = engine([calls(("echo", {"text": "x"})), "one"], log=store)
    first.run("a", conversation="c")
    again = engine(["two"], log=store)
    again.run("b", conversation="c")
    roles = [m["role"] for m in said(again)]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    third = again
    third.hosts.made["model"] = ScriptedProvider(["three"])
    third.run("c", conversation="c")
    assert len(said(third)) == 8


def test_cut_calls_are_answered_before_the_next_request() -> None:
    """Invariant 1: calls of a reply that was cut off never dangle, and the model hears they were not run."""
    cut = {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}], "finish_reason": "length"}
    run = engine([cut, "better"])
    result = run.run("go", conversation="c")
    assert result.state == "error"
    assert result.tool_calls[0]["result"]["success"] is False
    run.run("again", conversation="c")
    messages = said(run)
    assert [m["role"] for m in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert "not executed" in messages[3]["content"]


def test_state_persists_across_steps_and_python_functions_are_tools() -> None:
    """S4.6-7: a planner is just another tool; its state lives across the steps of a turn."""
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

    run = engine(
        [calls(("planner", {"step": "a"})), calls(("planner", {"step": "b"})), "end"],
        functions=[planner],
    )
    result = run.run("go")
    assert [c["result"]["result"] for c in result.tool_calls] == ["1 steps", "2 steps"]
    schema = next(t for t in asked(run)[0].tools if t.name == "planner").parameters
    assert schema["properties"]["step"] == {"type": "string", "description": "What to do next."}


async def test_parallel_calls_keep_the_replys_order() -> None:
    """Results come in any order and are said in the order of the calls."""

    async def slow(arguments: Any) -> Any:
        await asyncio.sleep(arguments["s"])
        return arguments["s"]

    schema = {"type": "object", "properties": {"s": {"type": "number"}}}
    run = engine(
        [calls(("slow", {"s": 0.05}), ("slow", {"s": 0})), "end"],
        functions=[fixed_tool("slow", schema, slow)],
    )
    result = await run.arun("go")
    assert [c["result"]["result"] for c in result.tool_calls] == [0.05, 0]


async def test_cancelling_writes_down_what_was_running() -> None:
    """A cancelled turn ends in the log, its running call as cancelled, and the next turn is valid."""
    started = asyncio.Event()

    async def hang(arguments: Any) -> Any:
        started.set()
        await asyncio.sleep(60)

    run = engine(
        [calls(("hang", {}), ("hang", {})), "next"],
        functions=[fixed_tool("hang", NOTHING, hang)],
    )
    turn = asyncio.create_task(run.arun("go", conversation="c"))
    await started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    kinds = [json.loads(line)["event"]["type"] for line in run.store.read("c")]
    assert kinds[-3:] == ["tool_finished", "tool_finished", "cancelled"]
    result = await run.arun("again", conversation="c")
    assert result.content == "next"
    assert [m["role"] for m in said(run)].count("tool") == 2


async def test_a_call_that_needs_approval_waits_or_is_asked_about() -> None:
    """A risky call rests in the log until somebody decides; a denied one is told to the model."""
    registry = [{"name": "echo", "requires_approval": True}]
    resting = engine([calls(("echo", {"text": "x"}))], tools={"registry": registry})
    result = await resting.arun("go")
    assert not result.over
    assert [one["tool"] for one in result.undecided] == ["echo"]

    async def deny(call: ToolCall) -> Decided:
        return Decided(call_id=call.id, approved=False, reason="not today")

    asking = engine(
        [calls(("echo", {"text": "x"})), "ok"], tools={"registry": registry}, approver=deny
    )
    result = await asking.arun("go")
    assert result.state == "finished"
    assert "not today" in result.tool_calls[0]["result"]["error"]


def test_a_provider_that_breaks_is_a_failure() -> None:
    """A fault inside a provider ends the turn in error, with its records, not in a traceback."""

    def broken(request: Any) -> Reply:
        raise ZeroDivisionError("adapter")

    result = engine([broken]).run("go")
    assert result.state == "error"


def test_odd_values_are_logged_as_what_is_acted_on() -> None:
    """Big integers, bad Unicode and foreign objects in a result neither break the log nor the replay."""
    from toolchart.engine.log.replay import replay

    odd = {"n": 10**40, "s": "\ud800", 3: {1, 2}, "f": float("nan"), "o": object}
    run = engine(
        [calls(("odd", {"deep": 1})), "end"],
        functions=[fixed_tool("odd", NOTHING, lambda a: odd)],
    )
    result = run.run("go", conversation="c")
    assert result.tool_calls[0]["result"]["success"] is True
    assert sum(1 for _ in replay(run.store.read("c"), "c")) == 6


def test_refuses_what_cannot_be_done() -> None:
    """Running in a running loop, or a second turn inside an open one, is one clear error."""

    async def inside() -> None:
        with pytest.raises(ToolchartError, match="arun"):
            engine(["x"]).run("go")

    asyncio.run(inside())
    registry = [{"name": "echo", "requires_approval": True}]
    run = engine([calls(("echo", {"text": "x"}))], tools={"registry": registry})
    run.run("go", conversation="c")
    with pytest.raises((SpecError, IllegalEvent)):
        run.run("again", conversation="c")
