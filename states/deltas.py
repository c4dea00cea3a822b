"""What grows while a model answers: the pieces of a streamed reply, for display.

A stream gives deltas and then, last, the whole reply. Only the whole reply is an event: nothing is
decided, run or logged from a piece.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """More reasoning, which is no part of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """The model began to ask for a call."""

    index: int
    """Place of the call in the reply, from 0."""
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallArguments:
    """More of a call's argument text; what it comes to is known with the whole reply only."""

    index: int
    text: str


Delta = TextDelta | ReasoningDelta | CallStarted | CallArguments
"""Everything that can grow."""

_KINDS = {
    TextDelta: "text",
    ReasoningDelta: "reasoning",
    CallStarted: "call",
    CallArguments: "arguments",
}


def delta_data(delta: Delta) -> dict[str, Any]:
    """The delta as the log keeps it."""
    return {"kind": _KINDS[type(delta)], **asdict(delta)}
