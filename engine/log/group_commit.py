"""Group commit: appends of several conversations share one commit, and none blocks the event loop.

A commit costs one sync of the disk, however many records it holds. At `full` the writer's thread commits, and
what comes meanwhile shares the next commit. At `normal` no commit waits for the disk, and a hop to a thread
would cost three times the commit: it is done at once, and handed to the thread only where the store is busy.
With several open turns, all appends of one round of the event loop are one commit.

A record is appended under the lease of its conversation, and a store refuses it where another worker has
taken the lease. What follows the record, an effect, begins only with more than a margin of the lease left, by
the clock of this machine. What can still happen: a process stands still between the look at its clock and the
beginning of an effect, for longer than that margin. Idempotency keys cover it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from toolchart.engine.event_loops import get_asyncio_loop
from toolchart.engine.log.leases import name_worker
from toolchart.states.errors import LeaseLost, LogBusy, ToolchartError
from toolchart.states.ports import LEASE_S, InboxEntry, Lease, RecordBatch, Store

_IDLE_S = 5.0
"""Seconds without a job after which the thread ends."""

_MAX_GROUP = 1000
"""Batches in one commit at most."""


# -- the writer ----------------------------------------------------------------------------------


class _Job(msgspec.Struct, frozen=True):
    """One thing to do, and the future of whoever waits for it."""

    work: RecordBatch | Callable[[], Any]
    done: asyncio.Future[Any]


class LogWriter:
    """Runs jobs on one store, one after the other; appends that wait together share a commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.job_count = 0
        """How many jobs are waiting or being done."""
        if store.has_upkeep:
            store.take_over_upkeep()

    def submit(self, work: RecordBatch | Callable[[], Any]) -> asyncio.Future[Any]:
        """Add a job; its future belongs to the running loop.

        Args:
            work: a batch to append, or a function; the future has the result of the function, or an error.
        """
        job = _Job(work, asyncio.get_running_loop().create_future())
        with self._lock:
            self.job_count += 1
            self._jobs.put(job)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="toolchart-log", daemon=True)
                self._thread.start()
        return job.done

    def drain(self) -> None:
        """Wait until every job is done; for a caller that closes the store."""
        thread = self._thread
        while self.job_count and thread is not None and thread.is_alive():
            thread.join(0.005)

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    # Under the lock of `submit`: a job that it adds in this moment either keeps this
                    # thread, or finds that there is none and starts one.
                    if not self.job_count:
                        self._thread = None
                        return
                continue
            self._do_jobs([job, *self._take_waiting_jobs()])

    def _take_waiting_jobs(self) -> list[_Job]:
        jobs: list[_Job] = []
        while len(jobs) < _MAX_GROUP:
            try:
                jobs.append(self._jobs.get_nowait())
            except queue.Empty:
                break
        return jobs

    def _do_jobs(self, jobs: Sequence[_Job]) -> None:
        """Do jobs in their order; neighbouring batches in one commit."""
        group: list[_Job] = []
        for job in jobs:
            if isinstance(job.work, RecordBatch):
                group.append(job)
                continue
            self._append_group(group)
            group = []
            self._call(job, job.work)
        self._append_group(group)
        # After the results were handed on: no caller waits for it.
        if self._store.has_upkeep:
            try:
                if self._store.needs_upkeep():
                    self._store.do_upkeep()
            except Exception as error:  # nothing is lost: it is tried again
                log.warning("the log could not be tidied up: %s", error)

    def _append_group(self, jobs: Sequence[_Job]) -> None:
        if not jobs:
            return
        results: list[tuple[_Job, Any, BaseException | None]]
        try:
            faults = self._store.append_many([job.work for job in jobs if isinstance(job.work, RecordBatch)])
            results = [(job, None, fault) for job, fault in zip(jobs, faults, strict=True)]
        except BaseException as error:  # whatever it is, nobody else tells the callers
            results = [(job, None, error) for job in jobs]
        self._deliver(results)

    def _call(self, job: _Job, work: Callable[[], Any]) -> None:
        try:
            result, fault = work(), None
        except BaseException as error:  # as above
            result, fault = None, error
        self._deliver([(job, result, fault)])

    def _deliver(self, results: Sequence[tuple[_Job, Any, BaseException | None]]) -> None:
        """Hand results to the loops that wait for them, with one call for each loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Job, Any, BaseException | None]]] = {}
        for entry in results:
            by_loop.setdefault(entry[0].done.get_loop(), []).append(entry)
        with self._lock:
            self.job_count -= len(results)
        for loop, entries in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(_finish_jobs, entries)


def _finish_jobs(entries: Sequence[tuple[_Job, Any, BaseException | None]]) -> None:
    for job, result, fault in entries:
        finish_future(job.done, result, fault)


def finish_future(future: asyncio.Future[Any], result: Any, fault: BaseException | None) -> None:
    """Give a future its result or error, unless its caller was cancelled."""
    if future.done():
        return
    if fault is None:
        future.set_result(result)
    else:
        # A future refuses `StopIteration`, and its caller would wait for ever.
        future.set_exception(RuntimeError(repr(fault)) if isinstance(fault, StopIteration) else fault)
        future.exception()  # marks it as read: a cancelled caller never awaits it


log = logging.getLogger("toolchart.engine")

Value = TypeVar("Value")

_MARGIN_SHARE = 0.25
"""Share of a lease that must be left when an effect begins."""

_POLL_S = 0.2
"""Seconds between two looks into the inboxes of the conversations that are worked on."""

_numbers = itertools.count(1)

read_clock_s = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds that also pass while the machine sleeps: its leases run out elsewhere meanwhile."""


