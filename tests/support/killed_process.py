"""Runs a conversation in a child process that is killed, and checks that it can be resumed.

Every tool call appends a line (a mark) to a file, which shows how often the call ran.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from toolchart.engine import Engine, TurnResult
from toolchart.engine.log.replay import replay
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import LogConflict
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.definition import Tool

ROUNDS = 5
SCHEMA = {"type": "object", "properties": {"mark": {"type": "string"}}, "required": ["mark"]}


def append_mark(path: Path, text: str) -> None:
    """Append a line to a file and sync it."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{text}\n".encode())
    os.fsync(handle)
    os.close(handle)


def make_reply(request: Request) -> Reply:
    """Make a reply with two calls: one of a tool that may be repeated and one of a tool that may not."""
    if request.iteration >= ROUNDS:
        return Reply(content="all done", finish_reason="stop")
    calls = tuple(
        ToolCall(id=f"{name}{request.iteration}", name=name, arguments={"mark": f"{name}{request.iteration}"})
        for name in ("once", "often")
    )
    return Reply(tool_calls=calls, finish_reason="tool_calls")


def make_engine(log: str, marks: Path, die_at: str | None = None) -> Engine:
    """Make the engine, with the same settings in the child, in the parent and after the kill.

    Args:
        die_at: the mark after which the process kills itself, before the call has its outcome.
    """

    def write_mark(arguments: Any) -> str:
        append_mark(marks, arguments["mark"])
        if arguments["mark"] == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return "marked"

    tools = [
        Tool(
            definition=ToolDefinition(name=name, description=name, parameters=SCHEMA),
            run=write_mark,
            idempotent=name == "often",
        )
        for name in ("once", "often")
    ]
    spec = {
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "tools": {"max_iterations": ROUNDS + 1},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
    }
    provider = ScriptedProvider([make_reply] * (ROUNDS * 4))
    return Engine(spec, log=log, functions=tools, providers={"model": provider})


def _run_in_child(log: str, marks: Path, die_at: str | None) -> None:
    make_engine(log, marks, die_at).run("go", conversation="c")
    os._exit(0)


def run_and_kill(log: str, marks: Path, delay_s: float) -> bool:
    """Run the conversation in a child and kill it after `delay_s` seconds; whether it was still running."""
    child = _start_child(log, marks, None)
    time.sleep(delay_s)
    alive = child.is_alive()
    if alive and child.pid is not None:
        os.kill(child.pid, signal.SIGKILL)
    child.join()
    return alive


def run_until_mark(log: str, marks: Path, die_at: str) -> None:
    """Run the conversation in a child that is killed inside the call which writes the mark `die_at`."""
    child = _start_child(log, marks, die_at)
    child.join()
    assert child.exitcode == -signal.SIGKILL


def _start_child(log: str, marks: Path, die_at: str | None) -> multiprocessing.process.BaseProcess:
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_run_in_child, args=(log, marks, die_at))
    child.start()
    return child


def _resume(engine: Engine) -> TurnResult:
    """Resume; try again if the last commit of the dead process was still in progress in the server."""
    try:
        return engine.resume("c")
    except LogConflict:
        time.sleep(0.2)
        return engine.resume("c")


def check_resume(log: str, marks: Path) -> int:
    """Resume the killed conversation and check log and marks; return the number of interrupted calls."""
    engine = make_engine(log, marks)
    acknowledged_lines = list(engine.store.read_lines("c"))
    assert all(isinstance(verdict, VerifiedConversation) for verdict in verify_store(engine.store))
    if acknowledged_lines and len(acknowledged_lines) > 1:
        result = _resume(engine)
    else:  # killed before the turn was acknowledged: no call has run
        assert not marks.exists()
        result = engine.run("go", conversation="c")
    lines = list(engine.store.read_lines("c"))
    engine.close()
    assert lines[: len(acknowledged_lines)] == acknowledged_lines
    assert (result.state, result.content) == ("finished", "all done")
    assert sum(1 for _ in replay(lines, "c")) == len(lines)
    outcomes = {
        event["call_id"]: event["outcome"]
        for event in (json.loads(line)["event"] for line in lines)
        if event["type"] == "tool_finished"
    }
    assert len(outcomes) == ROUNDS * 2
    mark_counts = Counter(marks.read_text().split())
    for call, outcome in outcomes.items():
        if call.startswith("once"):
            assert mark_counts[call] == 1 if outcome == "succeeded" else mark_counts[call] <= 1
        else:
            assert outcome == "succeeded"
            assert mark_counts[call] >= 1
    return sum(outcome == "interrupted" for outcome in outcomes.values())
