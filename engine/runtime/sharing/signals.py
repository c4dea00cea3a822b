"""Signals that cancel a blocking call of an engine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from signal import SIG_DFL, Signals, getsignal, signal
from typing import Any, TypeVar

from toolchart.states.errors import TurnCancelled

Value = TypeVar("Value")


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
