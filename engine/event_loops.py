"""Event loops: which one runs here, work that ends with it, and signals that every loop can wait for.

An engine lives longer than the event loops that use it: a program may call `asyncio.run` for each job, or
have a loop in each thread. What belongs to one loop must not be used on another.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator
from typing import Any

from toolchart.states.errors import ToolchartError


def find_running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread; None where none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def get_asyncio_loop() -> asyncio.AbstractEventLoop:
    """The event loop of asyncio that runs the caller: asked before anything is taken or written.

    Raises:
        ToolchartError: something else runs the coroutine, such as trio.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ToolchartError(
            "this coroutine is not run by asyncio, which Toolchart needs\n"
            "  in a trio program call the blocking form in a thread: "
            "`await trio.to_thread.run_sync(agent.run, message)`; with anyio choose its asyncio backend"
        ) from None


def begin_generator(generator: AsyncGenerator[Any]) -> None:
    """Run a generator that awaits nothing to its first `yield`.

    The running event loop knows it from then on: it closes the generator when it shuts down
    (`asyncio.run` does so), or when nobody refers to the generator any more.
    """
    with contextlib.suppress(StopIteration):
        generator.asend(None).send(None)


class Signal:
    """Something that happens once. It may be set in any thread, and awaited on any number of event loops;
    an `asyncio.Event` belongs to the first loop that waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_set = False
        """Whether it has happened."""
        self._waiting: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        """Let everybody go on who waits, now and later."""
        with self._lock:
            self.is_set = True
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            with contextlib.suppress(RuntimeError):  # its loop is dead: nobody waits any more
                future.get_loop().call_soon_threadsafe(_end_wait, future)

    async def wait(self) -> None:
        """Return when it has happened."""
        with self._lock:
            if self.is_set:
                return
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)


def _end_wait(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
