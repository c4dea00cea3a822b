"""Running one tool within its time, each in its own way.

On the loop for what is quick and bounded, as a task that is cancelled, in a thread whose late
result is dropped, or in a process that is killed. What a tool does wrong comes out as `ToolFailure`
or `TimedOut`, never as anything else but a cancellation from outside.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.execution.context import CallContext

GRACE_S = 1.0
"""How long a cancelled async tool may take to clean up before it is left to itself."""

MOST_LATE_THREADS = 32
"""Threads past their time that may still be running; beyond it no further one is started."""


_DATA = frozenset({str, int, float, bool, type(None), dict, list})
"""What nobody awaits; anything else is asked, which takes longer."""


class TimedOut(Exception):
    """The tool's time is over."""


async def perform(tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> Any:
    """The tool's answer.

    Raises:
        ToolFailure: the tool says no, or failed in whatever way.
        TimedOut: its time is over.
    """
    given = (arguments, context) if tool.needs_context else (arguments,)
    match tool.way:
        case "inline":
            value = _inline(tool, given)
            # A builtin may hand the rare hard case on to something that is awaited.
            return value if type(value) in _DATA else await _if_awaited(value, tool.timeout_s)
        case "async":
            return await _awaited(tool.run(*given), tool.timeout_s)
        case "thread":
            return await _threaded(tool, given)
        case "process":
            from toolchart.tools.execution.isolation import run_in_process

            return await run_in_process(tool, arguments)


async def _if_awaited(value: Any, timeout_s: float) -> Any:
    return await _awaited(value, timeout_s) if inspect.isawaitable(value) else value


def _inline(tool: Tool, given: tuple[Any, ...]) -> Any:
    try:
        return tool.run(*given)
    except ToolFailure:
        raise
    except Exception as error:
        raise ToolFailure(words_of(error)) from error


def words_of(error: BaseException) -> str:
    """What an exception says, whatever its own `__str__` does."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# -- awaited -------------------------------------------------------------------------------------


async def _awaited(work: Any, timeout_s: float) -> Any:
    task = asyncio.ensure_future(_guarded(work))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        await _ended(task)
        raise
    if done:
        return task.result()
    await _ended(task)
    raise TimedOut


async def _guarded(work: Any) -> Any:
    """The tool's coroutine with every failure of its own in words."""
    try:
        return await work if inspect.isawaitable(work) else work
    except ToolFailure:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ToolFailure("the tool cancelled itself") from None
    except (Exception, SystemExit) as error:
        raise ToolFailure(words_of(error)) from error


async def _ended(task: asyncio.Future[Any]) -> None:
    """Cancel, and wait a moment for the tool's own cleaning up."""
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE_S)
    if task.done() and not task.cancelled():
        task.exception()  # looked at, so that the loop does not complain of it


# -- in a thread ---------------------------------------------------------------------------------

_late = 0
_late_lock = threading.Lock()


async def _threaded(tool: Tool, given: tuple[Any, ...]) -> Any:
    """Run in a thread of its own, not in the loop's pool: a tool that hangs must not use that up,
    nor keep the interpreter from ending."""
    if _late >= MOST_LATE_THREADS:
        raise ToolFailure(
            f"not started: {_late} earlier tool runs are still going past their time; give such "
            "tools `isolation: process`"
        )
    run = _Run(tool.run, given)
    threading.Thread(target=run.work, name=f"tool {tool.name}", daemon=True).start()
    try:
        done, _ = await asyncio.wait({run.future}, timeout=tool.timeout_s)
    except asyncio.CancelledError:
        run.leave()
        raise
    if done:
        return run.future.result()
    run.leave()
    raise TimedOut


class _Run:
    """One function in one thread, and a future that hears of its end."""

    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self._function = function
        self._given = given
        self._context = contextvars.copy_context()
        self._left = False
        self._over = False

    def work(self) -> None:
        """The thread's own part."""
        global _late
        value: Any = None
        failure: ToolFailure | None = None
        try:
            value = self._context.run(self._function, *self._given)
        except ToolFailure as said:
            failure = said
        except BaseException as error:
            failure = ToolFailure(words_of(error))
        with _late_lock:
            self._over = True
            if self._left:
                _late -= 1
                return
        try:
            self._loop.call_soon_threadsafe(self._settle, value, failure)
        except RuntimeError:
            return  # the loop was closed meanwhile; nobody waits any more

    def _settle(self, value: Any, failure: ToolFailure | None) -> None:
        if self.future.done():
            return
        if failure is not None:
            self.future.set_exception(failure)
        else:
            self.future.set_result(value)

    def leave(self) -> None:
        """Stop waiting; the thread goes on alone and is counted until it ends."""
        global _late
        with _late_lock:
            if not self._over:
                self._left = True
                _late += 1
        self.future.cancel()
