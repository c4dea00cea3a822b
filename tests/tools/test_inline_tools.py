"""`isolation: inline`: quick functions run on the event loop, and differ from others in nothing else."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tool_calls import build_snapshot, build_tool, make_call, make_executor, run_calls

from toolchart.specs.models import ToolsConfig, build_spec_schema
from toolchart.states.errors import SpecError
from toolchart.tools import tool
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.python import PythonRunner, make_tool

MODES = ["inline", "thread", "async"]


def make_mode_tool(mode: str, function: Callable[[], Any], **options: Any) -> Tool:
    """The tool `work`, which calls a function without parameters in one of the modes."""

    def work() -> Any:
        """Work."""
        return function()

    async def work_async() -> Any:
        """Work."""
        return function()

    if mode == "async":
        return make_tool(tool(name="work", **options)(work_async))
    return make_tool(tool(isolation=mode, **options)(work))  # type: ignore[call-overload]


def load_entry_tool(**entry: Any) -> Tool:
    """The tool of one entry; the default is a Python function."""
    implementation = {"type": "python", "handler": "posixpath:basename"}
    config = ToolsConfig.model_validate({"registry": [{"implementation": implementation, **entry}]})
    (loaded_tool,) = ToolManager.from_config(config).registry
    return loaded_tool


def test_an_inline_function_runs_on_the_event_loop() -> None:
    """Issue 10: an inline function runs in the thread of the event loop, and no thread is started."""

    @tool(isolation="inline")
    def inspect_place(scale: int) -> list[Any]:
        """Say where it runs."""
        return [threading.get_ident(), asyncio.get_running_loop().is_running(), scale * 2]

    inline_tool = make_tool(inspect_place)
    (event,) = run_calls(make_executor(inline_tool), make_call("inspect_place", {"scale": 4}))
    assert inline_tool.execution_mode == "inline"
    assert event.result["result"] == [threading.get_ident(), True, 8]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("boom"), "ValueError: boom"),
        (ToolFailure("no such city"), "no such city"),
        (TimeoutError("own"), "TimeoutError: own"),
        (StopIteration(1), None),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), None),
    ],
)
def test_an_exception_is_the_same_failure_in_every_mode(
    mode: str, error: BaseException, text: str | None
) -> None:
    """Issue 10: exceptions, an exit and a cancellation of its own end the call as failed, in each mode."""

    def fail() -> None:
        raise error

    (event,) = run_calls(make_executor(make_mode_tool(mode, fail)), make_call("work"))
    assert event.outcome == "failed"
    assert event.result["error"] == text or (text is None and event.result["error"])


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_a_keyboard_interrupt_on_the_event_loop_stops_the_program(mode: str) -> None:
    """Issue 10: on the event loop a KeyboardInterrupt comes from a person and is never swallowed."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_calls(make_executor(make_mode_tool(mode, interrupt)), make_call("work"))


def test_a_keyboard_interrupt_in_a_thread_is_a_failure() -> None:
    """Issue 10: no person's interrupt arrives in a thread, so there it is the tool's own exception."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    (event,) = run_calls(make_executor(make_mode_tool("thread", interrupt)), make_call("work"))
    assert event.result["error"] == "KeyboardInterrupt"


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_sees_the_context_and_changes_only_its_copy(mode: str) -> None:
    """Issue 10: a tool reads its caller's context variables; what it sets stays with it, in each mode."""
    variable = contextvars.ContextVar("variable", default="unset")

    def swap() -> str:
        value = variable.get()
        variable.set("left behind")
        return value

    executor = make_executor(make_mode_tool(mode, swap))

    async def scenario() -> tuple[str, str]:
        variable.set("the caller's")
        event = await executor.run(make_call("work"), ("work",))
        return event.result["result"], variable.get()

    assert asyncio.run(scenario()) == ("the caller's", "the caller's")


@pytest.mark.parametrize("mode", MODES)
def test_the_other_options_hold_in_every_mode(mode: str) -> None:
    """Issue 10: approval, cache and limits of the result hold for inline tools as for all others."""
    runs: list[int] = []

    def count() -> str:
        runs.append(1)
        return "word " * 1000

    counted_tool = make_mode_tool(
        mode, count, cacheable=True, max_result_size=20, idempotent=True, risk="high", repeatable=True
    )
    executor = make_executor(counted_tool)
    call = make_call("work")
    snapshot = build_snapshot(call, executor=executor)
    unapproved_call = replace(snapshot.calls[0], ruling="needs_approval")
    (refused_event,) = run_calls(
        executor.bind("c", lambda: replace(snapshot, calls=(unapproved_call,))), call
    )
    assert (refused_event.outcome, runs) == ("denied", [])
    (event,) = run_calls(executor.bind("c", lambda: snapshot), call)
    (cached_event,) = run_calls(executor.bind("c", lambda: snapshot), call)
    assert len(json.loads(event.shown)["result"]) <= 20
    assert cached_event.notes[0] == "cached: the answer of call call_1"
    assert runs == [1]
    assert counted_tool.idempotent


