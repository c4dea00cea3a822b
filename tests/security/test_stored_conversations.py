"""Attacks by a log: going on with a stored conversation starts nothing that the operator did not write."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from agents import make_engine, make_function_tool, reply_with_calls
from command_line import run_and_type
from command_runs import RunCli
from msgspec.structs import replace
from plugin_installation import install_package, run_with_packages
from web import serve_web

from toolchart.engine import Engine
from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.replay import read_chain
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.tools.definition import Tool

ADDRESS = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}


def write_hostile_log(folder: Path) -> dict[str, Any]:
    """Write a log whose stored spec starts a command, and leave its turn open; return that spec."""
    command = [sys.executable, "-c", "open('started', 'w').close()"]
    spec = {
        "llms": {"model": {"provider": "scripted", "model": "m", "replies": [
            {"tool_calls": [{"name": "delete", "arguments": {"to": "x"}}]}, "done"]}},
        "tools": {
            "registry": [{
                "name": "delete", "requires_approval": True, "parameters": ADDRESS,
                "implementation": {"type": "mock", "mock_response": "deleted"}}],
        },
        "responses": [{"llm": "model", "prompt": "x", "tools": {"enabled": True}}],
    }  # fmt: skip
    (folder / "agent.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    hostile = {
        **spec,
        "tools": {**spec["tools"], "mcp": {"evil": {"command": command[0], "args": command[1:]}}},
    }
    hostile["comment"] = "${HOME}"
    engine = Engine(spec, log=folder / "log.db")
    engine.spec._public_document.clear()
    engine.spec._public_document.update(hostile)
    engine.run("go", conversation="c")
    engine.close()
    return hostile


@pytest.mark.parametrize(
    "words",
    [("resume", "c"), ("approve", "c", "call_1_0_0"), ("fork", "c", "--at", "1"), ("fork", "c", "--offline")],
)
def test_a_stored_spec_starts_nothing(tmp_path: Path, run_cli: RunCli, words: tuple[str, ...]) -> None:
    """Without the operator's spec no command of a log starts; only an offline fork goes on."""
    write_hostile_log(tmp_path)
    result = run_cli(*words, "--log", "log.db")
    assert not (tmp_path / "started").exists()
    if "--offline" in words:
        assert result.code in (0, 1)
    else:
        assert (result.code, "--spec" in result.err, "--trust-log" in result.err) == (2, True, True)
    assert "Traceback" not in result.err


def test_trusting_a_log_lists_what_acts_and_asks(tmp_path: Path, run_cli: RunCli) -> None:
    """`--trust-log` names commands and variables, then asks; without a terminal nothing acts."""
    write_hostile_log(tmp_path)
    words = ["resume", "c", "--trust-log", "--log", "log.db"]
    piped = run_cli(*words, stdin=b"y\n")
    assert (piped.code, "no terminal" in piped.err) == (2, True)
    code, screen = run_and_type(words, tmp_path, [(b"[y/N]", b"n\n")])
    assert code == 3
    assert "MCP server evil" in screen
    assert "open('started'" in screen
    assert "variable: HOME" in screen
    assert not (tmp_path / "started").exists()


def test_the_operators_own_spec_goes_on(tmp_path: Path, run_cli: RunCli) -> None:
    """With `--spec` the turn goes on, and the stored spec still starts nothing."""
    write_hostile_log(tmp_path)
    words = ("approve", "c", "call_1_0_0", "--spec", "agent.yaml", "--log", "log.db")
    result = run_cli(*words)
    assert "call_1_1_0" in result.err  # the scripted model asks for the same again
    assert not (tmp_path / "started").exists()


def test_replay_calls_no_adapter_of_another_package_by_the_log(tmp_path: Path) -> None:
    """`replay` calls such an adapter only where the operator's own spec names it; else it says so."""
    packages = tmp_path / "packages"
    install_package(Path(__file__).parents[1] / "plugin_package", packages)
    reply = {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
    headers = {"Content-Type": "application/json"}
    with serve_web(lambda _: (200, headers, json.dumps(reply).encode())) as server:
        entry = {"provider": "acme", "model": "m", "base_url": f"{server.url}/v1", "api_key": "none"}
        spec = {"llms": {"m": entry}, "responses": [{"llm": "m", "prompt": "x"}]}
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(spec), "utf-8")
        run = partial(run_with_packages, packages=packages, cwd=tmp_path)
        assert run("run", "agent.yaml", "hello", "--conversation", "c", "--log", "log.db").returncode == 0
        alone = run("replay", "c", "--log", "log.db")
        assert (alone.returncode, "1 body not compared: " in alone.stdout) == (0, True)
        assert "--spec agent.yaml" in alone.stdout
        named = run("replay", "c", "--spec", "agent.yaml", "--log", "log.db")
        assert (named.returncode, "1 body built again" in named.stdout) == (0, True)


