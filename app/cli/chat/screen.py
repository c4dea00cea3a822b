"""Output of a chat: answers as streamed Markdown; states, tool calls and results as they happen.

A block of Markdown can be formatted for good only when it is complete. Until then it stands as a preview
above the line that is typed, and grows with each word. Where the terminal cannot redraw lines, words are
printed as they come, unformatted.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

from rich.console import Console
from rich.markdown import Markdown

from toolchart.app.cli.terminal.live_steps import StepDisplay
from toolchart.app.cli.terminal.output import echo, get_output
from toolchart.app.cli.terminal.text import escape_controls
from toolchart.app.cli.turn_output import print_withdrawal
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.streaming import Piece, StepTaken
from toolchart.states.events import Replied
from toolchart.states.messages import TextDelta, TextWithdrawn

# -- blocks of a reply that grows -----------------------------------------------------------------------
#
# A block ends at an empty line outside a code fence, or at the closing fence. From then on no later text can
# change it, and it can be rendered. The blocks together are exactly the text that came in.

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class BlockSplitter:
    """Collects text as it arrives and returns complete Markdown blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial_line = ""
        self._fence: str | None = None

    def add_text(self, text: str) -> list[str]:
        """Add text and return the blocks that it completes."""
        if "\n" not in text:
            self._partial_line += text
            return []
        *lines, self._partial_line = (self._partial_line + text).split("\n")
        return [block for line in lines if (block := self._add_line(line + "\n"))]

    def peek(self) -> str:
        """Return the incomplete last block, to which more text may come."""
        return "".join(self._lines) + self._partial_line

    def finish(self) -> str:
        """Return the incomplete last block when no more text comes."""
        block = self.peek()
        self._lines, self._partial_line, self._fence = [], "", None
        return block

    def _add_line(self, line: str) -> str | None:
        self._lines.append(line)
        fence = _FENCE.match(line)
        if self._fence is not None:
            closes = fence and fence[1].startswith(self._fence) and not line[fence.end() :].strip()
            if not closes:
                return None
            self._fence = None
        elif fence:
            self._fence = fence[1]
            return None
        elif line.strip():
            return None
        block = "".join(self._lines)
        self._lines = []
        return block


# -- the screen -----------------------------------------------------------------------------------------

_PREVIEW_LINES = 200
"""Lines of an unfinished block that are formatted for a preview: its last ones, since only these fit."""


class Screen:
    """Shows one turn after the other.

    Args:
        is_plain: whether to print answers unformatted, for programs.
        on_preview: called when the preview has changed; None where it cannot be shown, so that words are
            printed as they come.
    """

    def __init__(self, *, is_plain: bool, on_preview: Callable[[], None] | None = None) -> None:
        self.is_plain = is_plain
        self._on_preview = on_preview
        self._blocks = BlockSplitter()
        self._streamed_text = ""
        """Text that was streamed in this turn."""
        self._has_streamed_reply = False
        """Whether text of the reply that comes now was streamed."""

    def show(self, piece: Piece) -> None:
        """Show a step, a piece of text, or the result of the turn."""
        if isinstance(piece, Turn):
            self._show_result(piece)
        elif self.is_plain:
            return
        elif isinstance(piece, TextDelta):
            if piece.doubt != "form":  # it is shown when it is known to have its form
                self._show_words(piece.text)
        elif isinstance(piece, TextWithdrawn):
            self._withdraw_text(piece)
        elif isinstance(piece, StepTaken):
            is_text_shown = self._has_streamed_reply
            if isinstance(piece.event, Replied):
                self._finish_reply()
            display = StepDisplay(self._open_console(sys.stderr))
            display.show(piece.event, piece.step, is_text_shown=is_text_shown)

    def draw_preview(self, width: int, height: int) -> str:
        """The unfinished block as it looks until now, with escape sequences of colours; empty without one.

        Args:
            width: columns of the terminal.
            height: how many lines there is room for: the last ones are shown.
        """
        text = "" if self._on_preview is None else self._blocks.peek()
        if not text.strip() or height < 1:
            return ""
        first, *lines = text.strip("\n").split("\n")
        text = "\n".join([first, *lines[-_PREVIEW_LINES:]])  # the first line may open a code fence
        console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)
        console.print(_build_markdown(text))
        drawn = console.file.getvalue()  # type: ignore[attr-defined]
        return "\n".join(drawn.rstrip("\n").split("\n")[-height:])

    def discard_reply(self) -> None:
        """Show what arrived of a cancelled reply, then forget it."""
        self._finish_reply()
        self._streamed_text = ""

    def _withdraw_text(self, withdrawal: TextWithdrawn) -> None:
        """Forget what was streamed; the reply that calls tools ends its text itself."""
        if self._streamed_text and withdrawal.reason != "calls":
            self._finish_reply()
            print_withdrawal(withdrawal.reason)
        self._streamed_text = ""

    def _show_words(self, text: str) -> None:
        self._streamed_text += text
        self._has_streamed_reply = True
        blocks = self._blocks.add_text(text)
        if self._on_preview is None:
            get_output().write(escape_controls(text))
            get_output().flush()
            return
        for block in blocks:
            self._print_markdown(block)
        self._on_preview()

    def _finish_reply(self) -> None:
        """Print what is left of a streamed reply; what comes next is another one."""
        rest = self._blocks.finish()
        if self._on_preview is not None:
            self._print_markdown(rest)
        elif self._has_streamed_reply and not self._streamed_text.endswith("\n"):
            echo()  # its words stand there already
        self._has_streamed_reply = False

    def _show_result(self, result: Turn) -> None:
        if self.is_plain:
            echo(result.content, color=True)  # click must not strip escape sequences
            return
        self._finish_reply()
        if result.is_over and result.content.strip() not in self._streamed_text:
            self._print_markdown(result.content)  # not streamed: the text of a limit or an error
        self._streamed_text = ""

    def _print_markdown(self, text: str) -> None:
        if text.strip():
            self._open_console(get_output()).print(_build_markdown(text))

    @staticmethod
    def _open_console(stream: object) -> Console:
        # A new console for each use: while a line is typed, the streams are replaced.
        return Console(file=stream, highlight=False)  # type: ignore[arg-type]


def _build_markdown(text: str) -> Markdown:
    # Without hyperlinks an address is printed beside its text, so that no link lies about its target.
    return Markdown(escape_controls(text.strip("\n")), hyperlinks=False)
