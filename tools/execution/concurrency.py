"""A concurrency limiter per conversation: at most `width` tools run at once, some only alone.

Calls are admitted in the order in which they arrive. A call that must run alone waits for all calls
before it, and all calls after it wait for it. So the calls of one reply start in the model's order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakValueDictionary


class ConcurrencyLimiter:
    """Admits the tool calls of one conversation."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._running_calls = 0
        self._runs_alone = False
        self._waiting_calls: deque[tuple[asyncio.Future[None], bool]] = deque()

    async def acquire_slot(self, *, alone: bool = False) -> None:
        """Wait for a slot, which the caller must release; a cancelled wait leaves nothing to release."""
        if not self._waiting_calls and self._has_slot(alone):
            self._occupy_slot(alone)
            return
        admission: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_calls.append((admission, alone))
        try:
            await admission
        except asyncio.CancelledError:
            if admission.done() and not admission.cancelled():
                self.release_slot()  # admitted at the moment of the cancellation
            else:
                self._waiting_calls = deque(
                    entry for entry in self._waiting_calls if entry[0] is not admission
                )
                self._admit_waiting_calls()
            raise

    def release_slot(self) -> None:
        """Release a slot and admit the calls that may run now."""
        self._running_calls -= 1
        self._runs_alone = False
        self._admit_waiting_calls()

    def _has_slot(self, alone: bool) -> bool:
        if self._runs_alone:
            return False
        return self._running_calls == 0 if alone else self._running_calls < self._width

    def _occupy_slot(self, alone: bool) -> None:
        self._running_calls += 1
        self._runs_alone = alone

    def _admit_waiting_calls(self) -> None:
        while self._waiting_calls:
            admission, alone = self._waiting_calls[0]
            if not admission.done():  # a cancelled call may still be in the queue
                if not self._has_slot(alone):
                    return
                self._occupy_slot(alone)
                admission.set_result(None)
            self._waiting_calls.popleft()


class ConcurrencyLimiters:
    """One limiter per conversation and event loop, kept only while it is in use."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._limiters: WeakValueDictionary[tuple[int, str], ConcurrencyLimiter] = WeakValueDictionary()

    def has_limiter(self, conversation: str) -> bool:
        """Whether a call of the conversation runs or waits on the running event loop."""
        if not self._limiters:  # the common case, and a cheap test
            return False
        return (id(asyncio.get_running_loop()), conversation) in self._limiters

    def get_limiter(self, conversation: str) -> ConcurrencyLimiter:
        """The limiter of a conversation on the running event loop; made where there is none."""
        key = (id(asyncio.get_running_loop()), conversation)
        limiter = self._limiters.get(key)
        if limiter is None:
            limiter = self._limiters[key] = ConcurrencyLimiter(self.width)
        return limiter
