"""Running one tool within its timeout, in its execution mode.

Inline on the event loop, as an asyncio task that can be cancelled, in a reused thread whose late result is
dropped, or in a child process that can be killed. Every fault of the tool is raised as `ToolFailure` or
`ToolTimeout`; the only other exceptions are `ToolPending` and a cancellation from outside.

Sync tools run in reused daemon threads. There is no queue between calls. Each worker waits for its own next
job, so a job starts at once whatever the other workers do: a job that hangs keeps its worker and delays
nobody. The workers are daemons, so a job that hangs does not keep the interpreter from exiting either; both
are why the event loop's own thread pool is not used.

Measured on two shared cores with Python 3.11, one call after the other: a new thread per call 140 to 190 us,
`asyncio.to_thread` 85 to 105 us, a reused worker 26 to 75 us, depending on the core on which the system wakes
the worker. A bare lock in place of the queue makes no difference beyond the noise. Two things that help a
little were left out. An event loop that blocks for up to 0.1 ms, in the hope of a quick end, saves a tenth of
an iteration and costs every slow call that time. One wake-up of the loop for all jobs that end together saves
a fifth of the processor time with 64 calls at once, a tenth with 16, nothing with 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias

from msgspec.structs import replace

from toolchart.tools.definition import (
    CallStatus,
    ExecutionMode,
    Tool,
    ToolFailure,
    ToolPending,
    ToolRaised,
    ToolTimeout,
)
from toolchart.tools.execution.context import CallContext
from toolchart.workers.error_text import describe_error, list_first_causes, read_error_text
from toolchart.workers.returned_values import (
    UnusableResult,
    await_value,
    close_unused,
    is_iterator,
    must_be_awaited,
    read_value,
)

log = logging.getLogger("toolchart.tools")

CLEANUP_S = 1.0
"""Seconds that a cancelled async tool may take to clean up before the executor stops waiting."""

MAX_LATE_THREADS = 32
"""Threads past their timeout that may still run. With that many, no further thread is started."""


_PLAIN_TYPES = frozenset({str, int, float, bool, type(None), dict, list})
"""Types of results that are read at once: a cheap test, made before the questions whether something has to be
awaited or read to its end."""

Convert: TypeAlias = Callable[[Any], Any]
"""Makes of a result what the caller of `run_tool` wants. What it raises passes."""


def keep_result(value: Any) -> Any:
    """The result as the tool returned it."""
    return value


def run_tool(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: CallContext,
    order: StartOrder | None = None,
    convert: Convert = keep_result,
) -> Coroutine[Any, Any, Any]:
    """Run a tool and return what it returned, read to its end and converted.

    What has to be awaited is awaited, and an iterator is read (`toolchart.workers.returned_values`), within
    the tool's timeout, whatever kind of function returned it.

    Args:
        order: of the calls beside it; None where it runs alone.
        convert: called where the tool ran, so in a thread for a tool that runs in one.

    Raises:
        ToolFailure: the tool refused or failed, in whatever way, or returned an exception.
        ToolTimeout: it did not finish within `tool.timeout_s`.
        ToolPending: its outcome comes later.
    """
    parameters = (arguments, context) if tool.needs_context else (arguments,)
    return _RUN_BY_MODE[tool.execution_mode](tool, parameters, order, convert)


async def ask_status(tool: Tool, context: CallContext) -> CallStatus:
    """Ask a tool's `status` what became of an interrupted call; `unknown` where it fails in whatever way."""
    function, subject = tool.status, context.describe_call()
    assert function is not None, "only a tool that has one is asked"
    asking = replace(
        tool,
        run=lambda arguments: function(subject),
        needs_context=False,
        execution_mode="async" if inspect.iscoroutinefunction(function) else "thread",
    )
    try:
        status = await run_tool(asking, {}, context)
        if isinstance(status, CallStatus):
            return status
        problem = f"it returned {type(status).__name__}, and no CallStatus"
    except ToolTimeout:
        problem = "it did not answer in time"
    except (ToolFailure, ToolPending) as error:
        problem = str(error)
    log.warning("the status of call %s of %r is unknown: %s", context.call_id, tool.name, problem)
    return CallStatus(state="unknown")


