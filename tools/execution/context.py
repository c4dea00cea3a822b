"""What one call may know of its conversation: a plain value, made from the snapshot.

Nothing that a tool or the executor needs from a conversation lives in the process. Repetition,
spent output, grants and the plan follow from the snapshot and so from the log; a turn that is
resumed on another machine sees the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toolchart.states.messages import Message
from toolchart.states.quick import quick

FindResult = Callable[[str], dict[str, Any] | None]
"""From a call id to the whole result that the log holds of it."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Where one call stands in its conversation."""

    conversation: str = ""
    turn: int = 0
    iteration: int = 0
    call_id: str = ""
    tool: str = ""
    """Name of the tool; set by the executor."""
    repeat: int = 1
    """How often this tool was asked for with these arguments in this turn, this time included."""
    max_repeats: int | None = None
    """Runs of one and the same call before the model is told; None: no limit."""
    spent: int = 0
    """Characters of tool output that the model was shown in this turn, before this reply's
    calls."""
    batch: int = 1
    """Calls of this reply, which share what is left of the output budget."""
    calls_before: int = 0
    """Calls that the turn asked for before this one."""
    max_tool_calls: int | None = None
    granted: Callable[[], bool] | None = None
    """Asks whether an unused grant covers this very call, and uses it up; None: the caller answers
    for approvals itself."""
    allowance: int = 0
    """Characters that the result may show; set by the executor."""
    messages: Sequence[Message] = ()
    """The conversation so far, without its system prompt."""
    siblings: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Tool and result of the calls of the same reply that have already ended."""
    find_result: FindResult | None = None


ALONE = CallContext()
"""A call outside any conversation."""
