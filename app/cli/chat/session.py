"""A chat: lines in, turns one after the other, and commands that begin with a slash."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolchart.app.cli.chat.commands import Commands
from toolchart.app.cli.chat.input import Input
from toolchart.app.cli.chat.screen import Screen
from toolchart.app.cli.exit_codes import CANCELLED, DONE, LIMIT, NO, exit_code
from toolchart.app.cli.parameters.options import to_type
from toolchart.app.cli.terminal.approval_prompt import decision_of
from toolchart.app.cli.terminal.text import short, talk
from toolchart.engine.runtime.result import TurnResult
from toolchart.states.canonical_json import canonical_text
from toolchart.states.errors import ToolchartError
from toolchart.states.messages import ToolCall

if TYPE_CHECKING:
    from toolchart.engine.runtime.engine import Engine
    from toolchart.states.events import Decided

HELP = "y, n [why not], e {changed arguments}, or l for later"


@dataclass(slots=True)
class Talk:
    """Where the chat is."""

    conversation: str
    llm: str | None = None
    model: str | None = None
    code: int = DONE
    """Exit code that the newest turn would have."""


class Chat:
    """Runs a chat on one engine.

    Args:
        source: where lines come from.
    """

    def __init__(self, engine: Engine, state: Talk, source: Input, screen: Screen) -> None:
        self.engine = engine
        self.state = state
        self._source = source
        self._screen = screen
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._turn: asyncio.Task[None] | None = None
        self._asked: asyncio.Future[str] | None = None
        self._leaving = False
        self._commands = Commands(engine, state)

    async def run(self) -> int:
        """Take lines until there are no more; the exit code of the newest turn."""
        with self._source.shown():
            reading = asyncio.ensure_future(self._read())
            try:
                while (line := await self._lines.get()) is not None:
                    if not await self._take(line):
                        break
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        return self.state.code

    def interrupted(self) -> bool:
        """Ctrl-C: cancel the turn that runs; with none, leave at the second time."""
        if self._turn is not None and not self._turn.done():
            self._turn.cancel()
            return True
        if self._leaving:
            return False
        self._leaving = True
        talk("(Ctrl-C once more, or Ctrl-D, leaves the chat)")
        return True

    def prompt(self) -> str:
        """What stands before the line that is typed."""
        return "decide> " if self._asked is not None else "> "

    async def _read(self) -> None:
        """Lines into the queue as they come; the answer to a question goes past it."""
        async for line in self._source.lines():
            self._leaving = False
            if self._asked is not None and not self._asked.done():
                self._asked.set_result(line)
                continue
            if not self._screen.plain and self._turn is not None and not self._turn.done():
                talk(f"(queued: {short(line, 60)})")
            self._lines.put_nowait(line)
        if self._asked is not None and not self._asked.done():
            self._asked.set_result("l")
        self._lines.put_nowait(None)

    async def _take(self, line: str) -> bool:
        """One line: a command or a message. Whether the chat goes on."""
        try:
            if line.startswith("/"):
                return await self._commands.run(line)
            self._turn = asyncio.ensure_future(self._say(line))
            with suppress(asyncio.CancelledError):
                await self._turn
        except ToolchartError as error:
            self.state.code = exit_code(error)
            talk(f"toolchart: {error}")
        return True

    async def _say(self, message: str) -> None:
        """One turn."""
        state = self.state
        pieces = self.engine.stream(
            message, conversation=state.conversation, llm=state.llm, model=state.model
        )
        try:
            async for piece in pieces:
                self._screen.show(piece)
                if isinstance(piece, TurnResult):
                    self._ended(piece)
        except asyncio.CancelledError:
            self._screen.drop()
            state.code = CANCELLED
            talk("(cancelled; the log has every step up to here)")
            raise
        finally:
            await pieces.aclose()

    def _ended(self, result: TurnResult) -> None:
        well = result.over and result.ended_by != "answer_with_error"
        self.state.code = LIMIT if result.limit_reached else DONE if well else NO
        for warning in result.warnings:
            talk(f"warning: {warning}")
        for call in result.undecided:
            command = to_type("approve", result.conversation_id, call["id"])
            talk(f"(waits for a decision: {call['tool']}; {command})")

    async def ask(self, call: ToolCall) -> Decided | None:
        """The approver: asks in the chat, and the next line is the answer."""
        await asyncio.sleep(0.01)  # what led here is shown first
        talk(f"needs approval: {call.name} {short(canonical_text(call.arguments), 200)}\n  {HELP}")
        while True:
            self._asked = asyncio.get_running_loop().create_future()
            try:
                line = await self._asked
            finally:
                self._asked = None
            try:
                return decision_of(call, line, self.engine.tools)
            except ValueError as error:
                talk(f"  {error}; {HELP}")
