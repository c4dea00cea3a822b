"""Streams a turn: turns the driver's observer callbacks into values of a generator, async or blocking."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Protocol

import msgspec

from toolchart.engine.runtime.parts import DeltaObserver, Observer
from toolchart.engine.runtime.result import TurnResult
from toolchart.states.core.step import Step
from toolchart.states.events import Event
from toolchart.states.messages import Delta


class StepTaken(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the conversation: the event and the step that it made."""

    event: Event
    step: Step


class ObservableTurn(Protocol):
    """A function that runs a turn and calls observers."""

    async def __call__(self, *, observer: Observer, on_delta: DeltaObserver) -> TurnResult:
        """Run the turn and return its result."""
        ...


async def stream_turn(turn: ObservableTurn) -> AsyncGenerator[StepTaken | Delta | TurnResult, None]:
    """Run a turn; yield its steps and deltas in order, and its result last.

    Closing the generator early cancels the turn.

    Raises:
        Any error of the turn, after all steps and deltas before it.
    """
    queue: asyncio.Queue[StepTaken | Delta | None] = asyncio.Queue()
    running = asyncio.ensure_future(
        turn(
            observer=lambda event, step: queue.put_nowait(StepTaken(event=event, step=step)),
            on_delta=queue.put_nowait,
        )
    )
    running.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
        yield await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def stream_turn_blocking(
    turn: ObservableTurn, run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
) -> Generator[StepTaken | Delta | TurnResult, None, None]:
    """As `stream_turn`, for a caller without an event loop. The turn runs in a thread of its own.

    So it goes on, and keeps its lease, however slowly its pieces are taken. Closing the generator early
    cancels the turn and waits for its end.

    Args:
        run: runs a coroutine to its end.
    """
    pieces: SimpleQueue[StepTaken | Delta | TurnResult | None] = SimpleQueue()
    begun, tasks, errors = threading.Event(), [], []

    async def run_turn() -> None:
        tasks.append((asyncio.get_running_loop(), asyncio.current_task()))
        begun.set()
        async with aclosing(stream_turn(turn)) as items:
            async for item in items:
                pieces.put(item)

    def work() -> None:
        try:
            run(run_turn)
        except BaseException as error:  # the caller's thread raises it
            errors.append(error)
        finally:
            begun.set()
            pieces.put(None)

    thread = threading.Thread(target=copy_context().run, args=(work,), name="toolchart-stream", daemon=True)
    thread.start()
    has_ended = False
    try:
        while (item := pieces.get()) is not None:
            yield item
        has_ended = True
    finally:
        begun.wait()
        if not has_ended:
            for loop, task in tasks:
                # The loop may have ended meanwhile, with the turn.
                if task is not None and not loop.is_closed():
                    loop.call_soon_threadsafe(task.cancel)
        thread.join()
    if errors:
        raise errors[0]
