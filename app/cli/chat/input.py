"""Where a chat's lines come from: a terminal that can be typed into at any time, or a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import nullcontext
from typing import Any, Protocol


class Input(Protocol):
    """Gives lines until there are no more."""

    def lines(self) -> AsyncGenerator[str, None]:
        """Each line without its end."""
        ...

    def shown(self) -> Any:
        """A context in which output does not disturb what is being typed."""
        ...


class Piped:
    """Standard input that is no terminal: a line is read when the one before is done with."""

    async def lines(self) -> AsyncGenerator[str, None]:
        """Every line that is not empty."""
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip():
                yield line.rstrip("\r\n")

    def shown(self) -> Any:
        """Nothing is being typed."""
        return nullcontext()


class Typed:
    """A terminal. Output appears above the line that is being typed.

    Args:
        interrupted: called for Ctrl-C; says whether the chat goes on.
        prompt: what stands before the line.
    """

    def __init__(self, interrupted: Callable[[], bool], prompt: Callable[[], str]) -> None:
        self._interrupted = interrupted
        self._prompt = prompt

    async def lines(self) -> AsyncGenerator[str, None]:
        """Every line that is not empty, until Ctrl-D or a Ctrl-C that ends the chat."""
        from prompt_toolkit import PromptSession

        session: PromptSession[str] = PromptSession(self._prompt)
        while True:
            try:
                line = await session.prompt_async(handle_sigint=False)
            except KeyboardInterrupt:
                if self._interrupted():
                    continue
                return
            except EOFError:
                return
            if line.strip():
                yield line

    def shown(self) -> Any:
        """Output goes through the editor, which draws its line again below it."""
        from prompt_toolkit.patch_stdout import patch_stdout

        return patch_stdout(raw=True)
