"""The result of a turn says what happened: errors, limits, cut texts, approvals, and what the log tells."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from agents import make_engine, make_function_tool, reply_with_calls

from toolchart import Decided, Engine, ProviderError, Reply, Request, SpecError, tool
from toolchart.tools.definition import Tool
from toolchart.tools.sources.python import make_tool

LONG = "\n".join(f"line {number} of a text" for number in range(3000))


def make_reader(**options: Any) -> Tool:
    """A tool that returns a long text."""
    return make_function_tool("read", {"type": "object", "properties": {}}, lambda arguments: LONG)


def test_results_are_whole_unless_limits_are_chosen() -> None:
    """Issue 16, S3.6: without `output` the model gets 60,000 characters; with it the cut is told to the
    caller, and the advice names `fetch_result` only where it is offered."""
    replies = [reply_with_calls(("read", {})), "done"]
    with make_engine(replies, functions=[make_reader()]) as engine:
        result = engine.run("read it")
        request = engine.hosts.providers["model"].requests[-1]  # type: ignore[attr-defined]
    assert len(request.messages[-1].content) > len(LONG)
    assert result.warnings == ()
    with make_engine(replies, functions=[make_reader()], output={}) as engine:
        result = engine.run("read it")
        request = engine.hosts.providers["model"].requests[-1]  # type: ignore[attr-defined]
    assert len(request.messages[-1].content) < 2400
    assert "fetch_result" not in request.messages[-1].content
    assert "did not see the whole result of 'read'" in result.warnings[0]
    assert result.tool_calls[0].value == LONG  # the log and the program have all of it


def test_read_file_says_that_there_is_more(tmp_path: Any) -> None:
    """Issue 16: where the limit cuts, `read_file` gives whole lines and says `more: true`."""
    (tmp_path / "long.txt").write_text(LONG, "utf-8")
    tools = {"registry": [{"name": "read_file", "root": str(tmp_path)}]}
    replies = [reply_with_calls(("read_file", {"path": "long.txt"})), "done"]
    with make_engine(replies, tools=tools, output={"listing": 3000}) as engine:
        result = engine.run("read it")
    value = result.tool_calls[0].value
    assert value["more"] is True
    assert LONG.startswith(value["text"])
    assert value["text"].endswith("\n")
    assert 1500 < len(value["text"]) < 3000
    assert result.warnings == ()


@pytest.mark.parametrize(
    ("reason", "words"), [("length", "cut off"), ("content_filter", "filtered"), ("unknown", "not known")]
)
def test_other_finish_reasons_are_warnings(reason: Any, words: str) -> None:
    """S1.15: a cut answer and an unknown finish word are warnings, with the host's own word."""
    reply = Reply(content="half of", finish_reason=reason, native_reason="ODD")
    with make_engine([lambda request: reply]) as engine:
        result = engine.run("hi")
    assert words in result.warnings[0]
    assert "ODD" in result.warnings[0]
    assert "half of" in result.content


def test_default_timeout_holds_for_functions() -> None:
    """S2.8: `default_timeout_ms` ends the call of a function that gives no timeout of its own; one that
    does keeps it, also in the registry."""

    def sleep() -> str:
        """Sleep."""
        time.sleep(5)
        return "late"

    tools = {"default_timeout_ms": 50, "apply_globally": True}
    with make_engine([reply_with_calls(("sleep", {})), "done"], functions=[sleep], tools=tools) as engine:
        (call,) = engine.run("go").tool_calls
    assert call.outcome == "timed_out"
    assert "50 ms" in str(call.error)
    patient = tool(timeout_s=7)(sleep)
    with make_engine(["x"], functions=[patient], tools=tools) as engine:
        assert engine.tools.registry.get("sleep").timeout_s == 7  # type: ignore[union-attr]


def test_default_settings_retry_a_503() -> None:
    """S3.3: a spec that names no chart and no retry asks again after a 503."""
    attempts = []

    def fail_once(request: Request) -> Reply:
        attempts.append(request)
        if len(attempts) == 1:
            raise ProviderError(kind="overloaded", message="busy", status=503, retryable=True)
        return Reply(content="ok", finish_reason="stop")

    with make_engine([fail_once, fail_once], chart=None, retry={"first_wait_s": 0}) as engine:
        result = engine.run("hi")
    assert (result.ok, result.content, len(attempts)) == (True, "ok", 2)


