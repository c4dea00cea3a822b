"""Logs that a test writes event by event, through the core and the journal, without an engine."""

from __future__ import annotations

import asyncio
from typing import Any

from toolchart.engine.log.continuation.checkpoint import CheckpointBasis
from toolchart.engine.log.continuation.versions import build_versions, encode_texts
from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.record import FORMAT, GENESIS, Journal
from toolchart.engine.log.replay import ReplayedConversation
from toolchart.specs.charts import load_chart
from toolchart.states.core.encoding import make_plain_event
from toolchart.states.core.step import Step, step
from toolchart.states.events import (
    Configured,
    Event,
    Replied,
    Reviewed,
    Settings,
    ToolFinished,
    TurnStarted,
    Verdict,
)
from toolchart.states.machine import get_machine
from toolchart.states.messages import Reply, ToolCall, ToolDefinition
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

ADD = ToolDefinition(name="add", description="Add two numbers.")
CHART = load_chart("tool_loop")
SETTINGS = Settings(service="s", provider="scripted", model="m", tools=("add",))
AT = "2026-01-01T00:00:00.000Z"


class WrittenLog:
    """A conversation that goes on event by event; each event is committed unless `commit=False`.

    Args:
        loaded: a conversation to go on with.
    """

    def __init__(self, store: Store, name: str = "c", *, loaded: ReplayedConversation | None = None) -> None:
        self.store, self.name = store, name
        self.machine = loaded.machine if loaded else get_machine(CHART)
        self.snapshot = loaded.snapshot if loaded else Snapshot()
        self.journal = Journal(
            GroupCommit(store),
            name,
            seq=loaded.next_seq if loaded else 0,
            prev=loaded.head if loaded else GENESIS,
            basis=loaded.basis if loaded else CheckpointBasis(),
        )

    def apply_event(self, event: Event, *, commit: bool = True) -> Step:
        """Make one step and append its record."""
        event, data = make_plain_event(event)
        new_step = step(self.machine, self.snapshot, event)
        self.journal.add_record(data, new_step)
        self.snapshot = new_step.snapshot
        if commit:
            asyncio.run(self.journal.commit())
        return new_step

    def configure(self, **changes: Any) -> Step:
        """Append a `configured` record."""
        return self.apply_event(make_configured_event(self.name, **changes))

    def start_turn(self, message: str = "1 + 2?", **changes: Any) -> Step:
        """Open a turn."""
        return self.apply_event(TurnStarted(at=AT, message=message, settings=SETTINGS, **changes))

    def call_tool(self, call_id: str, result: Any = 3, *, commit: bool = True) -> Step:
        """One iteration: the model calls the tool, and the tool answers."""
        call = ToolCall(id=call_id, name="add", arguments={"call": call_id})
        self.apply_event(
            Replied(at=AT, reply=Reply(finish_reason="tool_calls", tool_calls=(call,))), commit=False
        )
        self.apply_event(Reviewed(at=AT, verdicts=(Verdict(call_id=call_id, ruling="run"),)), commit=False)
        return self.finish_tool(call_id, result, commit=commit)

    def finish_tool(self, call_id: str, result: Any = 3, *, commit: bool = True) -> Step:
        """The tool answers."""
        content = {"success": True, "result": result, "tool_name": "add", "execution_time_ms": 0.1}
        outcome = ToolFinished(at=AT, call_id=call_id, outcome="succeeded", result=content)
        return self.apply_event(outcome, commit=commit)

    def end_turn(self, content: str = "3") -> Step:
        """The model answers."""
        return self.apply_event(Replied(at=AT, reply=Reply(content=content, finish_reason="stop")))

    def run_turns(self, count: int, calls: int = 1) -> None:
        """Whole turns with tool calls."""
        for _ in range(count):
            self.start_turn()
            for index in range(calls):
                self.call_tool(f"c{self.journal.next_seq}_{index}")
            self.end_turn()


def make_configured_event(name: str = "c", **changes: Any) -> Configured:
    """The `configured` event of this chart and tool, with the versions of this release."""
    fields: dict[str, Any] = {
        "at": AT,
        "format": FORMAT,
        "conversation": name,
        "chart": CHART.to_yaml(),
        "spec": {},
        "tools": (ADD,),
        "texts": encode_texts(),
        "versions": build_versions((ADD,), {"add": "0" * 32}),
    }
    return Configured(**{**fields, **changes})


def write_conversation(store: Store, turns: int = 2, *, calls: int = 1, name: str = "c") -> WrittenLog:
    """A conversation of some turns, at rest."""
    log = WrittenLog(store, name)
    log.configure()
    log.run_turns(turns, calls)
    return log
