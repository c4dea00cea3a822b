"""Output of a chat: answers as streamed Markdown; states, tool calls and results as they happen."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markdown import Markdown

from toolchart.app.cli.terminal.live_steps import StepDisplay
from toolchart.app.cli.terminal.markdown_blocks import BlockSplitter
from toolchart.app.cli.terminal.text import escape_controls
from toolchart.engine.runtime.result import TurnResult
from toolchart.engine.runtime.streaming import StepTaken
from toolchart.states.events import Replied
from toolchart.states.messages import Delta, TextDelta


class Screen:
    """Shows one turn after the other.

    Args:
        is_plain: whether to print answers unformatted, for programs.
    """

    def __init__(self, *, is_plain: bool) -> None:
        self.is_plain = is_plain
        self._blocks = BlockSplitter()
        self._streamed_text = ""
        """Text of the reply that is being streamed."""

    def show(self, piece: StepTaken | Delta | TurnResult) -> None:
        """Show a step, a piece of text, or the result of the turn."""
        if isinstance(piece, TurnResult):
            self._show_result(piece)
        elif self.is_plain:
            return
        elif isinstance(piece, TextDelta):
            self._streamed_text += piece.text
            for block in self._blocks.add_text(piece.text):
                self._print_markdown(block)
        elif isinstance(piece, StepTaken):
            if isinstance(piece.event, Replied):
                self._print_markdown(self._blocks.finish())
            StepDisplay(self._open_console(sys.stderr))(piece.event, piece.step)

    def _show_result(self, result: TurnResult) -> None:
        if self.is_plain:
            print(result.content, flush=True)
            return
        self._print_markdown(self._blocks.finish())
        if result.is_over and result.content.strip() not in self._streamed_text:
            self._print_markdown(result.content)  # not streamed: the text of a limit or an error
        self._streamed_text = ""

    def _print_markdown(self, text: str) -> None:
        if text.strip():
            # Without hyperlinks an address is printed beside its text, so that no link lies about its target.
            markdown = Markdown(escape_controls(text.strip("\n")), hyperlinks=False)
            self._open_console(sys.stdout).print(markdown)

    @staticmethod
    def _open_console(stream: object) -> Console:
        # A new console for each use: while a line is typed, the streams are replaced.
        return Console(file=stream, highlight=False)  # type: ignore[arg-type]

    def discard_reply(self) -> None:
        """Show what arrived of a cancelled reply, then forget it."""
        self._print_markdown(self._blocks.finish())
        self._streamed_text = ""
