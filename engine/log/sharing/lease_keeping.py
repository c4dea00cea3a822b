"""Keeping leases: takes, prolongs and gives back the leases of one engine, and looks into their inboxes.

A record is appended under the lease of its conversation, and a store refuses it where another worker has
taken the lease. What follows the record, an effect, begins only with more than a margin of the lease left, by
the clock of this machine. What can still happen: a process stands still between the look at its clock and the
beginning of an effect, for longer than that margin. Idempotency keys cover it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from toolchart.engine.log.sharing.workers import name_worker
from toolchart.engine.log.sharing.writer import LogWriter
from toolchart.states.errors import LeaseLost, LogBusy, ToolchartError
from toolchart.states.ports import InboxEntry, Lease, SharedStore

log = logging.getLogger("toolchart.engine")

Value = TypeVar("Value")

LEASE_S = 30.0
"""Seconds for which a lease is taken; after so long without a sign of life, another worker may take it."""

_MARGIN_SHARE = 0.25
"""Share of a lease that must be left when an effect begins."""

_POLL_S = 0.2
"""Seconds between two looks into the inboxes of the conversations that are worked on."""

_numbers = itertools.count(1)

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_clock_s() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class HeldLease:
    """A lease that this engine holds now."""

    __slots__ = ("is_ending", "is_lost", "lease", "loop", "safe_until_s")

    def __init__(self, lease: Lease, safe_until_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.lease = lease
        self.loop = loop
        """The event loop in which the conversation is worked on; it looks after the lease."""
        self.safe_until_s = safe_until_s
        """Until when effects may begin, by `read_clock_s`."""
        self.is_lost = False
        self.is_ending = False
        """Whether it is being given back: that it cannot be prolonged any more is no loss."""

    def has_margin(self) -> bool:
        """Whether enough of the lease is left for an effect to begin."""
        return not self.is_lost and read_clock_s() < self.safe_until_s


class LeaseKeeper:
    """The leases of one engine.

    Args:
        store: keeps them.
        writer: does what may wait.
        lease_s: seconds of a lease.
    """

    def __init__(self, store: SharedStore, writer: LogWriter, lease_s: float = LEASE_S) -> None:
        self._store = store
        self._writer = writer
        self._lease_s = lease_s
        self._number = next(_numbers)
        self._held: dict[str, HeldLease] = {}
        """By conversation; those of children are the one of their root."""
        self._roots: dict[str, HeldLease] = {}
        self._timers: dict[asyncio.AbstractEventLoop, asyncio.TimerHandle] = {}
        self.on_entries: Callable[[Sequence[InboxEntry]], None] | None = None
        """Called in the event loop with entries for conversations that are held."""
        self.on_loss: Callable[[str], None] | None = None
        """Called in the event loop with a conversation whose lease was lost."""

    def find(self, conversation: str) -> HeldLease | None:
        """The lease that covers a conversation; None where this engine has none."""
        return self._held.get(conversation)

    async def acquire(self, conversation: str) -> None:
        """Take the lease of a conversation.

        Raises:
            LeaseHeld: another worker, or another engine of this process, works on it.
        """
        worker, asked_at = name_worker(self._number), read_clock_s()

        def take(wait: bool) -> Lease:
            return self._store.acquire_lease(conversation, worker, self._lease_s, wait=wait)

        lease = await self.call_store(take, on_abandon=self._return_lease)
        held = HeldLease(lease, self._compute_safe_time(asked_at), asyncio.get_running_loop())
        self._held[conversation] = self._roots[conversation] = held
        self._start_timer()

    def _return_lease(self, taken: asyncio.Future[Lease]) -> None:
        """Give a lease back that was taken for somebody who was cancelled meanwhile."""
        if taken.cancelled() or taken.exception() is not None:
            return
        lease = taken.result()

        def give_back() -> None:
            if not self._store.release_lease(lease, is_open=True, due=lease.due):
                self._store.renew_leases([lease], 0.0)  # who takes it next finds the entries of its inbox

        self._writer.submit(give_back).add_done_callback(_report_failure)

    def share(self, child: str, parent: str) -> None:
        """Let a child be covered by the lease of its parent."""
        held = self._held.get(parent)
        if held is not None:
            self._held[child] = held

    def _compute_safe_time(self, asked_at: float) -> float:
        return asked_at + self._lease_s * (1 - _MARGIN_SHARE)

    async def release(self, conversation: str, *, is_open: bool, due: float | None) -> bool:
        """Give a lease back; false where the inbox has entries, and it is kept.

        Raises:
            LeaseLost: another worker has taken it meanwhile.
        """
        held = self._roots.get(conversation)
        if held is None:
            return True
        held.is_ending = True
        try:
            is_released = await self.call_store(
                lambda wait: self._store.release_lease(held.lease, is_open=is_open, due=due, wait=wait)
            )
        finally:
            held.is_ending = False
        if is_released:
            self._forget(conversation)
            if held.is_lost:
                raise LeaseLost(f"conversation {conversation}: its lease was taken over by another worker")
        return is_released

    def abandon(self, conversation: str) -> None:
        """Keep a lease no longer: it expires, and another worker takes it."""
        self._forget(conversation)

    def _forget(self, conversation: str) -> None:
        held = self._roots.pop(conversation, None)
        self._held = {name: other for name, other in self._held.items() if other is not held}
        if held is not None and not self._list_roots(held.loop):
            timer = self._timers.pop(held.loop, None)
            if timer is not None:
                timer.cancel()

    async def ensure_margin(self, held: HeldLease) -> None:
        """Return when an effect may begin: enough of the lease is left, or it was renewed.

        Raises:
            LeaseLost: another worker has taken it.
        """
        if held.has_margin():
            return
        await self._renew([held])
        if held.is_lost:
            raise LeaseLost(
                f"conversation {held.lease.conversation}: its lease was taken over by another worker"
            )

    async def _renew(self, leases: Sequence[HeldLease]) -> None:
        asked_at = read_clock_s()
        values = [held.lease for held in leases]
        answers = await self._writer.submit(lambda: self._store.renew_leases(values, self._lease_s))
        for held, is_held in zip(leases, answers, strict=True):
            if is_held:
                held.safe_until_s = self._compute_safe_time(asked_at)
            elif not held.is_lost and not held.is_ending:
                held.is_lost = True
                if self.on_loss is not None and held.lease.conversation in self._roots:
                    self.on_loss(held.lease.conversation)

    async def call_store(
        self, work: Callable[[bool], Value], on_abandon: Callable[[asyncio.Future[Value]], None] | None = None
    ) -> Value:
        """Call the store at once where that waits for nothing, else in the writer's thread.

        Args:
            work: gets whether it may wait.
            on_abandon: gets the finished work where the caller was cancelled while it was done.
        """
        if getattr(self._store, "commits_at_once", False) and not self._writer.is_busy:
            try:
                return work(False)
            except LogBusy:
                pass
        done: asyncio.Future[Value] = self._writer.submit(lambda: work(True))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if on_abandon is not None:
                done.add_done_callback(on_abandon)
            raise

    # -- the timer -------------------------------------------------------------------------------

    def _list_roots(self, loop: asyncio.AbstractEventLoop) -> list[tuple[str, HeldLease]]:
        """The conversations that are worked on in an event loop, with their leases."""
        return [(name, held) for name, held in list(self._roots.items()) if held.loop is loop]

    def _start_timer(self) -> None:
        """Look after the leases of the running event loop from time to time, as long as there are any."""
        loop = asyncio.get_running_loop()
        if loop not in self._timers:
            for other in [other for other in list(self._timers) if other.is_closed()]:
                self._timers.pop(other, None)
            self._timers[loop] = loop.call_later(_POLL_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timers.pop(loop, None)
        task = loop.create_task(self._look_after_leases(loop))
        task.add_done_callback(_report_failure)

    async def _look_after_leases(self, loop: asyncio.AbstractEventLoop) -> None:
        """Prolong leases that have run for a while, and hand on what the inboxes have."""
        try:
            early = read_clock_s() + self._lease_s * (1 - _MARGIN_SHARE) / 2
            roots = self._list_roots(loop)
            aging = [held for _, held in roots if held.safe_until_s < early and not held.is_lost]
            if aging:
                await self._renew(aging)
            names = [name for name, _ in self._list_roots(loop)]
            if names and self.on_entries is not None:
                entries = await self._writer.submit(lambda: self._store.read_inbox(names))
                if entries:
                    self.on_entries(entries)
        finally:
            if self._list_roots(loop) and loop not in self._timers:
                self._timers[loop] = loop.call_later(_POLL_S, self._look, loop)


def _report_failure(task: asyncio.Future[Any]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if isinstance(error, ToolchartError):
        log.warning("the leases could not be looked after: %s", error)
    elif error is not None:
        log.error("the leases could not be looked after", exc_info=error)