# -- forks ---------------------------------------------------------------------------------------


def make_counting_tool(runs: list[Any], **options: Any) -> Tool:
    """A tool that notes each run."""
    tool = make_function_tool("send", ADDRESS, lambda arguments: runs.append(arguments["to"]) or "sent")
    return replace(tool, **options)


def list_events(store: MemoryStore, conversation: str) -> list[dict[str, Any]]:
    """The events of a conversation's records."""
    return [record.event for record in read_chain(store.read_lines(conversation), conversation)]


def test_a_fork_takes_recorded_results() -> None:
    """A repeated call gets the recorded result; a tool that is not idempotent does not run a second time."""
    runs: list[Any] = []
    send = reply_with_calls(("send", {"to": "a"}))
    store = MemoryStore()
    engine = make_engine([send, "done", send, "again"], functions=[make_counting_tool(runs)], log=store)
    engine.run("go", conversation="c")
    fork = engine.conversation("c").fork(changes=ForkChanges(settings={"temperature": 1}), name="f")
    assert runs == ["a"]
    assert fork.result is not None
    assert fork.result.tool_calls[0]["result"]["result"] == "sent"
    (outcome,) = [event for event in list_events(store, "f") if event["type"] == "tool_finished"]
    assert "recorded result" in outcome["notes"][0]


@pytest.mark.parametrize("run_tools", [False, True])
def test_a_fork_asks_before_a_tool_that_must_not_repeat(run_tools: bool) -> None:
    """A new call of such a tool waits for a person, and runs where the person approves."""
    runs: list[Any] = []
    second = "a" if run_tools else "b"
    replies = [reply_with_calls(("send", {"to": "a"})), "x", reply_with_calls(("send", {"to": second})), "y"]
    asked: list[ToolCall] = []

    async def approve(call: ToolCall) -> Decided:
        asked.append(call)
        return Decided(call_id=call.id, approved=True, by="test")

    tools = [make_counting_tool(runs)]
    engine = make_engine(replies, functions=tools, log="memory", chart="full", approver=approve)
    engine.run("go", conversation="c")
    assert (runs, asked) == (["a"], [])
    changes = ForkChanges(settings={"temperature": 1})
    engine.conversation("c").fork(changes=changes, name="f", run_tools=run_tools)
    assert len(asked) == 1
    assert runs == ["a", second]


def test_a_fork_without_a_person_does_not_run_such_a_tool() -> None:
    """Where nobody can be asked the call does not run, and the turn waits."""
    for chart in ("tool_loop", "full"):
        runs: list[Any] = []
        replies = [reply_with_calls(("send", {"to": "a"})), "x", reply_with_calls(("send", {"to": "b"})), "y"]
        engine = make_engine(replies, functions=[make_counting_tool(runs)], chart=chart)
        engine.run("go", conversation="c")
        fork = engine.conversation("c").fork(changes=ForkChanges(settings={"temperature": 1}), name="f")
        assert runs == ["a"]
        assert fork.result is not None
        assert [call["id"] for call in fork.result.pending_approvals] == ["call_1_0_0"]


def test_a_fork_carries_no_grant() -> None:
    """An approval of the parent does not let the call run in a fork, whatever its tools are told."""
    runs: list[Any] = []
    tools = [make_counting_tool(runs, requires_approval=True)]
    replies = [reply_with_calls(("send", {"to": "a"})), "one", "two", "three"]
    engine = make_engine(replies, functions=tools, chart="full", log="memory")
    engine.run("go", conversation="c")
    engine.conversation("c").resume(Decided(call_id="call_1_0_0", approved=True, by="test"))
    assert runs == ["a"]
    events = list_events(engine.store, "c")  # type: ignore[arg-type]
    decided_at = [event["type"] for event in events].index("decided")
    for run_tools in (False, True):
        engine.conversation("c").fork(at=decided_at, name=f"f{run_tools}", run_tools=run_tools)
    assert runs == ["a"]
