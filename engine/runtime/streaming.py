"""A turn as a stream: what the driver tells its observers, as values one can iterate over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from toolchart.engine.runtime.driver import DeltaObserver, Observer
from toolchart.engine.runtime.result import TurnResult
from toolchart.states.core.step import Step
from toolchart.states.deltas import Delta
from toolchart.states.events import AnyEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A step was taken: what came in, and what the machine did with it."""

    event: AnyEvent
    step: Step


class Watched(Protocol):
    """A turn that can be watched."""

    async def __call__(self, *, observer: Observer, on_delta: DeltaObserver) -> TurnResult:
        """Run the turn."""
        ...


async def streamed(turn: Watched) -> AsyncGenerator[Moved | Delta | TurnResult, None]:
    """Everything that happens in a turn, in order, and last its result.

    Raises:
        What the turn raises, after everything that came before it.
    """
    happened: asyncio.Queue[Moved | Delta | None] = asyncio.Queue()
    running = asyncio.ensure_future(
        turn(
            observer=lambda event, step: happened.put_nowait(Moved(event=event, step=step)),
            on_delta=happened.put_nowait,
        )
    )
    running.add_done_callback(lambda _: happened.put_nowait(None))
    try:
        while (one := await happened.get()) is not None:
            yield one
        yield await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
