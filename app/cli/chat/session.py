"""The loop of a chat: reads lines, runs turns one after the other, runs slash commands, asks the person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolchart.app.cli.chat.commands import ChatCommands, describe_open_turn, format_waiting
from toolchart.app.cli.chat.input import LineSource
from toolchart.app.cli.chat.screen import Screen
from toolchart.app.cli.chat.state import ChatState
from toolchart.app.cli.exit_codes import CANCELLED, exit_code, find_result_code
from toolchart.app.cli.terminal.approval_prompt import parse_decision
from toolchart.app.cli.terminal.forms import FormPrompt
from toolchart.app.cli.terminal.text import escape_line, print_notice, shorten
from toolchart.app.cli.turn_output import format_turn_error
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.streaming import Piece
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import ToolchartError
from toolchart.states.events import Answered
from toolchart.states.messages import ToolCall

if TYPE_CHECKING:
    from toolchart.engine.runtime.engine import Engine
    from toolchart.states.effects import AskPerson
    from toolchart.states.events import Decided
    from toolchart.tools.questions import CallQuestion

DECISION_HELP = "y, n [reason], e {changed arguments}, or l for later"


class ChatSession:
    """Runs a chat on one engine.

    Args:
        source: yields the input lines.
    """

    def __init__(self, engine: Engine, state: ChatState, source: LineSource, screen: Screen) -> None:
        self.engine = engine
        self.state = state
        self._source = source
        self.screen = screen
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._turn: asyncio.Task[None] | None = None
        self._pending_answer: asyncio.Future[str | None] | None = None
        """Receives the next line, while a person is asked; None at the end of the input."""
        self._is_leaving = False
        self._commands = ChatCommands(engine, state, self._go_on)

    async def run(self) -> int:
        """Handle lines until there are no more. Returns the exit code of the newest turn."""
        with self._source.protect_prompt():
            reader = asyncio.ensure_future(self._queue_lines())
            try:
                while (line := await self._lines.get()) is not None:
                    if not await self._handle_line(line):
                        break
            finally:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)
        if not reader.cancelled():
            reader.result()  # raises what has ended the input, if it was no end of the file
        return self.state.code

    def list_earlier_messages(self) -> list[str]:
        """What the user has said in the conversation before, the oldest first."""
        if self.engine.store.read_last_line(self.state.conversation) is None:
            return []  # it begins with the first message
        messages = self.engine.conversation(self.state.conversation).messages
        return [message.content for message in messages if message.role == "user" and message.content]

    def handle_interrupt(self) -> bool:
        """Cancel the running turn; without one, leave at the second Ctrl-C.

        Returns:
            Whether the chat continues.
        """
        if self._turn is not None and not self._turn.done():
            self._turn.cancel()
            return True
        if self._is_leaving:
            return False
        self._is_leaving = True
        print_notice("(press Ctrl-C again or Ctrl-D to leave the chat)")
        return True

    def prompt(self) -> str:
        """Return the text before the line that is typed."""
        return "answer> " if self._pending_answer is not None else "> "

    async def _queue_lines(self) -> None:
        """Put lines into the queue as they come; an approval answer bypasses the queue."""
        try:
            async for line in self._source.read_lines():
                self._is_leaving = False
                if self._pending_answer is not None and not self._pending_answer.done():
                    self._pending_answer.set_result(line)
                    continue
                if await self._say_during_turn(line):
                    continue
                if not self.screen.is_plain and self._turn is not None and not self._turn.done():
                    print_notice(f"(queued: {shorten(line, 60)})")
                self._lines.put_nowait(line)
        finally:  # also after an error: the chat must not wait for lines that nobody reads any more
            if self._pending_answer is not None and not self._pending_answer.done():
                self._pending_answer.set_result(None)
            self._lines.put_nowait(None)

    async def _say_during_turn(self, line: str) -> bool:
        """Send a line to the turn that runs, where a message of the user interrupts it now."""
        if self.screen.is_plain or line.startswith("/"):
            return False
        conversation = self.engine.conversation(self.state.conversation)
        if not conversation.can_interrupt:
            return False
        await conversation.asay(line)
        return True

    async def _handle_line(self, line: str) -> bool:
        """Handle one line: a slash command or a message. Returns whether the chat continues."""
        try:
            if line.startswith("/"):
                return await self._commands.run(line)
            await self._run_cancellable(self._send_message(line))
        except ToolchartError as error:
            self.state.code = exit_code(error)
            print_notice(f"toolchart: {error}")
        return True

    async def _run_cancellable(self, turn: Coroutine[Any, Any, None]) -> None:
        """Run a turn that Ctrl-C cancels."""
        self._turn = asyncio.ensure_future(turn)
        with suppress(asyncio.CancelledError):
            await self._turn

    async def _send_message(self, message: str) -> None:
        """Run the turn of a message, or give it to the turn that is open."""
        state = self.state
        pieces = self.engine.stream(
            message, conversation=state.conversation, llm=state.llm, model=state.model
        )
        await self._show_turn(pieces)

    async def _go_on(self, decision: Decided | None) -> None:
        """Go on with the open turn, with a decision if there is one."""
        pieces = self.engine.conversation(self.state.conversation).stream_resume(decision)
        await self._run_cancellable(self._show_turn(pieces))

    async def _show_turn(self, pieces: AsyncGenerator[Piece, None]) -> None:
        """Show a turn while it runs."""
        try:
            async for piece in pieces:
                self.screen.show(piece)
                if isinstance(piece, Turn):
                    self._report_turn(piece)
        except asyncio.CancelledError:
            self.screen.discard_reply()
            self.state.code = CANCELLED
            print_notice("(cancelled; the log has every step until now)")
            raise
        finally:
            await pieces.aclose()

    def print_waiting(self) -> None:
        """Print what an open turn of the conversation waits for; nothing where none is open."""
        text = describe_open_turn(self.engine.store, self.state.conversation)
        if text:
            print_notice(text)

    def _report_turn(self, result: Turn) -> None:
        self.state.code = find_result_code(result)
        for warning in result.warnings:
            print_notice(f"warning: {warning}")
        if result.pending_approvals or result.questions:
            print_notice(format_waiting(result.waiting, result.state))
        if result.error is not None:
            print_notice(f"the turn ended in error; {format_turn_error(result.error)}")

    async def ask_approval(self, call: ToolCall, question: CallQuestion) -> Decided | None:
        """The approver of a chat: asks, and takes the next line as the answer."""
        await asyncio.sleep(0.01)  # lets the screen show the steps before this one
        arguments = shorten(encode_canonical_text(call.arguments), 200)
        lines = [escape_line(line) for line in question.list_lines(call.arguments)]
        print_notice("\n  ".join([f"needs approval: {call.name} {arguments}", *lines, DECISION_HELP]))
        while (line := await self._read_answer()) is not None:
            line = line.strip().removeprefix("/")
            try:
                return parse_decision(call, line, self.engine.tools)
            except (ValueError, ToolchartError) as error:
                print_notice(f"  {error}; {DECISION_HELP}")
        return None

    async def ask_form(self, question: AskPerson) -> Answered | None:
        """The asker of a chat: asks for each field of the form, and takes the next lines as the answers."""
        await asyncio.sleep(0.01)  # lets the screen show the steps before this one
        print_notice("  (/later leaves the question open)")
        return await FormPrompt(self._read_field, by="chat")(question)

    async def _read_field(self, prompt: str) -> str | None:
        print_notice(prompt)
        line = await self._read_answer()
        return None if line is None or line.strip() == "/later" else line.strip()

    async def _read_answer(self) -> str | None:
        """The next line; None at the end of the input."""
        self._pending_answer = asyncio.get_running_loop().create_future()
        try:
            return await self._pending_answer
        finally:
            self._pending_answer = None


class ChatApprover:
    """The approver of an interactive chat, which begins after the engine was built.

    Args:
        chats: gets the chat.
    """

    def __init__(self, chats: list[ChatSession]) -> None:
        self._chats = chats

    async def __call__(self, call: ToolCall) -> Decided | None:
        """As `decide_question`, of a call outside any conversation."""
        chat = self._chats[0]
        return await self.decide_question(call, chat.engine.tools.ask_about(call))

    async def decide_question(self, call: ToolCall, question: CallQuestion) -> Decided | None:
        """Ask in the chat, and take the next line as the answer."""
        return await self._chats[0].ask_approval(call, question)
