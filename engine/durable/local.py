"""The host in process: stretches run on this event loop, and are forgotten with the process.

It is the smallest implementation of the port, for tests and for programs that need no other process.
"""

from __future__ import annotations

import asyncio

from toolchart.engine.durable.performing import perform_stretch
from toolchart.engine.durable.stretches import Rest, Stretch, plan_next
from toolchart.engine.runtime.engine import Engine


class LocalHost:
    """Performs stretches with one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: dict[str, asyncio.Task[Rest]] = {}

    async def start(self, stretch: Stretch) -> None:
        """See `DurableHost.start`."""
        if stretch.id not in self._tasks:
            self._tasks[stretch.id] = asyncio.create_task(self._perform_when_due(stretch))

    async def _perform_when_due(self, stretch: Stretch) -> Rest:
        clock = self._engine.clock
        await clock.sleep(stretch.compute_delay_s(clock.now()))
        rest = await perform_stretch(self._engine, stretch)
        successor = plan_next(stretch, rest)
        if successor is not None:
            await self.start(successor)
        return rest

    async def find_rest(self, stretch: Stretch) -> Rest | None:
        """See `FollowedHost.find_rest`."""
        task = self._tasks.get(stretch.id)
        return task.result() if task is not None and task.done() else None

    async def join(self) -> dict[str, Rest]:
        """Wait until no stretch is left; how each left its conversation, by its id."""
        while not all(task.done() for task in self._tasks.values()):
            await asyncio.gather(*self._tasks.values())
        return {name: task.result() for name, task in self._tasks.items()}
