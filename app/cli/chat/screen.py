"""What a chat shows: the answer in Markdown as it grows, states, calls and results as they happen."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markdown import Markdown

from toolchart.app.cli.terminal.live_steps import Live
from toolchart.app.cli.terminal.markdown_blocks import Blocks
from toolchart.app.cli.terminal.text import printable
from toolchart.engine.runtime.result import TurnResult
from toolchart.engine.runtime.streaming import Moved
from toolchart.states.deltas import Delta, TextDelta
from toolchart.states.events import Replied


class Screen:
    """Shows one turn after the other.

    Args:
        plain: whether answers are printed as they are, for programs.
    """

    def __init__(self, *, plain: bool) -> None:
        self.plain = plain
        self._blocks = Blocks()
        self._streamed = ""
        """Text of the reply that is growing."""

    def show(self, piece: Moved | Delta | TurnResult) -> None:
        """One thing that happened."""
        if isinstance(piece, TurnResult):
            self._ended(piece)
        elif self.plain:
            return
        elif isinstance(piece, TextDelta):
            self._streamed += piece.text
            for block in self._blocks.feed(piece.text):
                self._markdown(block)
        elif isinstance(piece, Moved):
            if isinstance(piece.event, Replied):
                self._markdown(self._blocks.end())
            Live(self._console(sys.stderr))(piece.event, piece.step)

    def _ended(self, result: TurnResult) -> None:
        if self.plain:
            print(result.content, flush=True)
            return
        self._markdown(self._blocks.end())
        if result.over and result.content.strip() not in self._streamed:
            self._markdown(result.content)  # it was not streamed: a limit's words, or an error's
        self._streamed = ""

    def _markdown(self, text: str) -> None:
        if text.strip():
            self._console(sys.stdout).print(Markdown(printable(text.strip("\n"))))

    @staticmethod
    def _console(stream: object) -> Console:
        # Made for each use: while a line is typed, the streams are others than before.
        return Console(file=stream, highlight=False)  # type: ignore[arg-type]

    def drop(self) -> None:
        """Forget a reply that was broken off, after showing what there is of it."""
        self._markdown(self._blocks.end())
        self._streamed = ""
