"""The result of a turn: `TurnResult` and, for a fork, `ForkResult`."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import to_builtins

from toolchart.states.core.encoding import encode
from toolchart.states.messages import Usage
from toolchart.states.snapshot import Snapshot, TurnError


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a turn. It holds all tool calls, warnings and usage, however the turn ended."""

    content: str
    service: str
    """Name of the `llms` entry that answered."""
    model: str
    """The requested model; the log has the one that the host reported."""
    tool_calls: list[dict[str, Any]]
    """`{tool, params, result, iteration, execution_time_ms}` in order; empty where no tool ran."""
    state: str
    """The state in which the chart rests: a final one, or one that waits for a decision."""
    is_over: bool
    """Whether the turn has ended."""
    ended_by: str | None
    """The effect that ended the turn, or `stuck`, `too_many_steps` or `endless` where the core ended it; None
    while the turn is open."""
    conversation_id: str
    iterations: int
    finish_reason: str
    usage: Usage
    limit_reached: str | None = None
    """The limit that ended the turn: `max_iterations` or the name of a budget."""
    undecided: list[dict[str, Any]]
    """Tool calls that wait for a decision: `{id, tool, params}`."""
    warnings: tuple[str, ...] = ()
    error: TurnError | None = None
    """Why the turn ended in error; None where it did not."""

    @property
    def max_iterations_reached(self) -> bool:
        """Whether the limit of iterations ended the turn."""
        return self.limit_reached == "max_iterations"

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data; empty optional keys are left out."""
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
        if self.error:
            data["error"] = to_builtins(self.error)
        if self.limit_reached:
            data["limit_reached"] = self.limit_reached
            data["max_iterations_reached"] = self.max_iterations_reached
        if self.undecided:
            data["undecided"] = self.undecided
        if self.warnings:
            data["warnings"] = list(self.warnings)
        return data


class ForkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a fork."""

    conversation: str
    parent: str
    at: int
    """Number of the newest record that both conversations share."""
    result: TurnResult | None
    """Result of the fork's turn; None where the conversation has no turn yet."""
    stopped: str | None = None
    """Where the fork ran from the log: the first request or call that the log has no answer to."""


def build_turn_result(snapshot: Snapshot, conversation: str) -> TurnResult:
    """The result of the newest turn of a snapshot."""
    settings = snapshot.settings
    assert settings is not None, "a turn has settings"
    reply = snapshot.reply
    return TurnResult(
        content=snapshot.answer or "",
        service=settings.service,
        model=settings.model,
        tool_calls=[_describe_tool_call(call) for call in snapshot.tracked_calls],
        state=snapshot.state,
        is_over=snapshot.is_over,
        ended_by=snapshot.ended_by,
        conversation_id=conversation,
        iterations=snapshot.iteration,
        finish_reason=reply.finish_reason if reply else "error",
        usage=snapshot.usage,
        limit_reached=snapshot.limit_reached,
        undecided=[
            {"id": open_call.call.id, "tool": open_call.call.name, "params": open_call.call.arguments}
            for open_call in snapshot.calls
            if open_call.ruling == "needs_approval" and open_call.outcome is None
        ],
        warnings=snapshot.warnings,
        error=snapshot.error,
    )


def _describe_tool_call(call: Any) -> dict[str, Any]:
    """A tool call as it appears in `TurnResult.tool_calls`."""
    return {
        "tool": call.tool,
        "params": call.params,
        "result": call.result,
        "iteration": call.iteration,
        "execution_time_ms": call.execution_time_ms,
    }
