"""A conversation of the pure core that a test leads event by event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.engine.log.record import FORMAT
from toolchart.specs.charts import load_chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.core.step import Step, begin, step
from toolchart.states.effects import Effect
from toolchart.states.events import (
    CallsStarted,
    Configured,
    Decided,
    Event,
    Failed,
    Limits,
    Replied,
    Reviewed,
    Ruling,
    Settings,
    ToolFinished,
    TurnStarted,
    Verdict,
)
from toolchart.states.machine import Machine
from toolchart.states.messages import Reply, ToolCall, ToolDefinition
from toolchart.states.snapshot import Snapshot

TOOL = ToolDefinition(name="look_up", description="Look something up.")


class Conversation:
    """A conversation of one chart, led event by event; `last` is the newest step.

    Args:
        states: those of the chart, or the name of one that ships.
        effects: that the chart declares.
    """

    def __init__(
        self,
        states: dict[str, Any] | str,
        *,
        effects: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        **limits: Any,
    ) -> None:
        document = {"name": "n", "states": states, "effects": dict(effects or {})}
        self.machine = Machine(load_chart(states) if isinstance(states, str) else make_chart(document))
        self.limits, self.options = Limits(**limits), dict(options or {})
        configured = Configured(format=FORMAT, conversation="c", chart="", spec={}, tools=(TOOL,))
        self.snapshot: Snapshot = begin(configured)
        self.start()

    def start(self, message: str = "Where?") -> Step:
        """The user begins a turn."""
        settings = Settings(
            service="s", provider="p", model="m", tools=(TOOL.name,), limits=self.limits, options=self.options
        )
        return self.send(TurnStarted(message=message, settings=settings))

    def send(self, event: Event) -> Step:
        """One more event."""
        self.last = step(self.machine, self.snapshot, event)
        self.snapshot = self.last.snapshot
        return self.last

    def call(self, *ids: str, content: str | None = None) -> Step:
        """The model calls the tool under these ids."""
        calls = tuple(ToolCall(id=call_id, name=TOOL.name, arguments={"id": call_id}) for call_id in ids)
        return self.send(Replied(reply=Reply(content=content, tool_calls=calls, finish_reason="tool_calls")))

    def say(self, content: str = "Here.") -> Step:
        """The model answers."""
        return self.send(Replied(reply=Reply(content=content, finish_reason="stop")))

    def review(self, ruling: Ruling = "run", **others: Ruling) -> Step:
        """Every call gets this ruling, apart from those that are named."""
        (effect,) = self.find_open("review_calls")
        verdicts = [
            Verdict(call_id=call.id, ruling=others.get(call.id, ruling))
            for call in effect.calls  # type: ignore[attr-defined]
        ]
        return self.send(Reviewed(verdicts=tuple(verdicts)))

    def begin_calls(self, *ids: str) -> Step:
        """The calls begin, after their start mark."""
        (effect,) = self.find_open("run_tools")
        return self.send(CallsStarted(effect=effect.id, calls=ids))

    def finish(self, call_id: str, effect: int = 0) -> Step:
        """The tool gives a result."""
        result = {"success": True, "result": call_id, "tool_name": TOOL.name, "execution_time_ms": 1.0}
        return self.send(ToolFinished(call_id=call_id, outcome="succeeded", result=result, effect=effect))

    def decide(self, call_id: str, approved: bool = True) -> Step:
        """A person decides."""
        return self.send(Decided(call_id=call_id, approved=approved))

    def find_open(self, name: str) -> list[Effect]:
        """The open effects of this name."""
        return [effect for effect in self.snapshot.open_effects if effect.name == name]

    @property
    def open(self) -> list[tuple[int, str, str]]:
        """Id, name and state of the open effects."""
        return [(effect.id, effect.name, effect.state) for effect in self.snapshot.open_effects]

    @property
    def outcomes(self) -> list[str]:
        """How the calls of the turn ended."""
        return [call.outcome for call in self.snapshot.tracked_calls]


def fail(**changes: Any) -> Failed:
    """A model call that failed."""
    return Failed(kind="server", message="no", **changes)
