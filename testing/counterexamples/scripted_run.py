"""A scripted world for the real driver: each effect is answered by the event that the script has for it.

The driver applies the events, writes the records, and stops what the core cancels, as in every conversation.
Only the work outside is replaced: no model is called, no tool runs, and nobody is asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.record import Journal
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.parts import Dependencies
from toolchart.states.chart.document import Chart
from toolchart.states.core.step import Step
from toolchart.states.effects import Effect
from toolchart.states.events import Answering, Configured, Event, TurnStarted
from toolchart.states.machine import get_machine
from toolchart.states.snapshot import Snapshot
from toolchart.testing.clock import TurnableClock
from toolchart.testing.counterexamples.sightings import Moment
from toolchart.testing.manual_turn import make_configured_event


class ScriptedRun:
    """One conversation of a chart with a script of events.

    Args:
        events: those of the conversation in order; answers name their effects.
    """

    def __init__(self, chart: Chart, events: Sequence[Event], configured: Configured | None = None) -> None:
        self._script = deque(events)
        self._changed = asyncio.Condition()
        self._snapshot = Snapshot()
        self.moments: list[Moment] = []
        """What the driver did, step by step."""
        self.store = MemoryStore()
        no_world: Any = _NoWorld()
        self._driver = Driver(
            get_machine(chart),
            Snapshot(),
            Journal(GroupCommit(self.store), "counterexample"),
            Dependencies(provider=no_world, executor=no_world, observer=self._observe, clock=TurnableClock()),
            perform=self._perform,
        )
        self._configured = configured or make_configured_event(chart)

    async def run(self) -> None:
        """Drive the conversation until the script is used up or does not fit any more."""
        self._driver.apply_event(self._configured)
        while self._script:
            event, left = self._script[0], len(self._script)
            is_start = isinstance(event, TurnStarted)
            if isinstance(event, Answering) and not self._is_open(event.effect):
                return
            if not is_start and self._driver.snapshot.has_ended:
                return
            # Between two turns nothing is performed, but a timer may run out.
            if is_start or not isinstance(event, Answering) or self._driver.snapshot.is_over:
                await self._driver.run_turn(self._script.popleft())
            else:
                await self._driver.perform_open_effects()
                if len(self._script) == left:
                    return

    @property
    def is_used_up(self) -> bool:
        """Whether every event of the script was applied."""
        return not self._script

    def _observe(self, event: Event, step: Step) -> None:
        self.moments.append(Moment(before=self._snapshot, event=event, step=step))
        self._snapshot = step.snapshot

    def _is_open(self, effect_id: int) -> bool:
        return effect_id in [effect.id for effect in self._driver.snapshot.open_effects]

    async def _perform(self, effect: Effect) -> None:
        """Answer an effect when its turn in the script has come; leave it open where the script has none."""
        async with self._changed:
            while self._driver.is_open(effect):
                await self._changed.wait_for(lambda: self._is_next(effect))
                if not self._is_answer_to(effect):
                    break
                self._driver.apply_event(self._script.popleft())
                self._changed.notify_all()
        if self._driver.is_open(effect):
            self._driver.wait_for_outside(effect)

    def _is_next(self, effect: Effect) -> bool:
        """Whether an effect need not wait: it is answered next, or the next event is for nobody here."""
        event = self._script[0] if self._script else None
        is_for_another = isinstance(event, Answering) and self._is_open(event.effect)
        return self._is_answer_to(effect) or not is_for_another or not self._driver.is_open(effect)

    def _is_answer_to(self, effect: Effect) -> bool:
        event = self._script[0] if self._script else None
        return isinstance(event, Answering) and event.effect == effect.id


class _NoWorld:
    """Stands where a driver wants a model host and tools; nobody asks it."""

    name = "scripted"

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a scripted run asks nobody outside for {name!r}")
