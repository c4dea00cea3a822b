"""Streams a turn: the driver's observer callbacks become values of `TurnStream`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from typing import Any, Generic, Protocol, TypeAlias

from toolchart.engine.event_loops import get_asyncio_loop
from toolchart.engine.runtime.answer_form import AnswerType, make_answer_type
from toolchart.engine.runtime.blocking_calls import BlockingCalls, iterate_in_thread
from toolchart.engine.runtime.parts import DeltaObserver, Observer
from toolchart.engine.runtime.result import OutputAhead, Turn
from toolchart.states.content import Value
from toolchart.states.core.step import Step
from toolchart.states.errors import ToolchartError
from toolchart.states.events import Event
from toolchart.states.messages import Delta, TextDelta, TextWithdrawn


class StepTaken(Value, frozen=True, kw_only=True, tag_field="type", tag="step_taken"):
    """One step of the conversation: the event and the step that it made."""

    event: Event
    step: Step

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON data: its event, what it asks for, and where it led; not the whole snapshot."""
        return {
            "type": "step_taken",
            "event": self.event.to_dict(),
            "effects": [effect.to_dict() for effect in self.step.effects],
            "source": self.step.source,
            "target": self.step.target,
            "is_late": self.step.is_late,
        }


class PartialOutput(Value, frozen=True, kw_only=True, tag_field="type", tag="partial_output"):
    """The part of a structured answer that has been streamed so far.

    Each value holds what came before. The last one before the result may still break the type: only
    `Turn.output` is checked.
    """

    value: Any
    """JSON data, as far as it is there: fields that have not come yet are missing, and a text may be cut."""


Piece: TypeAlias = StepTaken | Delta | PartialOutput | Turn[OutputAhead]
"""What a streamed turn yields: its steps and deltas in order, its result last. With an `output_type` a piece
of text is followed by what is there of the answer."""


class ObservableTurn(Protocol):
    """A function that runs a turn and calls observers."""

    async def __call__(self, *, observer: Observer, on_delta: DeltaObserver) -> Turn:
        """Run the turn and return its result."""
        ...


class _KeepsTurn(Generic[OutputAhead]):
    """A stream that keeps the result of its turn."""

    _turn: Turn[OutputAhead] | None = None

    @property
    def turn(self) -> Turn[OutputAhead]:
        """The result of the turn, when the stream has come to its end.

        Raises:
            ToolchartError: it has not: it is still read, was closed early, or the turn raised an error.
        """
        if self._turn is None:
            raise ToolchartError(
                "the stream has not come to its end, so its turn has no result yet\n"
                "  read it to the end first; `read_turn` of the conversation says how a turn stands that was "
                "closed early"
            )
        return self._turn


class TurnStream(_KeepsTurn[OutputAhead], AsyncGenerator[Piece[OutputAhead], None]):
    """A turn that runs while it is read: `async for piece in stream`, and then `stream.turn`.

    Reading begins the turn. Closing it early, with `aclose` or at the end of an `async with` block, cancels
    the turn; the log has every step before that.

    Args:
        pieces: what it yields.
    """

    def __init__(self, pieces: AsyncGenerator[Piece[Any], None]) -> None:
        self._pieces = pieces

    async def __anext__(self) -> Piece[OutputAhead]:
        """The next piece.

        Raises:
            Any error of the turn, after all steps and deltas before it.
        """
        piece = await self._pieces.__anext__()
        if isinstance(piece, Turn):
            self._turn = piece
        return piece

    async def asend(self, value: None) -> Piece[OutputAhead]:
        """As reading it: a turn takes no values."""
        return await self.__anext__()

    async def athrow(self, *error: Any) -> Piece[OutputAhead]:
        """Raise an error where the turn stands, which cancels it."""
        return await self._pieces.athrow(*error)

    async def aclose(self) -> None:
        """Cancel the turn where it runs, and wait for its end."""
        await self._pieces.aclose()

    def make_blocking(self, calls: BlockingCalls) -> BlockingTurnStream[OutputAhead]:
        """The stream for a program without an event loop; the turn runs in a thread of its own.

        Args:
            calls: what runs the loop of that thread.
        """
        return BlockingTurnStream(iterate_in_thread(self._pieces, calls))

    async def __aenter__(self) -> TurnStream[OutputAhead]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class BlockingTurnStream(_KeepsTurn[OutputAhead], Generator[Piece[OutputAhead], None, None]):
    """A turn that is read in a program without an event loop: `for piece in stream`, and then `stream.turn`.

    Closing it early, with `close` or at the end of a `with` block, cancels the turn.

    Args:
        pieces: what it yields.
    """

    def __init__(self, pieces: Generator[Piece[Any], None, None]) -> None:
        self._pieces = pieces

    def __next__(self) -> Piece[OutputAhead]:
        """The next piece.

        Raises:
            Any error of the turn, after all steps and deltas before it.
        """
        piece = next(self._pieces)
        if isinstance(piece, Turn):
            self._turn = piece
        return piece

    def send(self, value: None) -> Piece[OutputAhead]:
        """As reading it: a turn takes no values."""
        return self.__next__()

    def throw(self, *error: Any) -> Piece[OutputAhead]:
        """Raise an error where the turn stands, which cancels it."""
        return self._pieces.throw(*error)

    def close(self) -> None:
        """Cancel the turn where it runs, and wait for its end."""
        self._pieces.close()

    def __enter__(self) -> BlockingTurnStream[OutputAhead]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stream_turn(turn: ObservableTurn, output_type: Any = None) -> TurnStream[Any]:
    """Run a turn as it is read.

    Args:
        output_type: the type of its answer, whose parts are yielded too; None where it has none.
    """
    return TurnStream(_watch_turn(turn, output_type))


async def _watch_turn(turn: ObservableTurn, output_type: Any) -> AsyncGenerator[Piece[Any], None]:
    loop = get_asyncio_loop()
    queue: asyncio.Queue[StepTaken | Delta | None] = asyncio.Queue()
    form = None if output_type is None else make_answer_type(output_type)
    reader = None if form is None or form.is_text else _PartialReader(form)
    running = asyncio.ensure_future(
        turn(
            observer=lambda event, step: queue.put_nowait(StepTaken(event=event, step=step)),
            on_delta=queue.put_nowait,
        ),
        loop=loop,
    )
    running.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
            if reader is not None and (partial := reader.read(item)) is not None:
                yield partial
        yield await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class _PartialReader:
    """Reads the JSON of an answer while it is streamed."""

    def __init__(self, form: AnswerType) -> None:
        self._form = form
        self._text = ""
        self._last: Any = None

    def read(self, piece: StepTaken | Delta) -> PartialOutput | None:
        """The answer with a piece more; None where the piece adds nothing that can be read."""
        if isinstance(piece, TextWithdrawn):
            self._text, self._last = "", None
        if not isinstance(piece, TextDelta):
            return None
        self._text += piece.text
        value = self._form.parse_partially(self._text)
        if value is None or value == self._last:
            return None
        self._last = value
        return PartialOutput(value=value)
