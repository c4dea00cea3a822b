"""The parts of one rerun: what may act in it, its clock, and what it gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.clock import SystemClock
from toolchart.engine.runtime.parts import Pricer
from toolchart.states.messages import Request
from toolchart.states.ports import Executor, Provider
from toolchart.states.snapshot import Snapshot

if TYPE_CHECKING:
    from pydantic import BaseModel


class LiveParts(msgspec.Struct, frozen=True, kw_only=True):
    """What may act in a rerun; nothing else leaves the process."""

    get_provider: Callable[[str], Provider] | None = None
    """Returns the provider of an `llms` entry; None where the log alone answers."""
    bind_executor: Callable[[str, Callable[[], Snapshot]], Executor] | None = None
    """Returns the executor of a conversation, which reviews calls; None where the log has the verdicts."""
    live_tools: frozenset[str] = frozenset()
    """Tools that run where the log has no result."""
    price: Pricer | None = None
    """Adds the cost to a live reply."""
    output_classes: Mapping[str, type[BaseModel]] = msgspec.field(default_factory=dict)
    """Pydantic classes of results, by their names."""


class MissingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The question at which a rerun ended because the log has no answer to it."""

    kind: str
    """`call`, `request`, `decision`, `review`, or the name of an effect."""
    number: int
    """Which one of its kind it was in the conversation, from 1."""
    text: str
    """One sentence for people."""
    request: Request | None = None
    """The model request that has no answer."""


class RerunRecords(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that ran again: its log in memory, and why it ended."""

    store: MemoryStore
    conversation: str
    snapshot: Snapshot
    missing: MissingAnswer | None


class RecordedClock(SystemClock):
    """The time of the newest event; nothing waits."""

    def __init__(self) -> None:
        super().__init__()
        self.time = ""

    def now(self) -> str:
        """The time of the newest event."""
        return self.time or super().now()

    async def sleep(self, seconds: float) -> None:
        """Return at once."""

    def jitter(self) -> float:
        """Always 0."""
        return 0.0


class Choice(msgspec.Struct, frozen=True):
    """One thing that can happen now."""

    seq: float
    """When it happened in the recording."""
    perform: Callable[[], Awaitable[None] | None]
