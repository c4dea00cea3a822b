"""When calls begin: at most so many at once, in the order of the reply, each with its start on record.

A call begins only after the record that asks for it is durable and, where it is not idempotent, its start
mark too. So whoever finds the log after a crash knows which calls may have taken effect. Both records share a
commit, and so do calls that begin together. A call that waits for its place is not marked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from toolchart.tools.execution.runs import StartOrder

BeginCalls = Callable[[tuple[str, ...]], Awaitable[None]]
"""Makes durable that the calls with these ids were asked for and begin. Where it raises, none of them may."""


class ConcurrencyLimiter:
    """At most `width` tools of a conversation run at once, some only alone.

    Calls are admitted in the order in which they arrive. A call that must run alone waits for all calls
    before it, and all calls after it wait for it. So the calls of one reply start in the model's order. A
    limiter serves one event loop: one whose loop was closed while calls ran would never admit another call.
    """

    def __init__(self, width: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.running_calls = 0
        self._width = width
        self._loop = loop
        self._runs_alone = False
        self._waiting_calls: deque[tuple[asyncio.Future[None], bool]] = deque()

    def get_own(self) -> ConcurrencyLimiter:
        """This limiter, or a new one where it is not the one of the running event loop."""
        loop = asyncio.get_running_loop()
        return self if self._loop is loop else ConcurrencyLimiter(self._width, loop)

    def take_slot(self, alone: bool) -> bool:
        """Take a slot, which the caller must release; false where there is none now."""
        if self._waiting_calls or not self._has_slot(alone):
            return False
        self.running_calls += 1
        self._runs_alone = alone
        return True

    async def wait_for_slot(self, alone: bool) -> None:
        """Wait for a slot, which the caller must release; a cancelled wait leaves nothing to release."""
        admission: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_calls.append((admission, alone))
        try:
            await admission
        except asyncio.CancelledError:
            if admission.done() and not admission.cancelled():
                self.release_slot()  # admitted at the moment of the cancellation
            else:
                self._admit_waiting_calls()  # the first that waits may have waited for this one
            raise

    def release_slot(self) -> None:
        """Release a slot and admit the calls that may run now."""
        self.running_calls -= 1
        self._runs_alone = False
        if self._waiting_calls:
            self._admit_waiting_calls()

    def _has_slot(self, alone: bool) -> bool:
        if self._runs_alone:
            return False
        return self.running_calls == 0 if alone else self.running_calls < self._width

    def _admit_waiting_calls(self) -> None:
        while self._waiting_calls:
            admission, alone = self._waiting_calls[0]
            if not admission.done():  # one whose wait was cancelled stays in the queue until it is the first
                if not self._has_slot(alone):
                    return
                self.running_calls += 1
                self._runs_alone = alone
                admission.set_result(None)
            self._waiting_calls.popleft()


class _Arrival:
    """A call that is ready to begin and waits for its place."""

    def __init__(self, call_id: str, alone: bool) -> None:
        self.call_id, self.alone = call_id, alone
        loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[bool] = loop.create_future()
        """Set when it is the first that has no place: whether it has got one, or must wait for a slot."""
        self.start: asyncio.Future[list[_Arrival]] = loop.create_future()
        """Set when it may begin: with the calls that begin together, where it is the one that begins them."""


class CallStarts:
    """When the calls of one `run_tools` may begin.

    Args:
        call_ids: in the order of the reply.
        begin: makes their starts durable.
    """

    def __init__(self, call_ids: Sequence[str], begin: BeginCalls) -> None:
        self.begin = begin
        self.order = StartOrder() if len(call_ids) > 1 else None
        """The order in which they begin; None where there is one call, which needs none of this."""
        self._placeless_ids = deque(call_ids)
        """Calls that have no place yet, in order."""
        self._arrivals: dict[str, _Arrival] = {}
        self._together: list[_Arrival] = []
        """Calls that have a place and begin together next."""
        self._is_starting = False
        """Whether calls are beginning, or will as soon as the event loop has let their siblings arrive."""

    async def wait_for_place(self, call_id: str, limiter: ConcurrencyLimiter, alone: bool) -> None:
        """Wait until a call may begin, in a slot that the caller must release.

        Calls get their places in the order of the reply. Those that get one at the same time begin together,
        with one commit. A cancelled wait leaves nothing to release.
        """
        arrival = self._arrivals[call_id] = _Arrival(call_id, alone)
        self._assign_places(limiter)
        has_slot = False
        try:
            has_slot = await arrival.turn
            if not has_slot:
                await limiter.wait_for_slot(alone)
                has_slot = True
                self._place_first(arrival)
                self._assign_places(limiter)
            together = await arrival.start
            if together:
                await self._start_together(together)
        except BaseException:
            if has_slot or (arrival.turn.done() and not arrival.turn.cancelled() and arrival.turn.result()):
                limiter.release_slot()
            raise

    def leave(self, call_id: str) -> None:
        """A call has ended, or never begins: it holds up no other one."""
        if self._placeless_ids and call_id in self._placeless_ids:
            self._placeless_ids.remove(call_id)
            self._arrivals.pop(call_id, None)
            self._assign_places(None)

    def _assign_places(self, limiter: ConcurrencyLimiter | None) -> None:
        """Give slots to the calls whose turn it is; the first one without a free slot waits for it."""
        while self._placeless_ids and (arrival := self._arrivals.get(self._placeless_ids[0])) is not None:
            if arrival.turn.done():  # it waits for a slot
                return
            if limiter is None or not limiter.take_slot(arrival.alone):
                arrival.turn.set_result(False)
                return
            arrival.turn.set_result(True)
            self._place_first(arrival)

    def _place_first(self, arrival: _Arrival) -> None:
        self._placeless_ids.remove(arrival.call_id)
        del self._arrivals[arrival.call_id]
        self._together.append(arrival)
        self._schedule_start()

    def _schedule_start(self) -> None:
        if self._together and not self._is_starting:
            self._is_starting = True
            # Siblings that are ready too come before this in the queue of the event loop.
            asyncio.get_running_loop().call_soon(self._choose_first)

    def _choose_first(self) -> None:
        """Let the first call that is still wanted begin those that begin together."""
        self._together = [arrival for arrival in self._together if not arrival.start.done()]
        together, self._together = self._together, []
        if together:
            together[0].start.set_result(together)
        else:
            self._is_starting = False

    async def _start_together(self, together: list[_Arrival]) -> None:
        """Let the calls that begin together begin; the first of them calls this."""
        try:
            await self.begin(tuple(arrival.call_id for arrival in together))
        except BaseException:
            for arrival in together:
                arrival.start.cancel()
            raise
        for arrival in together[1:]:
            if not arrival.start.done():
                arrival.start.set_result([])
        self._is_starting = False
        self._schedule_start()
