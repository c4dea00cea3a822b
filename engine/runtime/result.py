"""The result of a turn, as people and programs get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolchart.states.encoding import encode
from toolchart.states.messages import Usage
from toolchart.states.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What a turn came to. Nothing found on the way is missing, however it ended."""

    content: str
    service: str
    """Name of the `llms` entry that answered."""
    model: str
    """The model that was asked for; the log has the one that answered."""
    tool_calls: list[dict[str, Any]]
    """`{tool, params, result, iteration, execution_time_ms}` in order; empty when none ran."""
    state: str
    """The state in which the turn rests: a final one, or one that waits for a person."""
    over: bool
    """Whether that state is final."""
    ended_by: str | None
    """The effect that ended the turn; None while it is not over."""
    conversation_id: str
    iterations: int
    finish_reason: str
    usage: Usage
    limit_reached: str | None = None
    """The limit that ended the turn: `max_iterations` or the name of a budget."""
    undecided: list[dict[str, Any]]
    """Calls that wait for a decision: `{id, tool, params}`."""
    warnings: tuple[str, ...] = ()

    @property
    def max_iterations_reached(self) -> bool:
        """Whether the limit of iterations ended the turn."""
        return self.limit_reached == "max_iterations"

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data; keys that say nothing are left out."""
        data: dict[str, Any] = {
            "content": self.content,
            "service": self.service,
            "model": self.model,
            "tool_calls": self.tool_calls,
            "state": self.state,
            "conversation_id": self.conversation_id,
            "iterations": self.iterations,
            "usage": encode(self.usage),
            "finish_reason": self.finish_reason,
        }
        if self.limit_reached:
            data["limit_reached"] = self.limit_reached
            data["max_iterations_reached"] = self.max_iterations_reached
        if self.undecided:
            data["undecided"] = self.undecided
        if self.warnings:
            data["warnings"] = list(self.warnings)
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkResult:
    """What a fork came to."""

    conversation: str
    parent: str
    at: int
    """The newest record that both share."""
    result: TurnResult | None
    """Of the turn in which the fork stands; None where there was none yet."""
    stopped: str | None = None
    """Offline: what was asked for that was never recorded."""


def turn_result(snapshot: Snapshot, conversation: str) -> TurnResult:
    """The result of the turn that a snapshot stands in."""
    settings = snapshot.settings
    assert settings is not None, "a turn has settings"
    reply = snapshot.reply
    return TurnResult(
        content=snapshot.answer or "",
        service=settings.service,
        model=settings.model,
        tool_calls=[_tracked(call) for call in snapshot.tracked],
        state=snapshot.state,
        over=snapshot.over,
        ended_by=snapshot.ended_by,
        conversation_id=conversation,
        iterations=snapshot.iteration,
        finish_reason=reply.finish_reason if reply else "error",
        usage=snapshot.usage,
        limit_reached=snapshot.limit_reached,
        undecided=[
            {"id": opened.call.id, "tool": opened.call.name, "params": opened.call.arguments}
            for opened in snapshot.calls
            if opened.ruling == "needs_approval"
        ],
        warnings=snapshot.warnings,
    )


def _tracked(call: Any) -> dict[str, Any]:
    return {
        "tool": call.tool,
        "params": call.params,
        "result": call.result,
        "iteration": call.iteration,
        "execution_time_ms": call.execution_time_ms,
    }
