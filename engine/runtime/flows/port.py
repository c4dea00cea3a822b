"""The driver, as performers see it."""

from __future__ import annotations

from typing import Protocol

from toolchart.engine.runtime.dependencies import Dependencies
from toolchart.states.core.step import Step
from toolchart.states.effects import Effect
from toolchart.states.events import Event
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot


class DriverPort(Protocol):
    """What a performer needs of the driver."""

    snapshot: Snapshot
    dependencies: Dependencies
    machine: Machine

    @property
    def conversation(self) -> str:
        """Id of the conversation."""
        ...

    def apply_event(self, event: Event) -> Step:
        """Step the core with an event."""
        ...

    def is_open(self, effect: Effect) -> bool:
        """Whether an effect waits for an answer."""
        ...

    def wait_for_outside(self, effect: Effect) -> None:
        """Leave an effect open until an event from outside answers it."""
        ...

    async def commit(self) -> None:
        """Make every record durable that was added so far."""
        ...