async def _run_inline(
    tool: Tool, parameters: tuple[Any, ...], order: StartOrder | None, convert: Convert
) -> Any:
    """Run on the event loop: nothing else runs until it returns, and no timeout can end it."""
    if order is not None:
        await order.wait()
    try:
        value = contextvars.copy_context().run(tool.run, *parameters)
    # A KeyboardInterrupt comes from a person here, who wants to stop the program.
    except (ToolFailure, ToolPending, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise _make_failure(error) from error
    finally:
        if order is not None:
            order.note_begun()
    # A builtin may return an awaitable for the rare input that takes long.
    if type(value) in _PLAIN_TYPES or not _must_be_read(value):
        return convert(value)
    return await _await_as_task(lambda: value, tool.timeout_s, convert)


def _must_be_read(value: Any) -> bool:
    return must_be_awaited(value) or is_iterator(value) or isinstance(value, BaseException)


async def _run_in_process(
    tool: Tool, parameters: tuple[Any, ...], order: StartOrder | None, convert: Convert
) -> Any:
    from toolchart.tools.execution.isolation import run_in_process

    if order is not None:
        await order.wait()
        order.note_begun()  # it is handed over; when the other process begins is not known here
    return convert(await run_in_process(tool, parameters[0]))


# -- the end of a run in a task or thread --------------------------------------------------------

_Failure: TypeAlias = ToolFailure | ToolPending

_End: TypeAlias = asyncio.Future[tuple[Any, BaseException | None]]
"""The value of a run and its failure. The failure is a part of the result, since asyncio would log an
exception that nobody fetched, as after a cancellation."""


def _set_end(end: _End, value: Any, failure: BaseException | None) -> None:
    """Set how a run ended, unless nobody waits for it any more."""
    if not end.done():
        end.set_result((value, failure))


def _make_failure(error: BaseException) -> _Failure:
    """The failure that an exception of a tool means; of a group the one that its first causes mean."""
    if isinstance(error, _Failure):
        return error
    causes = list_first_causes(error)
    if len(causes) == 1 and isinstance(causes[0], _Failure):
        return causes[0]
    if all(isinstance(cause, (ToolFailure, UnusableResult)) for cause in causes):
        return ToolFailure("; ".join(map(read_error_text, causes)))
    return ToolRaised(describe_error(error))


# -- as a task -----------------------------------------------------------------------------------


async def _run_as_task(
    tool: Tool, parameters: tuple[Any, ...], order: StartOrder | None, convert: Convert
) -> Any:
    if order is not None:
        await order.wait()
    return await _await_as_task(partial(tool.run, *parameters), tool.timeout_s, convert, order)


async def _await_as_task(
    start_work: Callable[[], Any], timeout_s: float, convert: Convert, order: StartOrder | None = None
) -> Any:
    """Await in a task of its own, since a tool may ignore its cancellation and then run on."""
    loop = asyncio.get_running_loop()
    # The task itself sets this future: `asyncio.wait` needs a further one and a further round of the loop.
    end: _End = loop.create_future()
    task = loop.create_task(_await_work(start_work, end, convert, order))
    task.add_done_callback(partial(_pass_on_end, end))
    timer = loop.call_later(timeout_s, _set_end, end, None, ToolTimeout())
    try:
        value, failure = await end
    except asyncio.CancelledError:
        await _cancel_task(task)
        raise
    finally:
        timer.cancel()
    if failure is None:
        return value
    if isinstance(failure, ToolTimeout):
        await _cancel_task(task)
    raise failure


async def _await_work(
    start_work: Callable[[], Any], end: _End, convert: Convert, order: StartOrder | None
) -> None:
    """Start and await the work and set its end; each of its own exceptions becomes a `ToolFailure`."""
    try:
        try:
            value = start_work()
        finally:
            if order is not None:  # the next one gets the event loop when this work waits for the first time
                order.note_begun()
        if inspect.iscoroutine(value):
            value = await value
        if type(value) not in _PLAIN_TYPES:
            value = await await_value(value)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        _set_end(end, None, ToolFailure("the tool cancelled itself"))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        _set_end(end, None, _make_failure(error))
    else:
        _set_end(end, *_convert_value(convert, value))


def _convert_value(convert: Convert, value: Any) -> tuple[Any, BaseException | None]:
    """The converted value of a run, or the error of the conversion, which passes as it is."""
    try:
        return convert(value), None
    except Exception as error:
        return None, error


def _pass_on_end(end: _End, task: asyncio.Future[None]) -> None:
    """End as the task did, where it could not set the end itself: cancelled, or a KeyboardInterrupt."""
    if task.cancelled():
        end.cancel()
    elif (error := task.exception()) is not None:
        _set_end(end, None, error)


async def _cancel_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait `CLEANUP_S` for it to end."""
    task.cancel()
    await asyncio.wait({task}, timeout=CLEANUP_S)


# -- in a thread ---------------------------------------------------------------------------------

_late_thread_count = 0
_late_thread_lock = threading.Lock()


def _forget_late_threads() -> None:
    """Start without late threads in a forked child, and with a lock that no lost thread holds."""
    global _late_thread_count, _late_thread_lock
    _late_thread_count = 0
    _late_thread_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_late_threads)


async def _run_in_thread(
    tool: Tool, parameters: tuple[Any, ...], order: StartOrder | None, convert: Convert
) -> Any:
    """Run in a worker thread, which a tool that hangs keeps for itself."""
    if _late_thread_count >= MAX_LATE_THREADS:
        raise ToolFailure(
            f"not started: {_late_thread_count} earlier tool runs are still running after their timeout; "
            "give such tools `isolation: process`"
        )
    run = _ThreadRun(tool, parameters, order, convert)
    timer = run.loop.call_later(tool.timeout_s, run.end_as_timed_out)
    try:
        # As late as possible: the worker needs the interpreter's lock, which is held here.
        if order is None:
            start_job(run)
        else:
            order.begin(partial(_take_worker().jobs.put, run))
        value, failure = await run.end
    except RuntimeError as error:
        raise ToolFailure(f"not started: {error}") from None
    except asyncio.CancelledError:
        run.mark_late()
        raise
    finally:
        timer.cancel()
    if isinstance(failure, _Unawaited):
        unawaited = failure.value
        return await _await_as_task(lambda: unawaited, max(0.0, timer.when() - run.loop.time()), convert)
    if failure is not None:
        raise failure
    return value


class _Unawaited(Exception):
    """A function in a thread returned what only an event loop can read."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__()


class _ThreadRun:
    """One run of a tool as the job of a worker thread, and a future of the event loop for its end."""

    def __init__(
        self,
        tool: Tool,
        parameters: tuple[Any, ...],
        order: StartOrder | None,
        convert: Convert = keep_result,
    ) -> None:
        self.name = f"tool {tool.name}"
        self._order = order
        self._convert = convert
        self.loop = asyncio.get_running_loop()
        self.end: _End = self.loop.create_future()
        self._function = tool.run
        self._parameters = parameters
        self._context = contextvars.copy_context()
        self._value: Any = None
        self._failure: BaseException | None = None
        self._is_late = False
        self._is_finished = False

    def run(self) -> None:
        """Run the function and keep its result, unless nobody waits any more; called in the worker thread."""
        global _late_thread_count
        if self._order is not None:
            # This thread has the interpreter's lock and goes on: the next one waits for it.
            self._order.note_begun()
        try:
            if not self._is_late:
                value = self._context.run(self._function, *self._parameters)
                if type(value) in _PLAIN_TYPES:
                    self._value, self._failure = _convert_value(self._convert, value)
                else:
                    self._context.run(self._read, value)
        except BaseException as error:
            self._failure = _make_failure(error)
        with _late_thread_lock:
            self._is_finished = True
            if self._is_late:
                _late_thread_count -= 1

    def _read(self, value: Any) -> None:
        """Read a result that may stand for others; one that has to be awaited is left to the event loop."""
        if not must_be_awaited(value):
            value = read_value(value, lambda: self._is_late)
            self._value, self._failure = _convert_value(self._convert, value)
        else:
            self._failure = _Unawaited(value)

    def report_end(self) -> None:
        """Pass the result to the event loop; called in the worker thread."""
        if self._is_late:
            if isinstance(self._failure, _Unawaited):
                close_unused(self._failure.value)
            return
        try:
            self.loop.call_soon_threadsafe(_set_end, self.end, self._value, self._failure)
        except RuntimeError:
            return  # the loop has been closed; nobody waits for the result

    def end_as_timed_out(self) -> None:
        """Stop waiting, unless the result is already on its way."""
        if self.mark_late():
            _set_end(self.end, None, ToolTimeout())

    def mark_late(self) -> bool:
        """Count the thread as late until it ends; returns false where it has ended."""
        global _late_thread_count
        with _late_thread_lock:
            if self._is_finished:
                return False
            self._is_late = True
            _late_thread_count += 1
            return True


IDLE_S = 10.0
"""Seconds after which an idle worker ends.

The number of idle workers has no bound of its own: there are never more than the calls that ran at the
same time within these seconds. The worker that became idle last is used first, so surplus workers stay
idle and end. Ten seconds outlast the model's answer between two calls of most conversations; starting a
worker again costs a tenth of a millisecond."""

_IDLE_NAME = "idle tool worker"


class Job(Protocol):
    """What a worker runs. Neither method may raise."""

    name: str
    """The worker's name while it runs."""

    def run(self) -> None:
        """Do the work."""

    def report_end(self) -> None:
        """Tell whoever waits; called when the worker is idle again, so that the next job finds it."""


class _Worker:
    """One daemon thread and the queue of its next job."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Job] = SimpleQueue()
        self._thread = threading.Thread(target=self._run_jobs, name=_IDLE_NAME, daemon=True)
        self._thread.start()

    def _run_jobs(self) -> None:
        while (job := self._wait_for_job()) is not None:
            self._thread.name = job.name
            job.run()
            self._thread.name = _IDLE_NAME
            _idle_workers.append(self)
            job.report_end()
            del job  # an idle worker must not keep arguments and results alive

    def _wait_for_job(self) -> Job | None:
        """The next job; None where the worker was idle for too long and is to end."""
        try:
            return self.jobs.get(timeout=IDLE_S)
        except Empty:
            pass
        try:
            _idle_workers.remove(self)
        except ValueError:  # `start_job` has just taken this worker, so its job will come
            return self.jobs.get()
        return None


_idle_workers: list[_Worker] = []
"""The one that became idle last is at the end. Only single operations, which are atomic, are used."""


def start_job(job: Job) -> None:
    """Start a job in the worker that became idle last, or in a new one.

    Raises:
        RuntimeError: the system cannot start another thread.
    """
    _take_worker().jobs.put(job)


def _take_worker() -> _Worker:
    """The worker that became idle last, or a new one; it waits for one job.

    Raises:
        RuntimeError: the system cannot start another thread.
    """
    try:
        return _idle_workers.pop()
    except IndexError:
        return _Worker()


if hasattr(os, "register_at_fork"):
    # A forked child has no thread but the one that forked: a job for an idle worker would never run.
    os.register_at_fork(after_in_child=_idle_workers.clear)


# -- the order of runs that begin side by side ----------------------------------------------------


class StartOrder:
    """Lets runs begin in the order in which they are handed over, on the event loop and in threads.

    A thread that is woken begins whenever the system lets it, so two threads that are woken one after the
    other begin in any order. Here the next one is woken by the one before, when that one runs. It holds the
    interpreter's lock then: the next one begins when it waits for something, returns, or has run for some
    milliseconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_beginning = False
        """Whether a run was let begin that has not begun yet."""
        self._next_starts: deque[Callable[[], None]] = deque()

    def begin(self, start: Callable[[], None]) -> None:
        """Call a function that starts a run, as soon as the run before has begun; it must not raise."""
        with self._lock:
            if self._is_beginning:
                self._next_starts.append(start)
                return
            self._is_beginning = True
        start()

    def note_begun(self) -> None:
        """The run that was let begin has begun, or never will: the next one begins."""
        with self._lock:
            start = self._next_starts.popleft() if self._next_starts else None
            self._is_beginning = start is not None
        if start is not None:
            start()

    async def wait(self) -> None:
        """Return on the event loop when the run before has begun; `note_begun` must follow."""
        turn = asyncio.get_running_loop().create_future()
        self.begin(partial(self._pass_to_loop, turn, threading.get_ident()))
        await turn

    def _pass_to_loop(self, turn: asyncio.Future[None], loop_thread: int) -> None:
        if threading.get_ident() == loop_thread:
            self._end_wait(turn)
            return
        wake = _LoopWake(turn, partial(self._end_wait, turn))
        try:
            # Not from this thread: to wake the loop it would give up the interpreter's lock, and what waits
            # there would begin first.
            start_job(wake)
        except RuntimeError:
            wake.run()

    def _end_wait(self, turn: asyncio.Future[None]) -> None:
        if turn.done():  # the wait was cancelled, so its run never begins
            self.note_begun()
        else:
            turn.set_result(None)


class _LoopWake:
    """The job that lets the event loop of a future go on."""

    name = "tool start"

    def __init__(self, turn: asyncio.Future[None], end_wait: Callable[[], None]) -> None:
        self._loop, self._end_wait = turn.get_loop(), end_wait

    def run(self) -> None:
        """Wake the loop."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed; nobody waits
            self._loop.call_soon_threadsafe(self._end_wait)

    def report_end(self) -> None:
        """Nobody waits for the end of this job."""


_RUN_BY_MODE: dict[
    ExecutionMode, Callable[[Tool, tuple[Any, ...], StartOrder | None, Convert], Coroutine[Any, Any, Any]]
] = {"inline": _run_inline, "async": _run_as_task, "thread": _run_in_thread, "process": _run_in_process}
