"""Facts: the plain values that guards can read, in one table.

A guard such as `iteration >= max_iterations` can name facts and nothing else. An unknown name is an error
when the chart is loaded. Every fact is a number, a boolean or one word of a finite list, and never None,
so no comparison can fail in the middle of a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from toolchart.states.events import FAILURE_KINDS, Limits
from toolchart.states.messages import FINISH_REASONS
from toolchart.states.snapshot import SnapshotFields

FactType = Literal["integer", "boolean", "text"]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Describes one fact: its name, type and meaning, and what changes it."""

    name: str
    type: FactType
    meaning: str
    changes: str
    """When its value changes."""
    read: Callable[[SnapshotFields], Any]
    words: tuple[str, ...] = ()
    """The possible values of a text fact."""
    moved_by: tuple[str, ...] = ()
    """Events that move a counter by one: up to its limit, or down to zero if it has none."""
    reset_by: tuple[str, ...] = ()
    """Events that set a counter back."""
    limit: str | None = None
    """The fact that limits a growing counter."""


def get_turn_limits(snapshot: SnapshotFields) -> Limits:
    """The limits of the turn; the defaults before the first turn."""
    return snapshot.settings.limits if snapshot.settings else Limits()


def _is_retryable(snapshot: SnapshotFields) -> bool:
    failure = snapshot.failure
    if failure is None or not failure.retryable:
        return False
    return (failure.retry_after_s or 0.0) <= get_turn_limits(snapshot).max_wait_s


def compute_elapsed_s(snapshot: SnapshotFields) -> float:
    """Seconds of the turn so far, from the times of its events."""
    if not snapshot.started_at or not snapshot.now:
        return 0.0
    start_time = datetime.fromisoformat(snapshot.started_at)
    return max(0.0, (datetime.fromisoformat(snapshot.now) - start_time).total_seconds())


def find_spent_budget(snapshot: SnapshotFields) -> str | None:
    """Name of the budget of the turn that is used up, or None."""
    limits = get_turn_limits(snapshot)
    if limits.max_tokens is not None and _count_tokens(snapshot) >= limits.max_tokens:
        return "max_tokens"
    if limits.max_tool_calls is not None and len(snapshot.tracked_calls) >= limits.max_tool_calls:
        return "max_tool_calls"
    if limits.max_seconds is not None and compute_elapsed_s(snapshot) >= limits.max_seconds:
        return "max_seconds"
    if limits.max_cost is not None and (snapshot.usage.cost or 0.0) >= limits.max_cost:
        return "max_cost"
    return None


def _count_tokens(snapshot: SnapshotFields) -> int:
    usage = snapshot.usage
    if usage.total is not None:
        return usage.total
    return (usage.input or 0) + (usage.output or 0)


