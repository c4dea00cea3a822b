"""A conversation whose tools leave marks on the disk, run in a child that is killed at some instant."""

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
from toolchart.engine.log.verify import Verified, verify_store
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import LogConflict
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.definition import Tool

ROUNDS = 5
SCHEMA = {"type": "object", "properties": {"mark": {"type": "string"}}, "required": ["mark"]}


def mark(path: Path, text: str) -> None:
    """Append one synced line."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{text}\n".encode())
    os.fsync(handle)
    os.close(handle)


def reply(request: Request) -> Reply:
    """Two calls a round, one of a tool that may be repeated and one that may not."""
    if request.iteration >= ROUNDS:
        return Reply(content="all done", finish_reason="stop")
    calls = tuple(
        ToolCall(
            id=f"{name}{request.iteration}",
            name=name,
            arguments={"mark": f"{name}{request.iteration}"},
        )
        for name in ("once", "often")
    )
    return Reply(tool_calls=calls, finish_reason="tool_calls")


def engine(log: str, marks: Path) -> Engine:
    """The engine; the same in the child, in the parent and after the kill."""

    def run(arguments: Any) -> str:
        mark(marks, arguments["mark"])
        return "marked"

    tools = [
        Tool(
            definition=ToolDefinition(name=name, description=name, parameters=SCHEMA),
            run=run,
            idempotent=name == "often",
        )
        for name in ("once", "often")
    ]
    spec = {
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "tools": {"max_iterations": ROUNDS + 1},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
    }
    provider = ScriptedProvider([reply] * (ROUNDS * 4))
    return Engine(spec, log=log, functions=tools, providers={"model": provider})


def _child(log: str, marks: Path) -> None:
    engine(log, marks).run("go", conversation="c")
    os._exit(0)


def run_and_kill(log: str, marks: Path, delay_s: float) -> bool:
    """Run in a child and kill it after a while; whether it was still running."""
    child = multiprocessing.get_context("fork").Process(target=_child, args=(log, marks))
    child.start()
    time.sleep(delay_s)
    alive = child.is_alive()
    if alive and child.pid is not None:
        os.kill(child.pid, signal.SIGKILL)
    child.join()
    return alive


def _resumed(run: Engine) -> TurnResult:
    """Resume; once more where the dead process's last commit was still under way in the server."""
    try:
        return run.resume("c")
    except LogConflict:
        time.sleep(0.2)
        return run.resume("c")


def check(log: str, marks: Path) -> int:
    """Resume what was killed and look at everything; how many calls were interrupted."""
    run = engine(log, marks)
    acknowledged = list(run.store.read("c"))
    assert all(isinstance(found, Verified) for found in verify_store(run.store))
    if acknowledged and len(acknowledged) > 1:
        result = _resumed(run)
    else:  # killed before the turn was acknowledged: nothing had happened yet
        assert not marks.exists()
        result = run.run("go", conversation="c")
    lines = list(run.store.read("c"))
    run.close()
    assert lines[: len(acknowledged)] == acknowledged
    assert (result.state, result.content) == ("finished", "all done")
    assert sum(1 for _ in replay(lines, "c")) == len(lines)
    outcomes = {
        event["call_id"]: event["outcome"]
        for event in (json.loads(line)["event"] for line in lines)
        if event["type"] == "tool_finished"
    }
    assert len(outcomes) == ROUNDS * 2
    seen = Counter(marks.read_text().split())
    for call, outcome in outcomes.items():
        if call.startswith("once"):
            assert seen[call] == 1 if outcome == "succeeded" else seen[call] <= 1
        else:
            assert outcome == "succeeded"
            assert seen[call] >= 1
    return sum(outcome == "interrupted" for outcome in outcomes.values())
