"""Input of a chat: an editable line at a terminal, or plain lines from a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any, Protocol

from toolchart.app.cli.terminal.output import get_output, use_output
from toolchart.app.cli.terminal.text import print_notice


class LineSource(Protocol):
    """Yields input lines until there are no more."""

    def read_lines(self) -> AsyncGenerator[str, None]:
        """Yield each line without its line end."""
        ...

    def protect_prompt(self) -> Any:
        """Return a context in which output does not disturb the line that is being typed."""
        ...


class PipeSource:
    """Lines from standard input that is not a terminal. Reads the next line when the last one was handled."""

    async def read_lines(self) -> AsyncGenerator[str, None]:
        """Yield every line that is not empty; one that is not UTF-8 text is named on stderr and left out."""
        number = 0
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            number += 1
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                print_notice(f"(line {number} is not UTF-8 text, so it is not sent: byte {error.start + 1})")
                continue
            if text.strip():
                yield text.rstrip("\r\n")

    def protect_prompt(self) -> Any:
        """Return an empty context, since nobody is typing."""
        return nullcontext()


@contextmanager
def use_terminal() -> Iterator[None]:
    """A context in which everything that is typed and drawn goes to the terminal of the command's output."""
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.output import create_output

    with create_app_session(output=create_output(get_output())):
        yield


def can_redraw() -> bool:
    """Whether the terminal can draw lines again, and so show a preview."""
    from prompt_toolkit.utils import is_dumb_terminal

    return not is_dumb_terminal()


_REDRAW_INTERVAL_S = 0.03
"""Seconds between two drawings of the line and what stands above it: an answer comes in many small pieces."""

_TYPING_LINES = 4
"""Lines of the terminal that a preview leaves free for what is typed."""


class TerminalSource:
    """Messages typed at a terminal. Output appears above the one that is being typed.

    Enter sends it; Alt-Enter (also Esc and then Enter) begins another line of it, and a text of several lines
    can be pasted. Arrow up brings back what was sent before. No file is kept of that: what was said in an
    earlier session comes from the log of the conversation.

    Args:
        on_interrupt: called for Ctrl-C; returns whether the chat continues.
        prompt: returns the text before the message.
        list_earlier: returns what the person has sent before, the oldest first.
        draw_preview: returns what stands above the prompt, for this many columns and at most so many lines;
            it may have sequences that colour.
    """

    def __init__(
        self,
        on_interrupt: Callable[[], bool],
        prompt: Callable[[], str],
        list_earlier: Callable[[], Sequence[str]] = tuple,
        draw_preview: Callable[[int, int], str] = lambda width, height: "",
    ) -> None:
        self._on_interrupt = on_interrupt
        self._prompt = prompt
        self._list_earlier = list_earlier
        self._draw_preview = draw_preview
        self._session: Any = None

    async def read_lines(self) -> AsyncGenerator[str, None]:
        """Yield every message that is not empty, until Ctrl-D or a Ctrl-C that ends the chat."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory

        session: PromptSession[str] = PromptSession(
            self._format_prompt,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_bind_enter(),
            history=InMemoryHistory(list(self._list_earlier())),
        )
        session.app.min_redraw_interval = _REDRAW_INTERVAL_S
        self._session = session
        while True:
            try:
                line = await session.prompt_async(handle_sigint=False)
            except KeyboardInterrupt:
                if self._on_interrupt():
                    continue
                return
            except EOFError:
                return
            if line.strip():
                yield line

    def redraw(self) -> None:
        """Draw the preview again."""
        if self._session is not None:
            self._session.app.invalidate()

    def _format_prompt(self) -> Any:
        """The preview, and below it the text before the message."""
        from prompt_toolkit.formatted_text import ANSI

        app = self._session.app
        if app.is_done:  # a line that was sent stays on the screen, and a preview does not
            return self._prompt()
        size = app.output.get_size()
        preview = self._draw_preview(size.columns, size.rows - _TYPING_LINES)
        return ANSI(f"{preview}\n{self._prompt()}" if preview else self._prompt())

    @contextmanager
    def protect_prompt(self) -> Iterator[None]:
        """A context that sends output through the editor, which redraws its line below it."""
        from prompt_toolkit.patch_stdout import StdoutProxy

        # The usual delay between two outputs (0.2 s) would be seen each time a preview becomes a block.
        with StdoutProxy(raw=True, sleep_between_writes=_REDRAW_INTERVAL_S) as proxy:
            output: Any = proxy
            with use_output(output), redirect_stdout(output), redirect_stderr(output):
                yield


def _bind_enter() -> Any:
    """Key bindings: Enter sends the message, Alt-Enter begins another line of it."""
    from prompt_toolkit.key_binding import KeyBindings

    bindings = KeyBindings()

    @bindings.add("enter")
    def send(event: Any) -> None:
        event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def begin_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return bindings
