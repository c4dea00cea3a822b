"""Streams a turn: turns the driver's observer callbacks into values of an async generator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Protocol

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