@pytest.mark.parametrize("waits_alone", [True, False])
def test_a_tool_that_runs_alone_never_overlaps_with_an_inline_one(waits_alone: bool) -> None:
    """Issue 10: `parallel: false` holds for an inline tool, and for another one while inline calls come."""
    steps: list[str] = []

    async def wait() -> None:
        """Wait."""
        steps.append("begin")
        await asyncio.sleep(0.01)
        steps.append("end")

    def work() -> None:
        """Work."""
        steps.append("inline")

    executor = make_executor(
        make_tool(tool(parallel=not waits_alone)(wait)),
        make_tool(tool(isolation="inline", parallel=waits_alone)(work)),
    )
    run_calls(executor, make_call("wait", id="a"), make_call("work", id="b"), make_call("wait", id="c"))
    assert steps == ["begin", "end", "inline", "begin", "end"]


def test_an_inline_tool_in_a_conversation_is_recorded_as_any_other() -> None:
    """Issue 10: in a turn of the real engine the model gets an inline tool's result, in the log too."""

    @tool(isolation="inline")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    engine = make_engine([reply_with_calls(("add", {"a": 2, "b": 3})), "five"], functions=[add])
    result = engine.run("go")
    assert (result.state, result.content) == ("finished", "five")
    assert result.tool_calls[0]["result"]["result"] == 5


class AsyncCallable:
    """An object whose call is async."""

    __name__ = "async_callable"

    async def __call__(self) -> str:
        """Return a text."""
        return "awaited"


async def return_async() -> str:
    """Return a text."""
    return "awaited"


@pytest.mark.parametrize("function", [return_async, AsyncCallable()])
def test_an_async_function_cannot_run_inline(function: Any) -> None:
    """Issue 10: an async function with isolation inline is an error that says what to do."""
    async_tool = make_tool(function)
    (event,) = run_calls(make_executor(async_tool), make_call(async_tool.name))
    assert event.result["result"] == "awaited"
    function.__toolchart_tool__ = {"isolation": "inline"}
    try:
        with pytest.raises(SpecError, match=r"async and cannot run inline") as caught:
            make_tool(function)
    finally:
        del function.__toolchart_tool__
    assert "leave isolation out" in (caught.value.hint or "")


def test_an_inline_function_with_a_timeout_is_refused() -> None:
    """Issue 10: a timeout that nothing could keep is an error, in the decorator and in the entry."""
    with pytest.raises(SpecError, match="timeout_s cannot hold"):
        make_mode_tool("inline", int, timeout_s=1.0)
    with pytest.raises(SpecError, match="timeout_ms cannot hold"):
        load_entry_tool(name="base", isolation="inline", timeout_ms=100)


def test_an_entry_chooses_where_a_python_function_runs() -> None:
    """Issue 10: `isolation: inline` in the entry makes a Python function inline; an async one is refused."""
    assert load_entry_tool(name="base", isolation="inline").execution_mode == "inline"
    assert load_entry_tool(name="base").execution_mode == "thread"
    with pytest.raises(SpecError, match="cannot run inline"):
        load_entry_tool(
            name="wait", isolation="inline", implementation={"type": "python", "handler": "asyncio:sleep"}
        )


def test_an_entry_that_waits_cannot_be_made_inline() -> None:
    """Issue 10: tools of other types run inline where they do so anyway, else the demand is an error."""
    echo = load_entry_tool(name="echo", isolation="inline", implementation=None)
    assert echo.execution_mode == "inline"
    http = {"type": "http", "method": "GET", "url": "https://shop.example/x"}
    with pytest.raises(SpecError, match="only a Python function can be made to run inline"):
        load_entry_tool(name="find", isolation="inline", implementation=http)


def test_the_schema_of_specs_offers_inline() -> None:
    """Issue 10: editors that read the JSON Schema of specs offer `inline`; other words are refused."""
    (isolation, _) = build_spec_schema()["$defs"]["ToolEntry"]["properties"]["isolation"]["anyOf"]
    assert isolation["enum"] == ["none", "inline", "thread", "process"]
    with pytest.raises(SpecError, match="known: none, inline, thread, process"):
        make_mode_tool("container", int)


def take_plain_values(text: str, number: int, share: float = 0.5, flag: bool = False) -> list[Any]:
    """Return the values."""
    return [text, number, share, flag]


values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None))
arguments_of_plain_types = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(st.characters(codec=None)) | values,
        "number": st.integers() | values,
        "share": st.floats() | values,
        "flag": st.booleans() | values,
        "other": values,
    },
)


@given(arguments=arguments_of_plain_types)
def test_plain_arguments_are_converted_as_the_model_does(arguments: dict[str, Any]) -> None:
    """Issue 10: arguments that need no conversion skip the pydantic model, with the same outcome."""
    runner = PythonRunner(take_plain_values, "take_plain_values")

    def describe_outcome(convert: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
        try:
            return repr(sorted(convert(arguments).items()))
        except ToolFailure as failure:
            return f"failed: {failure}"

    assert describe_outcome(runner.convert_arguments) == describe_outcome(runner._convert_by_model)


def test_a_conversion_that_raises_is_a_failure_of_an_async_tool() -> None:
    """Issue 10: an exception while the arguments of an async tool are converted ends only the call."""

    def refuse(arguments: Any) -> Any:
        raise KeyError("no unit")

    (event,) = run_calls(make_executor(build_tool("odd", refuse, execution_mode="async")), make_call("odd"))
    assert (event.outcome, event.result["error"]) == ("failed", "KeyError: 'no unit'")
