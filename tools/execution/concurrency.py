"""The gate before running tools: at most so many at once, and some only alone.

First come, first served: a call that wants to be alone waits for those before it, and those after
it wait for it. So the calls of one reply start in the model's order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class Gate:
    """The gate of one conversation."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._inside = 0
        self._alone = False
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    @asynccontextmanager
    async def passed(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Wait for a place; it is given back at the end, also when the wait is cancelled."""
        await self._enter(alone)
        try:
            yield
        finally:
            self._inside -= 1
            self._alone = False
            self._admit()

    async def _enter(self, alone: bool) -> None:
        if not self._waiting and self._room(alone):
            self._take(alone)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, alone))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # admitted in the moment of its cancellation
                self._inside -= 1
                self._alone = False
            else:
                self._waiting = deque(place for place in self._waiting if place[0] is not turn)
            self._admit()
            raise

    def _room(self, alone: bool) -> bool:
        if self._alone:
            return False
        return self._inside == 0 if alone else self._inside < self._width

    def _take(self, alone: bool) -> None:
        self._inside += 1
        self._alone = alone

    def _admit(self) -> None:
        while self._waiting:
            turn, alone = self._waiting[0]
            if not turn.done():  # a cancelled one has not been taken out yet
                if not self._room(alone):
                    return
                self._take(alone)
                turn.set_result(None)
            self._waiting.popleft()


class Gates:
    """One gate per conversation and event loop, kept only while it is in use."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._gates: WeakValueDictionary[tuple[int, str], Gate] = WeakValueDictionary()

    def of(self, conversation: str) -> Gate:
        """The gate of a conversation."""
        key = (id(asyncio.get_running_loop()), conversation)
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = Gate(self.width)
        return gate
