"""What is left of a turn: its budgets of tokens, money, seconds and calls, and what was spent."""

from __future__ import annotations

from datetime import datetime

from toolchart.states.snapshot import SnapshotFields


def is_retryable(snapshot: SnapshotFields) -> bool:
    """Whether the failed call may succeed later, after a wait that the limits allow."""
    failure = snapshot.failure
    if failure is None or not failure.retryable:
        return False
    return (failure.retry_after_s or 0.0) <= snapshot.limits.max_wait_s


def compute_elapsed_s(snapshot: SnapshotFields) -> float:
    """Seconds of the turn so far, from the times of its events."""
    if not snapshot.started_at or not snapshot.now:
        return 0.0
    start_time = datetime.fromisoformat(snapshot.started_at)
    return max(0.0, (datetime.fromisoformat(snapshot.now) - start_time).total_seconds())


def find_spent_budget(snapshot: SnapshotFields) -> str | None:
    """Name of the budget of the turn that is used up, or None."""
    limits = snapshot.limits
    if limits.max_tokens is not None and count_tokens(snapshot) >= limits.max_tokens:
        return "max_tokens"
    if limits.max_tool_calls is not None and len(snapshot.tracked_calls) >= limits.max_tool_calls:
        return "max_tool_calls"
    if limits.max_seconds is not None and compute_elapsed_s(snapshot) >= limits.max_seconds:
        return "max_seconds"
    if limits.max_cost is not None and (snapshot.usage.cost or 0.0) >= limits.max_cost:
        return "max_cost"
    return None


def exceeds_call_budget(snapshot: SnapshotFields) -> bool:
    """Whether the open calls would be more than the turn's budget of tool calls allows."""
    max_calls = snapshot.limits.max_tool_calls
    if max_calls is None or not snapshot.calls.pending:
        return False  # calls that all have their outcome are among `tracked_calls` already
    return len(snapshot.tracked_calls) + len(snapshot.calls) > max_calls


def count_tokens(snapshot: SnapshotFields) -> int:
    """Tokens of all replies of the turn."""
    usage = snapshot.usage
    if usage.total is not None:
        return usage.total
    return (usage.input or 0) + (usage.output or 0)
