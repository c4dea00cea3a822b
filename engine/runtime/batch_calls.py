"""Gathers the model calls of many conversations into batch jobs, and gives each conversation its answer.

A call waits in its own conversation: the effect `call_model` is open, and `call_submitted` says in which job
it waits. So the log alone knows everything, and a collector keeps only what one process needs while it runs.

    a turn asks           ->  the call waits for others (`gather_s`)
    call_submitted KEY    ->  durable in every conversation of the job
    the job is created    ->  with the key, by which it is found again
    call_submitted JOB    ->  durable in every conversation
    the job is over       ->  each answer goes to its turn, which records `replied` or `failed`

A worker that goes on with a conversation looks for the job of its call, by the host's id or by the key. Where
there is none, the job was never created, and the call goes into the next one. What a job ends without (it
expired, was cancelled, or a line is missing) goes into the next one too, `MAX_JOBS` times; then the call has
failed, and the chart decides.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from contextvars import Context
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from toolchart.providers.transport.batches import BatchAnswer, BatchApi, BatchCall, BatchJob
from toolchart.states.effects import Submission
from toolchart.states.errors import ProviderError, ToolchartError
from toolchart.states.events import Replied

log = logging.getLogger("toolchart.engine")

MAX_JOBS = 3
"""Jobs that may end without an answer to a call before the call has failed."""

_CREATIONS = 5
"""How often a job is created where the host fails for a while."""

_LONGEST_GATHERING = 20.0
"""A job begins after so many times `gather_s`, though further calls come."""

_GROWTH = 1.5
_LONGEST_PAUSE = 20.0
"""The pauses between two looks grow by this factor, up to so many times `poll_s`."""

Note = Callable[[str, int, str], Awaitable[bool]]
"""Records `call_submitted` with a key, the number of calls and the host's id, durable on return; false where
the call does not wait any more."""


class WaitingCall:
    """A model call that waits in a batch job, or for one.

    Args:
        name: of the call among all calls of its log.
        submission: the job that has the call, as its conversation says; None for none.
        note: records in its conversation where it waits.
    """

    def __init__(self, name: str, body: bytes, submission: Submission | None, note: Note) -> None:
        self.member = sha256(name.encode()).hexdigest()[:24]
        self.body = body
        self.submission = submission
        self.note = note
        self.jobs = submission.jobs if submission is not None else 0
        self.answer: asyncio.Future[BatchAnswer] = asyncio.get_running_loop().create_future()

        self.record_late: Callable[[BatchAnswer], Awaitable[None]] | None = None
        """Records the answer where the turn has gone on without it."""

    @property
    def is_waiting(self) -> bool:
        """Whether its turn still wants the answer."""
        return not self.answer.done()

    def build_call(self, key: str) -> BatchCall:
        """The call in the job with this key."""
        return BatchCall(custom_id=f"{key}-{self.member}", body=self.body)

    def set_answer(self, answer: BatchAnswer) -> None:
        """Give the turn its answer."""
        if self.is_waiting:
            self.answer.set_result(answer)

    def fail(self, error: BaseException) -> None:
        """Let the call fail."""
        if self.is_waiting:
            self.answer.set_exception(error)
            self.answer.exception()  # taken note of: the turn may have stopped waiting just now


class BatchCollector:
    """Has model calls answered in batch jobs: those of one API and one event loop together."""

    def __init__(self) -> None:
        self._works: dict[BatchApi, _HostWork] = {}
        self.record_late: Callable[[str, Replied], Awaitable[None]] | None = None
        """Records a reply in a conversation that has gone on without it."""

    async def ask(self, api: BatchApi, call: WaitingCall) -> BatchAnswer:
        """The answer to a call, when its job is over.

        Raises:
            ProviderError: the host did not take the call, or ended several jobs without answering it.
        """
        work = self._works.get(api)
        if work is None:
            work = self._works[api] = _HostWork(api)
        work.add_call(call)
        return await call.answer

    def close(self) -> None:
        """Look at no job any more."""
        for work in self._works.values():
            work.close()
        self._works.clear()


class _HostWork:
    """The calls and jobs of one batch API."""

    def __init__(self, api: BatchApi) -> None:
        self._api = api
        self._calls: list[WaitingCall] = []
        """Calls that wait for a job."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathering: asyncio.Task[None] | None = None
        self._known_jobs: set[str] = set()
        """Ids of jobs whose key is known."""

    def add_call(self, call: WaitingCall) -> None:
        """Let a call wait for a job, or for the answer of the one that has it."""
        self._calls.append(call)
        if call.submission is not None and call.submission.job:
            self._known_jobs.add(call.submission.job)
        if self._gathering is None:
            self._gathering = self._start_work(self._gather_calls())

    def _start_work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # In a context of its own: what the host is asked here belongs to no single model call.
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._finish_work)
        return task

    def close(self) -> None:
        """Stop what is done here, on whichever event loop."""
        for task in list(self._tasks):
            loop = task.get_loop()
            if not loop.is_closed():
                with suppress(RuntimeError):  # it is being closed
                    loop.call_soon_threadsafe(task.cancel)

    def _finish_work(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a batch job could not be followed", exc_info=error)

    # -- gathering -------------------------------------------------------------------------------

    async def _gather_calls(self) -> None:
        """Wait until no further call comes, and begin the jobs."""
        waited_s = 0.0
        while True:
            count = len(self._calls)
            await asyncio.sleep(self._api.gather_s)
            waited_s += self._api.gather_s
            is_long = waited_s >= self._api.gather_s * _LONGEST_GATHERING
            if len(self._calls) == count or is_long or len(self._calls) >= self._api.max_calls:
                break
        calls, self._calls, self._gathering = self._calls, [], None
        calls_by_key: dict[str, list[WaitingCall]] = {}
        fresh = []
        for call in calls:
            if call.submission is None:
                fresh.append(call)
            else:
                calls_by_key.setdefault(call.submission.key, []).append(call)
        for group in calls_by_key.values():
            self._start_work(self._guard_work(group, self._rejoin_job(group)))
        for part in _split_calls(fresh, self._api.max_calls, self._api.max_bytes):
            self._start_work(self._guard_work(part, self._submit_calls(part)))

    async def _guard_work(self, calls: Sequence[WaitingCall], work: Coroutine[Any, Any, None]) -> None:
        """Do the work; whatever it raises, no turn waits for ever."""
        try:
            await work
        except Exception as error:
            for call in calls:
                call.fail(error)
            if not isinstance(error, ProviderError):
                raise

    def _ask_again(self, calls: Iterable[WaitingCall]) -> None:
        """Let calls that no job has wait for the next one."""
        for call in calls:
            call.submission = None
            if call.is_waiting:
                self.add_call(call)

    # -- creating and finding --------------------------------------------------------------------

    async def _submit_calls(self, calls: Sequence[WaitingCall]) -> None:
        key = secrets.token_hex(8)
        calls = await self._record_job(calls, key, len(calls), "")
        if not calls:
            return
        since = datetime.now(UTC).isoformat()
        pause_s, number = self._api.poll_s, len(calls)
        attempt, job = 0, None
        while job is None:
            attempt += 1
            try:
                job = await self._api.create_job(key, [call.build_call(key) for call in calls])
            except ProviderError as error:
                if not error.retryable or attempt == _CREATIONS:
                    raise
                log.warning("a batch job was not created, it is tried again: %s", error.message)
                await asyncio.sleep(max(pause_s, error.retry_after_s or 0.0))
                pause_s *= 2
                # The host may have taken the job though its answer was lost.
                with suppress(ProviderError):
                    job = await self._api.find_job(key, number, since, frozenset(self._known_jobs))
        await self._follow_named_job(key, number, job, calls)

    async def _rejoin_job(self, calls: Sequence[WaitingCall]) -> None:
        """Go on with the job that has these calls, or ask them again where it does not exist."""
        # One that has the id of the host, where any has: the text is empty in the others.
        submission = max((call.submission for call in calls if call.submission), key=lambda each: each.job)
        pause_s = self._api.poll_s
        while True:
            try:
                if submission.job:
                    job: BatchJob | None = await self._api.read_job(submission.job)
                else:
                    others = frozenset(self._known_jobs)
                    job = await self._api.find_job(submission.key, submission.calls, submission.at, others)
                break
            except ProviderError as error:
                if error.status == 404:
                    job = None
                    break
                if not error.retryable:
                    raise
                await asyncio.sleep(max(pause_s, error.retry_after_s or 0.0))
                pause_s = min(pause_s * _GROWTH, self._api.poll_s * _LONGEST_PAUSE)
        if job is None:
            self._ask_again(calls)
        elif job.is_named:
            unnamed = [call for call in calls if call.submission is None or not call.submission.job]
            named_calls = [call for call in calls if call not in unnamed]
            if unnamed:
                unnamed = await self._record_job(unnamed, submission.key, submission.calls, job.id)
            await self._follow_job(submission.key, job, [*named_calls, *unnamed])
        else:
            await self._follow_job(submission.key, job, calls)

    async def _follow_named_job(
        self, key: str, number: int, job: BatchJob, calls: Sequence[WaitingCall]
    ) -> None:
        self._known_jobs.add(job.id)
        calls = await self._record_job(calls, key, number, job.id)
        await self._follow_job(key, job, calls)

    async def _record_job(
        self, calls: Sequence[WaitingCall], key: str, number: int, job: str
    ) -> list[WaitingCall]:
        """Record the job in each conversation; the calls that still wait."""
        notes = (call.note(key, number, job) for call in calls if call.is_waiting)
        waiting = [call for call in calls if call.is_waiting]
        noted = await asyncio.gather(*notes, return_exceptions=True)
        waiting_calls = []
        for call, is_noted in zip(waiting, noted, strict=True):
            if isinstance(is_noted, BaseException):
                call.fail(is_noted)
            elif is_noted and call.is_waiting:
                call.jobs += bool(job)
                waiting_calls.append(call)
        if job:  # a turn may have gone on meanwhile: what its call uses is recorded all the same
            waiting_calls += [call for call in calls if call not in waiting_calls and call.answer.cancelled()]
        return waiting_calls

    # -- following -------------------------------------------------------------------------------

    async def _follow_job(self, key: str, job: BatchJob, calls: Sequence[WaitingCall]) -> None:
        """Look at a job until it is over, and give each call its answer."""
        pause_s = self._api.poll_s
        open_calls = {f"{key}-{call.member}": call for call in calls}
        has_answers = False
        while open_calls:
            try:
                if not job.is_over:
                    await asyncio.sleep(pause_s)
                    is_named, job = job.is_named, await self._api.read_job(job.id)
                    # The host names the job now, but not its key: it stays a guess until an answer has the
                    # key.
                    if not is_named:
                        job = _mark_guess(job)
                if job.is_over:
                    if job.failure is not None:
                        raise job.failure
                    async with aclosing(self._api.read_answers(job)) as answers:  # type: ignore[type-var]
                        async for answer in answers:
                            has_answers |= answer.custom_id.startswith(f"{key}-")
                            if answer.status and (call := open_calls.pop(answer.custom_id, None)):
                                await _give_answer(call, answer)
                    break
            except ProviderError as error:
                if job.failure is not None or error.status == 404 or not error.retryable:
                    raise
                log.warning("batch job %s is looked at again: %s", job.id, error.message)
                if job.is_over:
                    await asyncio.sleep(pause_s)
            pause_s = min(pause_s * _GROWTH, self._api.poll_s * _LONGEST_PAUSE)
        if job.is_over and not (has_answers or job.is_named):  # it was another job of as many calls
            self._known_jobs.add(job.id)
            await self._rejoin_job(calls)
            return
        waiting_calls = [call for call in open_calls.values() if call.is_waiting]
        for call in waiting_calls:
            if call.jobs >= MAX_JOBS:
                message = (
                    f"{call.jobs} batch jobs ended without an answer to the call, the last one is {job.id}"
                )
                call.fail(ProviderError(kind="timeout", message=message, retryable=True))
        self._ask_again(waiting_calls)


async def _give_answer(call: WaitingCall, answer: BatchAnswer) -> None:
    """Give an answer to its turn, or to the log where the turn has gone on without it."""
    call.set_answer(answer)
    if call.record_late is None or not call.answer.cancelled():
        return
    try:
        await call.record_late(answer)
    except (ToolchartError, ProviderError) as error:
        log.warning("a late answer of a batch job was not recorded: %s", error)


def _mark_guess(job: BatchJob) -> BatchJob:
    return BatchJob(id=job.id, is_over=job.is_over, failure=job.failure, files=job.files, is_named=False)


def _split_calls(calls: Sequence[WaitingCall], max_calls: int, max_bytes: int) -> list[list[WaitingCall]]:
    """The calls in parts that one job may have."""
    parts: list[list[WaitingCall]] = []
    size = 0
    for call in calls:
        # What a host adds around a body: method, path and our name of the call.
        call_size = len(call.body) + 256
        if not parts or len(parts[-1]) >= max_calls or size + call_size > max_bytes:
            parts.append([])
            size = 0
        parts[-1].append(call)
        size += call_size
    return parts
