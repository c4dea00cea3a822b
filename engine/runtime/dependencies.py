"""The dependencies of a driver: the provider, the tools, the clock and the callbacks of one turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from toolchart.engine.runtime.clock import Clock, SystemClock
from toolchart.states.core.step import Step
from toolchart.states.events import Decided, Event
from toolchart.states.messages import Delta, Reply, Request, ToolCall
from toolchart.states.ports import Executor, Provider

Approver = Callable[[ToolCall], Awaitable[Decided | None]]
"""Called for each tool call that needs approval; None leaves the call undecided."""

Observer = Callable[[Event, Step], None]
"""Called with every event and its step after the record is noted; for display only."""

DeltaObserver = Callable[[Delta], None]
"""Called with each delta of a streamed reply; for display only."""

Pricer = Callable[[Reply, Request], Reply]
"""Returns the reply with its cost added, where the host did not report one."""


class Dependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Everything outside the core that a driver calls during one turn."""

    provider: Provider
    """Answers model calls."""
    executor: Executor
    """Reviews and runs tool calls."""
    approver: Approver | None = None
    """Decides calls that need approval; without one such a turn waits."""
    observer: Observer | None = None
    on_delta: DeltaObserver | None = None
    """Receives deltas. Where it is set and the provider can stream, replies are streamed."""
    clock: Clock = msgspec.field(default_factory=SystemClock)
    price: Pricer | None = None
    """Adds the cost to a reply."""
    keep_deltas: bool = False
    """Whether the log keeps the deltas of streamed replies."""
