"""Running one tool within its timeout, in its execution mode.

Inline on the event loop, as an asyncio task that can be cancelled, in a thread whose late result is
dropped, or in a child process that can be killed. Every fault of the tool is raised as `ToolFailure` or
`ToolTimeout`; the only other exception is a cancellation from outside.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from toolchart.tools.definition import Tool, ToolFailure, ToolTimeout
from toolchart.tools.execution.context import CallContext
from toolchart.tools.execution.isolation import run_in_process

CLEANUP_S = 1.0
"""Seconds that a cancelled async tool may take to clean up before the executor stops waiting."""

MAX_LATE_THREADS = 32
"""Threads past their timeout that may still run. With that many, no further thread is started."""


_PLAIN_TYPES = frozenset({str, int, float, bool, type(None), dict, list})
"""Types that are certainly not awaitable: a cheap test, made before `inspect.isawaitable`."""


async def run_tool(tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> Any:
    """Run a tool and return what it returned.

    Raises:
        ToolFailure: the tool refused or failed, in whatever way.
        ToolTimeout: it did not finish within `tool.timeout_s`.
    """
    parameters = (arguments, context) if tool.needs_context else (arguments,)
    match tool.execution_mode:
        case "inline":
            value = _run_inline(tool, parameters)
            # A builtin may return an awaitable for the rare input that takes long.
            if type(value) in _PLAIN_TYPES or not inspect.isawaitable(value):
                return value
            return await _run_as_task(value, tool.timeout_s)
        case "async":
            return await _run_as_task(tool.run(*parameters), tool.timeout_s)
        case "thread":
            return await _run_in_thread(tool, parameters)
        case "process":
            return await run_in_process(tool, arguments)


def _run_inline(tool: Tool, parameters: tuple[Any, ...]) -> Any:
    try:
        return tool.run(*parameters)
    except ToolFailure:
        raise
    except Exception as error:
        raise ToolFailure(describe_error(error)) from error


def describe_error(error: BaseException) -> str:
    """Class name and text of an exception; the class name alone where its `__str__` fails."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# -- as a task -----------------------------------------------------------------------------------


async def _run_as_task(work: Any, timeout_s: float) -> Any:
    task = asyncio.ensure_future(_await_work(work))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        await _cancel_task(task)
        raise
    if done:
        return task.result()
    await _cancel_task(task)
    raise ToolTimeout


async def _await_work(work: Any) -> Any:
    """Await the tool's coroutine; each of its own exceptions becomes a `ToolFailure`."""
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
        raise ToolFailure(describe_error(error)) from error


async def _cancel_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait `CLEANUP_S` for it to end."""
    task.cancel()
    await asyncio.wait({task}, timeout=CLEANUP_S)
    if task.done() and not task.cancelled():
        task.exception()  # marks the exception as retrieved, so that asyncio does not log it


# -- in a thread ---------------------------------------------------------------------------------

_late_thread_count = 0
_late_thread_lock = threading.Lock()


async def _run_in_thread(tool: Tool, parameters: tuple[Any, ...]) -> Any:
    """Run in a new daemon thread. The event loop's thread pool is not used: a tool that hangs would
    occupy a place in it and keep the interpreter from exiting."""
    if _late_thread_count >= MAX_LATE_THREADS:
        raise ToolFailure(
            f"not started: {_late_thread_count} earlier tool runs are still running after their timeout; "
            "give such tools `isolation: process`"
        )
    run = _ThreadRun(tool.run, parameters)
    threading.Thread(target=run.run_function, name=f"tool {tool.name}", daemon=True).start()
    try:
        done, _ = await asyncio.wait({run.future}, timeout=tool.timeout_s)
    except asyncio.CancelledError:
        run.stop_waiting()
        raise
    if done:
        return run.future.result()
    run.stop_waiting()
    raise ToolTimeout


class _ThreadRun:
    """One function in one thread, and an asyncio future for its result."""

    def __init__(self, function: Callable[..., Any], parameters: tuple[Any, ...]) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self._function = function
        self._parameters = parameters
        self._context = contextvars.copy_context()
        self._is_late = False
        self._is_finished = False

    def run_function(self) -> None:
        """The thread's target: run the function and pass its result to the event loop."""
        global _late_thread_count
        value: Any = None
        failure: ToolFailure | None = None
        try:
            value = self._context.run(self._function, *self._parameters)
        except ToolFailure as tool_failure:
            failure = tool_failure
        except BaseException as error:
            failure = ToolFailure(describe_error(error))
        with _late_thread_lock:
            self._is_finished = True
            if self._is_late:
                _late_thread_count -= 1
                return
        try:
            self._loop.call_soon_threadsafe(self._set_result, value, failure)
        except RuntimeError:
            return  # the loop has been closed; nobody waits for the result

    def _set_result(self, value: Any, failure: ToolFailure | None) -> None:
        if self.future.done():
            return
        if failure is not None:
            self.future.set_exception(failure)
        else:
            self.future.set_result(value)

    def stop_waiting(self) -> None:
        """Drop the result; the thread counts as late until it ends."""
        global _late_thread_count
        with _late_thread_lock:
            if not self._is_finished:
                self._is_late = True
                _late_thread_count += 1
        self.future.cancel()