def test_each_request_is_in_the_debug_log(caplog: pytest.LogCaptureFixture) -> None:
    """S3.11, S4.1: a debug line of each request names model, tools and tool choice, and no text."""
    responses = [{"llm": "model", "prompt": "SECRET", "tools": {"enabled": True}, "tool_choice": "required"}]
    replies = [reply_with_calls(("echo", {"text": "a"})), "done"]
    with caplog.at_level(logging.DEBUG, "toolchart"), make_engine(replies, responses=responses) as engine:
        engine.run("PRIVATE")
    lines = [record.getMessage() for record in caplog.records if "request" in record.getMessage()]
    assert len(lines) == 2
    assert "tools: calculator, echo, weather; tool_choice: required" in lines[0]
    assert "SECRET" not in str(lines)
    assert "PRIVATE" not in str(lines)


def test_a_rejected_call_is_told_as_not_executed() -> None:
    """Issue 16, S5.3: the model hears that the call was not executed, and then the person's reason."""
    rules = [{"tools": "echo", "decision": "ask"}]
    replies = [reply_with_calls(("echo", {"text": "a"})), "ok"]
    with make_engine(replies, approval=rules) as engine:
        (pending,) = engine.run("go", conversation="c").pending_approvals
        assert (pending.tool, pending.params, pending["tool"]) == ("echo", {"text": "a"}, "echo")
        with pytest.raises(KeyError):
            pending["tol"]
        engine.conversation("c").resume(Decided(call_id=pending.id, approved=False, reason="not on a Friday"))
        request = engine.hosts.providers["model"].requests[-1]  # type: ignore[attr-defined]
    assert "not executed: not on a Friday" in request.messages[-1].content


def test_max_repeats_of_two_lets_two_calls_run() -> None:
    """Issue 16: with `max_repeats: 2` in the default chart the third identical call does not run."""
    runs: list[str] = []

    def look(city: str) -> str:
        """Look at a city."""
        runs.append(city)
        return "rain"

    replies = [*[reply_with_calls(("look", {"city": "Rome"}))] * 3, "rain"]
    limits = {"max_repeats": 2, "max_iterations": 9, "max_tool_only_streak": 9}
    with make_engine(replies, chart=None, functions=[look], limits=limits) as engine:
        result = engine.run("go")
    assert runs == ["Rome", "Rome"]
    assert result.tool_calls[-1].outcome == "skipped"


def test_tool_objects_are_converted_once() -> None:
    """S4.3: each function becomes a tool once, when the engine is made; every request has that value."""
    replies = [reply_with_calls(("echo", {"text": "a"})), "done", "again"]
    with make_engine(replies, functions=[make_tool(pick)]) as engine:
        engine.run("one", conversation="c")
        engine.run("two", conversation="c")
        requests = engine.hosts.providers["model"].requests  # type: ignore[attr-defined]
        definition = engine.tools.registry.get("pick").definition  # type: ignore[union-attr]
    offered = [next(t for t in request.tools if t.name == "pick") for request in requests]
    assert len(offered) == 3
    assert offered[0] == definition
    assert all(one is offered[0] for one in offered)


def pick(number: int) -> int:
    """Return a number."""
    return number


def test_thoughts_in_the_text_are_not_parsed() -> None:
    """S4.4: on a native host an answer that looks like thoughts, calls or actions is only text."""
    text = 'Thought: I should act.\nAction: echo\nAction Input: {"text": "a"}\n[TOOL_CALL:x]{}[/TOOL_CALL:x]'
    with make_engine([text]) as engine:
        result = engine.run("go")
    assert (result.content, result.tool_calls, result.ok) == (text, [], True)


def test_the_result_has_its_parts() -> None:
    """Issue 16: `ok`, `cost`, `usage`, `conversation` and typed calls stand in the result."""
    prices = {"currency": "EUR", "models": {"m": {"input": 1.0, "output": 2.0}}}
    usage = {"input": 1_000_000, "output": 500_000}
    replies = [{"content": "hi", "usage": usage}]
    with make_engine(replies, prices=prices) as engine:
        result = engine.run("go", conversation="c")
    assert (result.ok, result.conversation, result.error) == (True, "c", None)
    assert result.usage.input == 1_000_000
    assert result.cost == pytest.approx(2.0)


def test_a_missing_spec_is_no_result() -> None:
    """A spec that does not exist is an error at once, and not a failed turn."""
    with pytest.raises(SpecError, match="no agent spec"):
        Engine("nothing-like-that", log="memory")
