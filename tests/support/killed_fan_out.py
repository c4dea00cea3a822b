"""Runs a fan-out over child agents in a process that is killed, and checks that it can be resumed.

Every child calls one tool that may not run twice; each call appends a line (a mark) to a file.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from child_agents import make_parent_chart, make_spec
from killed_process import SCHEMA, append_mark, die, run_forked

from toolchart.engine import Engine
from toolchart.engine.log.family import iterate_family
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.core.step import Step
from toolchart.states.events import AgentAnswering, Event
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.definition import Tool

ITEMS = [f"item{number}" for number in range(8)]


def make_engine(log: str, marks: Path, die_at: str | None = None) -> Engine:
    """The engine, with the same settings before and after the kill.

    Args:
        die_at: where the process kills itself: `answer3` as the parent gets the third answer, before its
            record is written; the mark of an item after its tool ran.
    """
    answers = 0

    def die_as(place: str) -> None:
        if place == die_at:
            die()

    def write_mark(arguments: Any) -> str:
        append_mark(marks, arguments["mark"])
        die_as(arguments["mark"])
        return "marked"

    def answer(request: Request) -> Reply:
        said = request.messages[-1]
        if said.role == "tool":
            return Reply(content=f"did {find_words(request)}", finish_reason="stop")
        call = ToolCall(id="once", name="once", arguments={"mark": find_words(request)})
        return Reply(tool_calls=(call,), finish_reason="tool_calls")

    def observe(event: Event, step: Step) -> None:
        nonlocal answers
        if isinstance(event, AgentAnswering):
            answers += 1
            die_as(f"answer{answers}")

    run_agent = {
        "chart": "tool_loop",
        "for_each": "items",
        "parallel": 3,
        "message": "{{item}}",
        "at_most": 20,
        "as": "outcome",
    }
    spec = make_spec(
        make_parent_chart(),
        {"work": {"run_agent": run_agent}, "publish": {"answer": "{{outcome}}"}},
        tools={"enabled": True, "apply_globally": True},
    )
    definition = ToolDefinition(name="once", description="once", parameters=SCHEMA)
    tool = Tool(definition=definition, run=write_mark, execution_mode="inline")
    provider = ScriptedProvider([answer] * 100)
    return Engine(spec, log=log, functions=[tool], providers={"model": provider}, observer=observe)


def find_words(request: Request) -> str:
    """The user's words in a request."""
    return next(message.content or "" for message in request.messages if message.role == "user")


def run_and_kill(log: str, marks: Path, delay_s: float | None, die_at: str | None = None) -> bool:
    """Run the fan-out in a process that is killed after some seconds, or kills itself; whether it was."""
    variables = {"items": ITEMS}
    return run_forked(
        lambda: make_engine(log, marks, die_at).run("go", conversation="c", variables=variables), delay_s
    )


def check_resume(log: str, marks: Path) -> int:
    """Resume and check: every item is answered once, in order, and no tool ran twice.

    Returns:
        The number of children that had ended before.
    """
    with make_engine(log, marks) as engine:
        if engine.store.read_last_line("c") is None:
            engine.run("go", conversation="c", variables={"items": ITEMS})
        result = engine.conversation("c").resume()
        assert result.is_over
        entries = result.results["outcome"]["items"]
        assert [entry["content"] for entry in entries] == [f"did {item}" for item in ITEMS]
        counts = Counter(marks.read_text().split())
        assert set(counts) <= set(ITEMS)
        assert set(counts.values()) == {1}
        names = [name for _, name in iterate_family(engine.store, "c")]
        assert names == ["c", *(f"c.1.{number}" for number in range(len(ITEMS)))]
        assert all(isinstance(outcome, VerifiedConversation) for outcome in verify_store(engine.store))
        for name in names:
            started = [step.record.event["type"] for step in replay_conversation(engine.store, name)]
            assert started.count("turn_started") == 1
        records = list(read_conversation(engine.store, "c"))
        answered = [record.event.get("item", 0) for record in records if "head" in record.event]
        assert sorted(answered) == list(range(len(ITEMS)))
        resumed = next((r.seq for r in records if r.event_type == "resumed"), len(records))
        return sum("head" in record.event for record in records[:resumed])
