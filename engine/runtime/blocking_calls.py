"""Blocking calls of coroutines, from any number of threads, on one event loop.

Each blocking method is made from its async form by `blocking` or `blocking_stream`, which keep its signature.

Connections of the SDKs belong to the loop that opened them, so an engine has one loop for all blocking calls.
The first thread that calls runs the loop. A thread that calls meanwhile hands its coroutine over and waits;
when the first one has its result, a waiting thread runs the loop on. So a single caller pays for no second
thread, and its tools, observers and Ctrl-C stay in its own thread.

Greenlets (gevent) count as threads here, but asyncio allows one running loop for each thread of the system.
So greenlets can share one engine, and those with an engine each are refused while another one's turn runs.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import aclosing
from contextvars import copy_context
from functools import partial, wraps
from queue import SimpleQueue
from signal import SIG_DFL, Signals, getsignal, signal
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from toolchart.engine.event_loops import find_running_loop
from toolchart.states.errors import ToolchartError, TurnCancelled

Value = TypeVar("Value")
Blocking = TypeVar("Blocking", covariant=True)

Parameters = ParamSpec("Parameters")
Caller = TypeVar("Caller", bound="BlockingCaller")

Start = Callable[[], Coroutine[Any, Any, Value]]


class BlockingCaller(Protocol):
    """What has blocking methods."""

    _calls: BlockingCalls


def blocking(
    method: Callable[Concatenate[Caller, Parameters], Coroutine[Any, Any, Value]],
) -> Callable[Concatenate[Caller, Parameters], Value]:
    """The blocking form of an async method, with the same arguments, result and errors.

    It raises `ToolchartError` where an event loop is running, and names the async form.
    """
    name = method.__name__  # by name, so that a subclass that changes the async form changes this one

    @wraps(method)
    def call(self: Caller, /, *args: Parameters.args, **options: Parameters.kwargs) -> Value:
        return self._calls.run(partial(getattr(self, name), *args, **options), instead=f"await `{name}(...)`")

    return _describe(call, name)


class BlockableStream(Protocol[Blocking]):
    """A stream that can be read by a program without an event loop."""

    def make_blocking(self, calls: BlockingCalls) -> Blocking:
        """Its blocking form."""
        ...


def blocking_stream(
    method: Callable[Concatenate[Caller, Parameters], BlockableStream[Blocking]],
) -> Callable[Concatenate[Caller, Parameters], Blocking]:
    """The blocking form of a method that streams a turn, which runs in a thread of its own.

    So it goes on, and keeps its lease, however slowly its pieces are taken. Closing the stream early
    cancels the turn and waits for its end. It raises `ToolchartError` where an event loop is running.
    """
    name = method.__name__

    @wraps(method)
    def call(self: Caller, /, *args: Parameters.args, **options: Parameters.kwargs) -> Blocking:
        self._calls.refuse_running_loop(f"read `{name}(...)` by `async for`")
        stream: BlockableStream[Blocking] = getattr(self, name)(*args, **options)
        return stream.make_blocking(self._calls)

    return _describe(call, name)


def _describe(call: Callable[..., Any], name: str) -> Any:
    """A blocking form with the name that it has in its class, and what it says of itself."""
    new_name = f"{name}_blocking" if name.startswith("stream") else name.removeprefix("a")
    call.__qualname__ = f"{call.__qualname__.removesuffix(name)}{new_name}"
    call.__name__ = new_name
    call.__doc__ = f"""The blocking form of `{name}`, with the same arguments and errors.

        Raises:
            ToolchartError: an event loop is running here; use `{name}` instead.
        """
    return call


def iterate_in_thread(
    stream: AsyncGenerator[Value, None], calls: BlockingCalls
) -> Generator[Value, None, None]:
    """The values of an async generator that runs in a thread of its own."""
    values: SimpleQueue[tuple[Value] | None] = SimpleQueue()
    begun, tasks, errors = threading.Event(), [], []

    async def put_values() -> None:
        tasks.append((asyncio.get_running_loop(), asyncio.current_task()))
        begun.set()
        async with aclosing(stream) as items:
            async for item in items:
                values.put((item,))

    def work() -> None:
        try:
            calls.run(put_values, instead="")
        except BaseException as error:  # the caller's thread raises it
            errors.append(error)
        finally:
            begun.set()
            values.put(None)

    thread = threading.Thread(target=copy_context().run, args=(work,), name="toolchart-stream", daemon=True)
    thread.start()
    has_ended = False
    try:
        while (item := values.get()) is not None:
            yield item[0]
        has_ended = True
    finally:
        # Before it has begun there is no task that could be cancelled.
        begun.wait()
        if not has_ended:
            for loop, task in tasks:
                # The loop may have ended meanwhile, with the turn.
                if task is not None and not loop.is_closed():
                    loop.call_soon_threadsafe(task.cancel)
        thread.join()
    if errors:
        raise errors[0]


def refuse_running_loop(instead: str) -> None:
    """Refuse to block a thread whose event loop runs, for that loop would stand still.

    Args:
        instead: what to do there.

    Raises:
        ToolchartError: an event loop runs in this thread.
    """
    if find_running_loop() is None:
        return
    if "gevent" in sys.modules:
        raise ToolchartError(
            "an event loop is running here, or in another greenlet of this thread\n"
            f"  let all greenlets use one engine; in a coroutine, {instead}"
        )
    raise ToolchartError(f"an event loop is running here: {instead}")


class _WaitingCall:
    """A call of a thread that does not run the loop."""

    def __init__(self, start: Start[Any]) -> None:
        self.start = start
        self.wakes = threading.Event()
        """Set when the call has ended, or its thread is to run the loop."""
        self.runs_loop = False
        self.task: asyncio.Task[Any] | None = None
        self.is_cancelled = False

    def begin(self) -> None:
        """Begin the call, in the loop."""
        self.task = asyncio.ensure_future(self.start())
        self.task.add_done_callback(lambda _: self.wakes.set())
        if self.is_cancelled:
            self.task.cancel()

    def cancel(self) -> None:
        """Cancel the call, in the loop."""
        self.is_cancelled = True
        if self.task is not None:
            self.task.cancel()


class BlockingCalls:
    """Runs coroutines for threads that wait for their results."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runner: asyncio.Runner | None = None
        self._is_running = False
        self._loop_thread = 0
        """The thread, or greenlet, that runs the loop now; 0 where none does."""
        self._waiting: list[_WaitingCall] = []
        self._background: list[asyncio.Task[Any]] = []
        self._rests = threading.Condition(self._lock)

    def run(self, start: Start[Value], *, instead: str) -> Value:
        """Run a coroutine and return its result.

        Args:
            instead: what to do where an event loop runs: the async form of what was called.

        Raises:
            ToolchartError: an event loop runs in this thread.
        """
        self.refuse_running_loop(instead)
        with self._lock:
            if self._runner is None:
                self._runner = asyncio.Runner()
            runner, call = self._runner, None
            loop = runner.get_loop()
            if self._is_running:
                call = _WaitingCall(start)
                self._waiting.append(call)
                loop.call_soon_threadsafe(call.begin)
            self._is_running = True
        if call is None:
            return self._run_loop(runner, start)
        result: Value = self._wait(runner, loop, call)
        return result

    def submit(self, start: Start[Any]) -> None:
        """Begin a coroutine beside the calls that run now, and return at once; for a signal handler."""
        # Without the lock: a signal handler runs in the middle of what its thread does, which may hold it.
        runner = self._runner
        if runner is not None and self._is_running:
            loop = runner.get_loop()
            loop.call_soon_threadsafe(lambda: self._background.append(loop.create_task(start())))

    def _run_loop(self, runner: asyncio.Runner, start: Start[Value]) -> Value:
        """Run the loop in this thread until a coroutine has ended; then let another thread run it on."""
        results: list[Value] = []

        async def keep_result() -> None:
            results.append(await start())

        self._loop_thread = threading.get_ident()
        try:
            # The task itself has no result: when it ends, `signal` renders the handler of Ctrl-C twice by
            # `repr`, which shows the task and, with it, the whole result of a turn.
            runner.run(keep_result())
            return results[0]
        finally:
            self._loop_thread = 0
            with self._lock:
                self._waiting = [call for call in self._waiting if not call.wakes.is_set()]
                if self._waiting:
                    # Before it is woken: its thread looks at this next.
                    self._waiting[0].runs_loop = True
                    self._waiting.pop(0).wakes.set()
                else:
                    self._is_running = False
                    self._rests.notify_all()

    def _wait(self, runner: asyncio.Runner, loop: asyncio.AbstractEventLoop, call: _WaitingCall) -> Any:
        """Wait for the result of a call that another thread's loop runs."""
        try:
            call.wakes.wait()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(call.cancel)
            call.wakes.wait()
            if call.runs_loop:
                self._run_loop(runner, lambda: _end_call(call))
            raise
        if call.runs_loop:
            return self._run_loop(runner, lambda: _await_call(call))
        assert call.task is not None, "it has ended, so it has begun"
        return call.task.result()

    async def release(self) -> None:
        """End the event loop of the blocking calls when none runs, from another event loop; its connections
        close with it. Nothing happens where it is this loop, or there is none."""
        runner = self._runner
        if runner is not None and runner.get_loop() is not asyncio.get_running_loop():
            await asyncio.to_thread(self._end_loop)

    def _end_loop(self) -> None:
        with self._lock:
            while self._is_running:
                self._rests.wait()
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def refuse_running_loop(self, instead: str) -> None:
        """Refuse to wait in a thread whose event loop runs, for that loop would stand still.

        Args:
            instead: what to do there.

        Raises:
            ToolchartError: it is no loop of these calls, or this is its own thread.
        """
        loop = find_running_loop()
        if loop is not None and not self._is_run_by_other_greenlet(loop):
            refuse_running_loop(instead)

    def _is_run_by_other_greenlet(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a running loop is the one of these calls, and another greenlet of this thread runs it."""
        runner = self._runner
        is_own = runner is not None and self._loop_thread != 0 and runner.get_loop() is loop
        return is_own and self._loop_thread != threading.get_ident()

    def close(self, end: Start[None]) -> None:
        """Run a last coroutine when no other call runs, and close the loop; safe to call twice.

        Raises:
            ToolchartError: an event loop runs in this thread.
        """
        self.refuse_running_loop("await its `aclose()`, or use `async with`")
        with self._lock:
            while self._is_running:
                self._rests.wait()
            runner, self._runner = self._runner, None
            if runner is None:
                runner = asyncio.Runner()
        try:
            runner.run(end())
        finally:
            runner.close()


async def _await_call(call: _WaitingCall) -> Any:
    """The result of a call, in the loop."""
    await asyncio.sleep(0)  # its beginning was handed to the loop before this
    assert call.task is not None
    return await call.task


async def _end_call(call: _WaitingCall) -> None:
    """Wait until a cancelled call has ended, in the loop."""
    await asyncio.sleep(0)
    if call.task is not None:
        await asyncio.gather(call.task, return_exceptions=True)


# --------------------------------------------------------------------------------------------------
# Signals that cancel a blocking call of an engine.


class SignalWatch:
    """Has signals cancel one coroutine, within a `with` block; only in the main thread.

    Programs that run tasks raise an exception in their signal handlers. Raised in the middle of an event
    loop, it would end whatever runs there at that moment, a tool for instance. So they are set aside.
    """

    def __init__(self, signals: Sequence[Signals]) -> None:
        self._signals = signals if threading.current_thread() is threading.main_thread() else ()
        self._handlers: dict[Signals, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._received: Signals | None = None

    def __enter__(self) -> SignalWatch:
        for number in self._signals:
            self._handlers[number] = getsignal(number)
            signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal(number, SIG_DFL if handler is None else handler)

    def _receive(self, number: int, _: Any) -> None:
        """The handler. A second signal changes nothing: the turn is being recorded."""
        if self._received is None:
            self._received = Signals(number)
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def run(self, start: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """Run a coroutine that the signals cancel.

        Raises:
            TurnCancelled: one of them came.
        """
        self._loop = asyncio.get_running_loop()
        task = asyncio.create_task(start())
        self._task = task
        if self._received is not None:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if self._received is None:
                raise
            raise TurnCancelled(self._received.name) from None
