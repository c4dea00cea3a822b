"""The result of a turn: `TurnResult` and, for a fork, `ForkResult`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import to_builtins

from toolchart.engine.runtime.flows.waiting import (
    describe_questions,
    describe_undecided_calls,
    find_earliest_due,
)
from toolchart.states.core.encoding import encode
from toolchart.states.messages import Usage
from toolchart.states.snapshot import Snapshot, TurnError

if TYPE_CHECKING:
    from pydantic import BaseModel


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
    """Tool calls that wait for a decision: `{id, tool, params}`. What waits in children stands here and in
    `questions` too, with its `conversation`."""
    questions: list[dict[str, Any]] = []
    """Questions to people that wait for an answer: `{effect, state, question, form, due}`. `form` is a JSON
    Schema, `due` the time at which the state stops waiting, or None."""
    due: str | None = None
    """When the earliest open timer runs out: RFC 3339, UTC. Timers of a resting conversation fire when it is
    resumed; None where none is open."""
    awaits_user: bool = False
    """Whether the chart goes on with the user's next message."""
    warnings: tuple[str, ...] = ()
    error: TurnError | None = None
    """Why the turn ended in error; None where it did not."""
    results: dict[str, dict[str, Any]] = {}
    """The newest value of each result of the chart, as JSON data; a text is `{content: text}`."""
    result_errors: dict[str, TurnError] = {}
    """Why a result has no newer value: its newest failure, where no value followed."""
    outputs: dict[str, BaseModel] = {}
    """The results of which the user gave a pydantic class, as instances of it."""

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
        if self.questions:
            data["questions"] = self.questions
        if self.due:
            data["due"] = self.due
        if self.awaits_user:
            data["awaits_user"] = True
        if self.warnings:
            data["warnings"] = list(self.warnings)
        if self.results:
            data["results"] = self.results
        if self.result_errors:
            data["result_errors"] = to_builtins(self.result_errors)
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


def build_turn_result(
    snapshot: Snapshot, conversation: str, output_classes: Mapping[str, type[BaseModel]] | None = None
) -> TurnResult:
    """The result of the newest turn of a snapshot.

    Args:
        output_classes: pydantic classes by result name.
    """
    classes = output_classes or {}
    results = {name: result.value for name, result in snapshot.results.items() if result.value is not None}
    settings = snapshot.settings
    assert settings is not None, "a turn has settings"
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
        finish_reason=_find_finish_reason(snapshot),
        usage=snapshot.usage,
        limit_reached=snapshot.limit_reached,
        undecided=describe_undecided_calls(snapshot),
        questions=describe_questions(snapshot),
        due=find_earliest_due(snapshot) if not snapshot.has_ended else None,
        awaits_user=snapshot.awaits_user,
        warnings=snapshot.warnings,
        error=snapshot.error,
        results=results,
        result_errors={
            name: TurnError(kind=result.error_kind, message=result.error)
            for name, result in snapshot.results.items()
            if result.error_kind != "none"
        },
        outputs={
            name: classes[name].model_validate(value) for name, value in results.items() if name in classes
        },
    )


def _find_finish_reason(snapshot: Snapshot) -> str:
    """That of the newest reply; `stop` where the chart answered without one."""
    if snapshot.reply is not None:
        return snapshot.reply.finish_reason
    return "stop" if snapshot.answer is not None and snapshot.error is None else "error"


def _describe_tool_call(call: Any) -> dict[str, Any]:
    """A tool call as it appears in `TurnResult.tool_calls`."""
    return {
        "tool": call.tool,
        "params": call.params,
        "result": call.result,
        "iteration": call.iteration,
        "execution_time_ms": call.execution_time_ms,
    }
