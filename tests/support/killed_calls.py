"""Runs two tool calls in each round in a process that is killed, and checks that it can be resumed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from killed_process import SCHEMA, append_mark, die, read_acknowledged_lines, run_forked
from postgres_database import await_end_of_sessions

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.engine.runtime.wire_replay import WireComparison
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.core.step import Step
from toolchart.states.events import Event
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.definition import Tool

ROUNDS = 5
TOOLS = ("once", "often")


EARLY_CHART = {
    "name": "early",
    "extends": "tool_loop",
    "states": {
        "executing": {
            "transitions": [{"event": "tool_finished", "target": "prompting", "cond": "pending_calls > 0"}]
        }
    },
}
"""The first finished tool leaves `executing`, so the other call of the reply is cancelled while it runs."""


def make_reply(request: Request) -> Reply:
    """Make a reply with two calls: one of a tool that may be repeated and one of a tool that may not."""
    if request.iteration >= ROUNDS:
        return Reply(content="all done", finish_reason="stop")
    calls = tuple(
        ToolCall(id=f"{name}{request.iteration}", name=name, arguments={"mark": f"{name}{request.iteration}"})
        for name in TOOLS
    )
    return Reply(tool_calls=calls, finish_reason="tool_calls")


def make_engine(log: str, marks: Path, die_at: str | None = None, *, early: bool = False) -> Engine:
    """Make the engine, with the same settings in the child, in the parent and after the kill.

    Args:
        die_at: where the process kills itself: after the mark of this text, before the call has its outcome;
            `request2`: as the model is asked in iteration 2; `cancel2`: as the second cancellation is
            derived, before its record is written.
        early: whether the chart leaves `executing` with the first outcome; the tools run side by side then.
    """
    cancel_count = 0

    def die_as(place: str) -> None:
        if place == die_at:
            die()

    both_run = threading.Barrier(2, timeout=60)

    def write_mark(arguments: Any) -> str:
        if early and die_at is not None:
            both_run.wait()  # else the first outcome could cancel the call that is to die before it runs
            name, number = die_at[:-1], die_at[-1]
            if name in TOOLS and arguments["mark"] != die_at and arguments["mark"].endswith(number):
                threading.Event().wait()
        elif early:
            time.sleep(random.uniform(0.0, 0.003))
        append_mark(marks, arguments["mark"])
        die_as(arguments["mark"])
        if early:
            time.sleep(random.uniform(0.0, 0.003))
        return "marked"

    def answer(request: Request) -> Reply:
        die_as(f"request{request.iteration}")
        return make_reply(request)

    def observe(event: Event, step: Step) -> None:
        nonlocal cancel_count
        if step.cancels:
            cancel_count += 1
            die_as(f"cancel{cancel_count}")

    tools = [
        Tool(
            definition=ToolDefinition(name=name, description=name, parameters=SCHEMA),
            run=write_mark,
            idempotent=name == "often",
            execution_mode="thread" if early else "inline",
        )
        for name in TOOLS
    ]
    spec = {
        "chart": EARLY_CHART if early else "tool_loop",
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "tools": {"max_iterations": ROUNDS + 1},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
    }
    provider = ScriptedProvider([answer] * (ROUNDS * 4))
    return Engine(spec, log=log, functions=tools, providers={"model": provider}, observer=observe)


def run_and_kill(log: str, marks: Path, delay_s: float, *, early: bool = False) -> bool:
    """Run the conversation in a process and kill it after `delay_s` seconds; whether it was still running."""
    return run_forked(lambda: make_engine(log, marks, early=early).run("go", conversation="c"), delay_s)


def run_until_mark(log: str, marks: Path, die_at: str, *, early: bool = False) -> None:
    """Run the conversation in a process that kills itself at `die_at`."""
    assert run_forked(lambda: make_engine(log, marks, die_at, early=early).run("go", conversation="c"))


def check_resume(log: str, marks: Path, *, early: bool = False) -> int:
    """Resume the killed conversation and check log and marks; return the number of interrupted calls."""
    await_end_of_sessions(log)
    engine = make_engine(log, marks, early=early)
    acknowledged_lines = read_acknowledged_lines(engine)
    if len(acknowledged_lines) > 1:
        result = engine.conversation("c").resume()
    else:  # killed before the turn was acknowledged: no call has run
        assert not marks.exists()
        result = engine.run("go", conversation="c")
    lines = list(engine.store.read_lines("c"))
    engine.close()
    assert lines[: len(acknowledged_lines)] == acknowledged_lines
    assert (result.state, result.content) == ("finished", "all done")
    outcomes = _list_outcomes(lines)
    assert len(outcomes) == ROUNDS * 2
    mark_counts = Counter(marks.read_text().split())
    for call, outcome in outcomes.items():
        if call.startswith("once"):
            assert mark_counts[call] == 1 if outcome == "succeeded" else mark_counts[call] <= 1
        elif outcome == "succeeded":
            assert mark_counts[call] >= 1
        else:
            assert early
        assert outcome in ("succeeded", "interrupted")
    return sum(outcome == "interrupted" for outcome in outcomes.values())


def _list_outcomes(lines: list[bytes]) -> dict[str, str]:
    """The outcome of each call by its mark, from a log that verifies and replays with its bodies.

    Each call has one message for the model, and the model answered once in each round.
    """
    comparison = WireComparison()
    *_, last = steps = list(comparison.compare_steps(replay(lines, "c")))
    assert len(steps) == len(lines)
    assert comparison.bodies == ROUNDS + 1
    snapshot = last.step.snapshot
    answered_ids = [message.tool_call_id for message in snapshot.messages if message.role == "tool"]
    calls = snapshot.tracked_calls
    assert sorted(call.params["mark"] for call in calls if call.params) == sorted(filter(None, answered_ids))
    return {call.params["mark"]: call.outcome for call in calls if call.params}