# -- leases that this engine holds ---------------------------------------------------------------


class HeldLease(msgspec.Struct, eq=False):
    """A lease that this engine holds now."""

    lease: Lease
    safe_until_s: float
    """Until when effects may begin, by `read_clock_s`."""
    loop: asyncio.AbstractEventLoop
    """The event loop in which the conversation is worked on; it looks after the lease."""
    names: list[str]
    """The conversations that it covers: its own, and children of it."""
    is_lost: bool = False
    is_ending: bool = False
    """Whether it is being given back: that it cannot be prolonged any more is no loss."""


class LeaseKeeper:
    """The leases of one engine.

    Args:
        store: keeps them.
        writer: does what may wait.
        lease_s: seconds of a lease.
    """

    def __init__(self, store: Store, writer: LogWriter, lease_s: float = LEASE_S) -> None:
        self._store = store
        self._writer = writer
        self._lease_s = lease_s
        # Seconds after the request for a lease until which effects may begin. They count from the request:
        # the store grants it somewhat later, so it never runs out earlier than this engine believes.
        self._safe_s = lease_s * (1 - _MARGIN_SHARE)
        self._number = next(_numbers)
        self.held: dict[str, HeldLease] = {}
        """By conversation; those of children are the one of their root."""
        self._roots: dict[str, HeldLease] = {}
        self._by_loop: dict[asyncio.AbstractEventLoop, dict[str, HeldLease]] = {}
        """The same by event loop."""
        self._timers: dict[asyncio.AbstractEventLoop, asyncio.TimerHandle] = {}
        self.on_entries: Callable[[Sequence[InboxEntry]], None] | None = None
        """Called in the event loop with entries for conversations that are held."""
        self.on_loss: Callable[[str], None] | None = None
        """Called in the event loop with a conversation whose lease was lost."""

    def find(self, conversation: str) -> HeldLease | None:
        """The lease that covers a conversation; None where this engine has none."""
        return self.held.get(conversation)

    async def acquire(self, conversation: str) -> None:
        """Take the lease of a conversation.

        Raises:
            LeaseHeld: another worker, or another engine of this process, works on it.
        """
        loop = get_asyncio_loop()  # before a lease is taken that could not be kept
        worker, asked_at = name_worker(self._number), read_clock_s()
        take = partial(self._store.acquire_lease, conversation, worker, self._lease_s)
        lease = await self.call_store(take, on_abandon=self._return_lease)
        held = HeldLease(lease, asked_at + self._safe_s, loop, [conversation])
        self.held[conversation] = self._roots[conversation] = held
        self._by_loop.setdefault(loop, {})[conversation] = held
        if loop not in self._timers:
            self._start_timer(loop)

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
        held = self.held.get(parent)
        if held is not None:
            self.held[child] = held
            held.names.append(child)

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
                partial(self._store.release_lease, held.lease, is_open=is_open, due=due)
            )
        finally:
            held.is_ending = False
        if is_released:
            self.abandon(conversation)
            if held.is_lost:
                raise LeaseLost(f"conversation {conversation}: its lease was taken over by another worker")
        return is_released

    def abandon(self, conversation: str) -> None:
        """Keep a lease no longer: it expires, and another worker takes it."""
        held = self._roots.pop(conversation, None)
        if held is None:
            return
        # What this costs does not grow with the number of other leases.
        for name in held.names:
            if self.held.get(name) is held:
                del self.held[name]
        roots = self._by_loop[held.loop]
        del roots[conversation]
        if not roots:
            del self._by_loop[held.loop]
            timer = self._timers.pop(held.loop, None)
            if timer is not None:
                timer.cancel()

    async def ensure_margin(self, held: HeldLease) -> None:
        """Return when an effect may begin: enough of the lease is left, or it was renewed.

        Raises:
            LeaseLost: another worker has taken it.
        """
        if not held.is_lost and read_clock_s() < held.safe_until_s:
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
                held.safe_until_s = asked_at + self._safe_s
            elif not held.is_lost and not held.is_ending:
                held.is_lost = True
                # One that was given back while the store was asked is no loss.
                if self.on_loss is not None and held.lease.conversation in self._roots:
                    self.on_loss(held.lease.conversation)

    async def call_store(
        self, work: Callable[..., Value], on_abandon: Callable[[asyncio.Future[Value]], None] | None = None
    ) -> Value:
        """Call the store at once where that waits for nothing, else in the writer's thread.

        Args:
            work: gets whether it may `wait`.
            on_abandon: gets the finished work where the caller was cancelled while it was done.
        """
        # Not past jobs that wait: an append whose caller was cancelled may be among them, and a lease that is
        # given back before it would refuse it.
        if self._store.commits_at_once and not self._writer.job_count:
            try:
                return work(wait=False)
            except LogBusy:
                pass
        done: asyncio.Future[Value] = self._writer.submit(partial(work, wait=True))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if on_abandon is not None:
                done.add_done_callback(on_abandon)
            raise

    def _start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look after the leases of an event loop from time to time, as long as there are any."""
        for other in list(self._timers):
            if other.is_closed():
                self._timers.pop(other, None)
        self._timers[loop] = loop.call_later(_POLL_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timers.pop(loop, None)
        task = loop.create_task(self._look_after_leases(loop))
        task.add_done_callback(_report_failure)

    async def _look_after_leases(self, loop: asyncio.AbstractEventLoop) -> None:
        """Prolong leases that have run for a while, and hand on what the inboxes have."""
        try:
            # At half of the time: a renewal that fails is tried again every `_POLL_S`, before any effect
            # must wait for it.
            early = read_clock_s() + self._safe_s / 2
            roots = list(self._by_loop.get(loop, {}).values())
            aging = [held for held in roots if held.safe_until_s < early and not held.is_lost]
            if aging:
                await self._renew(aging)
            names = list(self._by_loop.get(loop, ()))
            if names and self.on_entries is not None:
                entries = await self._writer.submit(lambda: self._store.read_inbox(names))
                if entries:
                    self.on_entries(entries)
        finally:
            # Also after an error, else the leases run out. A lease that was taken meanwhile has begun a timer
            # itself.
            if loop in self._by_loop and loop not in self._timers:
                self._timers[loop] = loop.call_later(_POLL_S, self._look, loop)


def _report_failure(task: asyncio.Future[Any]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if isinstance(error, ToolchartError):
        log.warning("the leases could not be looked after: %s", error)
    elif error is not None:
        log.error("the leases could not be looked after", exc_info=error)


# -- group commit --------------------------------------------------------------------------------


class _PendingAppend(msgspec.Struct, frozen=True):
    """An append that waits for the next group commit."""

    batch: RecordBatch
    done: asyncio.Future[None]


class GroupCommit:
    """Appends records for all conversations of one engine.

    Args:
        lease_s: seconds of the leases of conversations.
    """

    def __init__(self, store: Store, *, lease_s: float = LEASE_S) -> None:
        self._store = store
        self._writer = LogWriter(store)
        self.leases = LeaseKeeper(store, self._writer, lease_s)
        """The leases of conversations."""
        self._held = self.leases.held
        self._needs_upkeep = store.needs_upkeep if store.has_upkeep else None
        self._commits_at_once = store.commits_at_once
        self._open_turns = 0
        self._pending: dict[asyncio.AbstractEventLoop, list[_PendingAppend]] = {}
        """What waits for the end of the present round of an event loop."""
        self._in_flight: dict[str, asyncio.Future[None]] = {}
        """The newest append of each conversation that waits for its commit."""
        self.listeners: dict[Callable[[str], None], None] = {}
        """Called with the id of a conversation after records of it became durable, in this order."""

    def __enter__(self) -> None:
        """Count an open turn until the `with` block ends."""
        self._open_turns += 1

    def __exit__(self, *_: object) -> None:
        self._open_turns -= 1

    def get_lease_token(self, conversation: str) -> int:
        """Fencing token of the lease that covers a conversation now; 0 where there is none."""
        held = self._held.get(conversation)
        return held.lease.token if held is not None else 0

    def cover_child(self, child: str, parent: str) -> None:
        """Let the lease of a conversation cover a child of it."""
        self.leases.share(child, parent)

    async def append(
        self,
        conversation: str,
        first_seq: int,
        lines: Sequence[bytes],
        *,
        checkpoint: tuple[int, bytes] | None = None,
        taken: Sequence[str] = (),
        totals: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        """Append lines, durable on return; an effect that they ask for may begin then.

        Args:
            checkpoint: number and data of a checkpoint to keep with them.
            taken: keys of the inbox entries that became these records.
            totals: those of turns that these records end, by the number of the record.

        Raises:
            LogConflict, LogUnavailable: none of these lines was appended.
            LeaseLost: another worker has taken the conversation over.
        """
        held = self._held.get(conversation)
        batch = RecordBatch(
            conversation, first_seq, lines, None if held is None else held.lease, checkpoint, taken, totals
        )
        # With one open turn nothing is gained by waiting for others, and a commit that waits for no disk
        # costs a third of a hop to the thread. Not while anything else waits: appends keep their order.
        is_alone = self._open_turns <= 1 and not self._pending and not self._writer.job_count
        done: asyncio.Future[None] | None = None
        if not (self._commits_at_once and is_alone):
            done = self._append_later(batch)
        else:
            try:
                (fault,) = self._store.append_many((batch,), wait=False)
            except LogBusy:
                done = self._append_later(batch)
            else:
                if fault is not None:
                    raise fault
                if self._needs_upkeep is not None and self._needs_upkeep():
                    self._writer.submit(_do_nothing)
        if done is not None:
            try:
                # Cancelling the caller must not cancel the append: its lines will be written anyway.
                await asyncio.shield(done)
            finally:
                # Kept where the caller was cancelled before the commit: `wait_until_written` still has to
                # wait for it.
                if self._in_flight.get(conversation) is done and done.done():
                    del self._in_flight[conversation]
        # A copy: whoever waits in another thread may leave meanwhile.
        for listener in tuple(self.listeners):
            listener(conversation)
        # After the commit: the record is safe under the lease that the store has checked, but an effect that
        # follows it must not begin when another worker may soon take the lease.
        if held is not None and (held.is_lost or read_clock_s() >= held.safe_until_s):
            await self.leases.ensure_margin(held)

    def _append_later(self, batch: RecordBatch) -> asyncio.Future[None]:
        """Append a batch together with others; the future ends with the commit."""
        done: asyncio.Future[None]
        if self._commits_at_once and not self._writer.job_count:
            loop = asyncio.get_running_loop()
            done = loop.create_future()
            if loop not in self._pending:
                for other in [other for other in list(self._pending) if other.is_closed()]:
                    self._pending.pop(other, None)  # it died before the end of its round
                self._pending[loop] = []
                # It runs after what is ready in this round, so what other turns append in it is in the same
                # commit.
                loop.call_soon(self._commit_pending, loop)
            self._pending[loop].append(_PendingAppend(batch, done))
        else:
            done = self._writer.submit(batch)
        self._in_flight[batch.conversation] = done
        return done

    async def wait_until_written(self, conversation: str) -> None:
        """Return when no append of this conversation waits for its commit, and effects may begin.

        Raises:
            LogConflict, LogUnavailable: that append failed, or another worker has the conversation now.
        """
        done = self._in_flight.get(conversation)
        if done is not None and done.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(done)
        elif done is not None:  # of another event loop, which may be dead
            await asyncio.to_thread(self.drain)
        held = self._held.get(conversation)
        if held is not None:
            await self.leases.ensure_margin(held)

    def _commit_pending(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write all pending appends of an event loop in one commit and report to each caller."""
        pending = self._pending.pop(loop)
        faults: Sequence[BaseException | None]
        try:
            faults = self._store.append_many([entry.batch for entry in pending], wait=False)
            if self._needs_upkeep is not None and self._needs_upkeep():
                self._writer.submit(_do_nothing)
        except LogBusy:
            # No append can pass these: while jobs wait, `append` hands everything to the thread.
            for entry in pending:
                _pass_result_on(self._writer.submit(entry.batch), entry.done)
            return
        except BaseException as error:  # whatever it is, nobody else tells the callers
            faults = [error] * len(pending)
        for entry, fault in zip(pending, faults, strict=True):
            finish_future(entry.done, None, fault)

    def drain(self) -> None:
        """Wait until everything that was handed over is written; for a caller that closes the store."""
        self._writer.drain()


def _do_nothing() -> None:
    """A job after which the writer's thread looks whether there is upkeep to do."""


def _pass_result_on(source: asyncio.Future[Any], target: asyncio.Future[None]) -> None:
    def finish(future: asyncio.Future[Any]) -> None:
        finish_future(target, None, future.exception())

    source.add_done_callback(finish)
