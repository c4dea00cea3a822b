"""Runs a conversation with deadlines in a child process that is killed, and checks that it can be resumed.

In each round the model asks for a call that a person must approve before a deadline. Every second round
somebody approves it, in time or too late. The clock stands still until somebody turns it, and a place of the
kill is a commit, so the outcome does not depend on the speed of the machine.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from killed_process import SCHEMA, append_mark, die_at_commit, read_acknowledged_lines, run_forked
from postgres_database import await_end_of_sessions

from toolchart.engine import Engine, Turn
from toolchart.engine.log.replay import replay
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Decided
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.testing.clock import TurnableClock
from toolchart.tools.definition import Tool

ROUNDS = 4

COMMITS = 14
"""About as many as a conversation has that nobody kills."""

DEADLINE_S = 24 * 3600

CHART: dict[str, Any] = {
    "name": "approval_with_deadline",
    "states": {
        "prompting": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "reviewing", "cond": "finish_reason == 'tool_calls'"},
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        "reviewing": {
            "enter": "review_calls",
            "transitions": [{"event": "reviewed", "target": "awaiting_approval"}],
        },
        "awaiting_approval": {
            "enter": "ask_approval",
            "after": {"24h": "executing"},
            "transitions": [{"event": "decided", "target": "executing"}],
        },
        "executing": {
            "enter": "run_tools",
            "transitions": [{"event": "tool_finished", "target": "prompting", "cond": "pending_calls == 0"}],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}


def _make_reply(request: Request) -> Reply:
    if request.iteration >= ROUNDS:
        return Reply(content="all done", finish_reason="stop")
    mark = f"call{request.iteration}"
    call = ToolCall(id=mark, name="pay", arguments={"mark": mark})
    return Reply(tool_calls=(call,), finish_reason="tool_calls")


def make_engine(log: str, marks: Path, clock: TurnableClock) -> Engine:
    """Make the engine, with the same settings in the child and after the kill."""
    tool = Tool(
        definition=ToolDefinition(name="pay", description="pay", parameters=SCHEMA),
        run=lambda arguments: append_mark(marks, arguments["mark"]),
        requires_approval=True,
        execution_mode="inline",
    )
    spec = {
        "chart": CHART,
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "tools": {},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
    }
    provider = ScriptedProvider([_make_reply] * (ROUNDS * 4))
    return Engine(spec, log=log, functions=[tool], providers={"model": provider}, clock=clock)


def _finish_turn(engine: Engine, result: Turn, clock: TurnableClock, chance: random.Random) -> Turn:
    """Resume until the turn is over; approve the call of every second round, a third of them too late."""
    while not result.is_over:
        call = result.pending_approvals[0]["id"] if result.pending_approvals else ""
        is_approved = call.endswith(("1", "3"))
        is_in_time = is_approved and chance.random() < 2 / 3
        clock.advance(chance.uniform(0.0, 0.9) * DEADLINE_S if is_in_time else DEADLINE_S)
        result = _resume(engine, Decided(call_id=call, approved=True) if is_approved else None)
    return result


def _resume(engine: Engine, decision: Decided | None = None) -> Turn:
    try:
        return engine.conversation("c").resume(decision)
    except IllegalEvent:  # the deadline was first, and recorded
        return engine.conversation("c").resume()


def run_and_kill(
    log: str, marks: Path, seed: int, *, place: int | None = None, delay_s: float | None = None
) -> bool:
    """Run the conversation in a process that dies at a commit or after a time; whether it did."""

    def run() -> None:
        clock = TurnableClock()
        engine = make_engine(log, marks, clock)
        if place is not None:
            die_at_commit(engine, place)
        _finish_turn(engine, engine.run("go", conversation="c"), clock, random.Random(seed))

    return run_forked(run, delay_s)


def check_resume(log: str, marks: Path, seed: int) -> Counter[str]:
    """Resume the killed conversation and check log and marks; count the outcomes.

    The deadline has passed meanwhile in every second turn.
    """
    chance, clock = random.Random(seed), TurnableClock()
    await_end_of_sessions(log)
    engine = make_engine(log, marks, clock)
    acknowledged_lines = read_acknowledged_lines(engine)
    if acknowledged_lines:
        clock = TurnableClock(orjson.loads(acknowledged_lines[-1])["at"])
        clock.advance(chance.choice((1.0, DEADLINE_S)))
        engine.close()
        engine = make_engine(log, marks, clock)
    if len(acknowledged_lines) > 1:
        result = _finish_turn(engine, _resume(engine), clock, chance)
    else:  # killed before the turn was acknowledged: no call has run
        assert not marks.exists()
        result = _finish_turn(engine, engine.run("go", conversation="c"), clock, chance)
    lines = list(engine.store.read_lines("c"))
    engine.close()
    assert lines[: len(acknowledged_lines)] == acknowledged_lines
    assert (result.state, result.content) == ("finished", "all done")
    *_, last = replay(lines, "c")
    outcomes = {call.params["mark"]: call.outcome for call in last.step.snapshot.tracked_calls if call.params}
    assert len(outcomes) == ROUNDS
    _check_timers([orjson.loads(line) for line in lines], outcomes)
    _check_marks(marks, outcomes)
    return Counter(outcomes.values())


def _check_timers(records: list[dict[str, Any]], outcomes: dict[str, Any]) -> None:
    """Each timer has one end: it fired once and never early, or was cancelled with its state."""
    due = {ask["id"]: ask["due"] for record in records for ask in record.get("asks", ()) if "due" in ask}
    elapsed = [record for record in records if record["event"]["type"] == "elapsed"]
    cancelled = {id_ for record in records for id_ in record.get("cancels", ())}
    fired = [record["event"]["effect"] for record in elapsed]
    assert len(due) == ROUNDS
    assert sorted([*fired, *(cancelled & due.keys())]) == sorted(due)
    assert not any(record.get("late") for record in elapsed)
    for record in elapsed:
        at, end = record["at"], due[record["event"]["effect"]]
        assert (datetime.fromisoformat(at) - datetime.fromisoformat(end)).total_seconds() >= -0.002
    assert len(fired) == sum(outcome == "expired" for outcome in outcomes.values())


def _check_marks(marks: Path, outcomes: dict[str, Any]) -> None:
    """A call ran once if it succeeded, at most once if it was interrupted, and never if it expired."""
    counts = Counter(marks.read_text().split()) if marks.exists() else Counter[str]()
    allowed = {"succeeded": (1,), "interrupted": (0, 1), "expired": (0,)}
    for mark, outcome in outcomes.items():
        assert counts[mark] in allowed[outcome], (mark, outcome, counts)