FACTS: dict[str, Fact] = {
    fact.name: fact
    for fact in (
        Fact(
            name="finish_reason",
            type="text",
            meaning="why the latest reply ended, normalised",
            changes="with every reply",
            read=lambda s: s.reply.finish_reason if s.reply else "unknown",
            words=FINISH_REASONS,
        ),
        Fact(
            name="has_content",
            type="boolean",
            meaning="whether the latest reply contains text",
            changes="with every reply",
            read=lambda s: bool(s.reply and s.reply.content and s.reply.content.strip()),
        ),
        Fact(
            name="tool_calls",
            type="integer",
            meaning="calls that the latest reply requests",
            changes="with every reply",
            read=lambda s: len(s.calls),
        ),
        Fact(
            name="pending_calls",
            type="integer",
            meaning="calls of the latest reply that have no outcome yet",
            changes="with every reply and every finished call",
            read=lambda s: sum(call.outcome is None for call in s.calls),
            moved_by=("tool_finished",),
            reset_by=("replied",),
        ),
        Fact(
            name="undecided_calls",
            type="integer",
            meaning="calls that need approval and have no decision yet",
            changes="with the review and every decision",
            read=lambda s: sum(call.ruling == "needs_approval" for call in s.calls),
            moved_by=("decided",),
            reset_by=("replied", "reviewed"),
        ),
        Fact(
            name="approved_calls",
            type="integer",
            meaning="calls that a person approved in this turn",
            changes="with every decision",
            read=lambda s: s.approved,
        ),
        Fact(
            name="denied_calls",
            type="integer",
            meaning="calls that were denied in this turn, by a rule or by a person",
            changes="with the review and every decision",
            read=lambda s: s.denied,
        ),
        Fact(
            name="iteration",
            type="integer",
            meaning="replies of this turn whose calls have all been answered",
            changes="grows by one when the last call of a reply has its outcome",
            read=lambda s: s.iteration,
            moved_by=("tool_finished",),
            limit="max_iterations",
        ),
        Fact(
            name="max_iterations",
            type="integer",
            meaning="the limit of iterations in this turn",
            changes="never within a turn",
            read=lambda s: get_turn_limits(s).max_iterations,
        ),
        Fact(
            name="tool_only_streak",
            type="integer",
            meaning="consecutive replies that call tools and contain no text",
            changes="with every reply",
            read=lambda s: s.tool_only_streak,
        ),
        Fact(
            name="max_tool_only_streak",
            type="integer",
            meaning="the limit of consecutive replies without text in this turn",
            changes="never within a turn",
            read=lambda s: get_turn_limits(s).max_tool_only_streak,
        ),
        Fact(
            name="repeated_calls",
            type="integer",
            meaning="how many times this turn has requested the most repeated call of the latest reply",
            changes="with every reply",
            read=lambda s: max((call.repeat for call in s.calls), default=0),
        ),
        Fact(
            name="max_repeats",
            type="integer",
            meaning="the limit of identical calls in this turn",
            changes="never within a turn",
            read=lambda s: get_turn_limits(s).max_repeats,
        ),
        Fact(
            name="replies",
            type="integer",
            meaning="replies of this turn",
            changes="grows with every reply",
            read=lambda s: s.replies,
            moved_by=("replied",),
            limit="max_iterations",
        ),
        Fact(
            name="attempt",
            type="integer",
            meaning="failed model calls since the latest reply",
            changes="grows with every failure, back to 0 with a reply",
            read=lambda s: s.attempt,
            moved_by=("failed",),
            reset_by=("replied",),
            limit="max_attempts",
        ),
        Fact(
            name="max_attempts",
            type="integer",
            meaning="the limit of attempts for one model call in this turn",
            changes="never within a turn",
            read=lambda s: get_turn_limits(s).max_attempts,
        ),
        Fact(
            name="error_kind",
            type="text",
            meaning="class of the latest failure, `none` when there is none",
            changes="with every failure, back to `none` with a reply",
            read=lambda s: s.failure.kind if s.failure else "none",
            words=("none", *FAILURE_KINDS),
        ),
        Fact(
            name="retryable",
            type="boolean",
            meaning="whether the same request may succeed later, after a wait that the limits allow",
            changes="with every failure, back to false with a reply",
            read=_is_retryable,
        ),
        Fact(
            name="tools_offered",
            type="integer",
            meaning="tools that this turn offers to the model",
            changes="never within a turn",
            read=lambda s: len(s.offered_tools),
        ),
        Fact(
            name="tools_sent",
            type="boolean",
            meaning="whether the latest model call offered tools",
            changes="with every model call",
            read=lambda s: s.tools_sent,
        ),
        Fact(
            name="budget_spent",
            type="boolean",
            meaning="whether a budget of the turn (tokens, money, seconds, tool calls) is used up",
            changes="with every event",
            read=lambda s: find_spent_budget(s) is not None,
        ),
    )
}


_READERS = {name: fact.read for name, fact in FACTS.items()}


class FactView(Mapping[str, Any]):
    """The facts of one snapshot as a mapping; each fact is read when a guard needs it."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: SnapshotFields) -> None:
        self._snapshot = snapshot

    def __getitem__(self, name: str) -> Any:
        return _READERS[name](self._snapshot)

    def __iter__(self) -> Any:
        return iter(FACTS)

    def __len__(self) -> int:
        return len(FACTS)
