"""The writer: a thread that does the work of a store which may wait, for a lock, a disk or a network.

The event loop never waits for any of them. Appends that come while a commit is under way share the next one.
The thread begins with the first job and ends after a while without any.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from toolchart.states.ports import GroupCommitStore, RecordBatch, UpkeepStore

log = logging.getLogger("toolchart.engine")

_IDLE_S = 5.0
"""Seconds without a job after which the thread ends."""

_MAX_GROUP = 1000
"""Batches in one commit at most."""


class _Job(msgspec.Struct, frozen=True):
    """One thing to do, and the future of whoever waits for it."""

    work: RecordBatch | Callable[[], Any]
    done: asyncio.Future[Any]


class LogWriter:
    """Runs jobs on one store, one after the other; appends that wait together share a commit."""

    def __init__(self, store: GroupCommitStore) -> None:
        self._store = store
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._job_count = 0
        if isinstance(store, UpkeepStore):
            store.take_over_upkeep()

    @property
    def is_busy(self) -> bool:
        """Whether jobs are waiting or being done."""
        return self._job_count > 0

    def submit(self, work: RecordBatch | Callable[[], Any]) -> asyncio.Future[Any]:
        """Add a job; its future belongs to the running loop.

        Args:
            work: a batch to append, or a function; the future has the result of the function, or an error.
        """
        job = _Job(work, asyncio.get_running_loop().create_future())
        with self._lock:
            self._job_count += 1
            self._jobs.put(job)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="toolchart-log", daemon=True)
                self._thread.start()
        return job.done

    def drain(self) -> None:
        """Wait until every job is done; for a caller that closes the store."""
        thread = self._thread
        while self.is_busy and thread is not None and thread.is_alive():
            thread.join(0.005)

    # -- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if not self._job_count:
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
        if isinstance(self._store, UpkeepStore):
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
            self._job_count -= len(results)
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
