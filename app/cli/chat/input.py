"""Input of a chat: an editable line at a terminal, or plain lines from a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

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


class TerminalSource:
    """Messages typed at a terminal. Output appears above the one that is being typed.

    Enter sends it; Alt-Enter (also Esc and then Enter) begins another line of it, and a text of several lines
    can be pasted. Arrow up brings back what was sent before. No file is kept of that: what was said in an
    earlier session comes from the log of the conversation.

    Args:
        on_interrupt: called for Ctrl-C; returns whether the chat continues.
        prompt: returns the text before the message.
        list_earlier: returns what the person has sent before, the oldest first.
    """

    def __init__(
        self,
        on_interrupt: Callable[[], bool],
        prompt: Callable[[], str],
        list_earlier: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._on_interrupt = on_interrupt
        self._prompt = prompt
        self._list_earlier = list_earlier

    async def read_lines(self) -> AsyncGenerator[str, None]:
        """Yield every message that is not empty, until Ctrl-D or a Ctrl-C that ends the chat."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory

        session: PromptSession[str] = PromptSession(
            self._prompt,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_bind_enter(),
            history=InMemoryHistory(list(self._list_earlier())),
        )
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

    def protect_prompt(self) -> Any:
        """Return a context that sends output through the editor, which redraws its line below it."""
        from prompt_toolkit.patch_stdout import patch_stdout

        return patch_stdout(raw=True)


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
