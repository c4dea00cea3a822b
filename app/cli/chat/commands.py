"""The slash commands of a chat: `/help`, `/tools`, `/model`, `/show`, `/draw`, `/fork`, `/save`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolchart.app.cli.commands.reading.show import format_record
from toolchart.app.cli.terminal.text import escape_controls, print_notice, print_text, shorten
from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.log.reading.records import read_conversation
from toolchart.engine.log.reading.visited_path import draw_conversation_path
from toolchart.states.canonical_json import encode_escaped_json
from toolchart.states.diagram import draw
from toolchart.states.errors import SpecError, suggest_name

if TYPE_CHECKING:
    from toolchart.app.cli.chat.state import ChatState
    from toolchart.engine.runtime.engine import Engine

CommandHandler = Callable[[str], Awaitable[None]]


class ChatCommands:
    """Runs slash commands on the engine and the state of a chat."""

    def __init__(self, engine: Engine, state: ChatState) -> None:
        self._engine = engine
        self._state = state
        self._handlers: dict[str, tuple[str, CommandHandler]] = {
            "help": ("list the commands", self._print_help),
            "tools": ("list the tools that the model may call", self._print_tools),
            "model": ("[NAME]: show the model, or use another one from now on", self._select_model),
            "show": ("show every step of this conversation", self._print_steps),
            "draw": ("draw the path of this conversation through the chart", self._print_diagram),
            "fork": ("[SEQ]: continue from a record in a new conversation", self._fork_conversation),
            "save": ("FILE: write the messages to a file, as JSON", self._save_messages),
        }

    async def run(self, line: str) -> bool:
        """Run one command line. Returns whether the chat continues.

        Raises:
            SpecError: there is no such command (the hint names the nearest), or it cannot be done.
        """
        name, _, rest = line[1:].strip().partition(" ")
        if name in ("quit", "exit", "q"):
            return False
        if name not in self._handlers:
            hint = suggest_name(name, (*self._handlers, "quit"))
            raise SpecError(f"there is no command /{name}", hint=hint)
        await self._handlers[name][1](rest.strip())
        return True

    async def _print_help(self, rest: str) -> None:
        rows = [(f"/{name}", help_text) for name, (help_text, _) in self._handlers.items()]
        for name, help_text in [*rows, ("/quit", "leave the chat (also Ctrl-D)")]:
            click.echo(f"{name:8} {help_text}")

    async def _print_tools(self, rest: str) -> None:
        for tool in self._engine.tools.definitions():
            click.echo(f"{escape_controls(tool.name)}: {shorten(tool.description, 80)}")

    async def _select_model(self, rest: str) -> None:
        if rest:
            self._state.model = rest
        print_text(self._state.model or "(the model of the agent spec)")

    async def _print_steps(self, rest: str) -> None:
        name = self._require_turn()
        for record in read_conversation(self._engine.store, name):
            click.echo(format_record(record))

    async def _print_diagram(self, rest: str) -> None:
        chart, overlay = draw_conversation_path(self._engine.store, self._require_turn())
        print_text(str(draw(chart, "text", overlay)))

    async def _fork_conversation(self, rest: str) -> None:
        if rest and not rest.isdigit():
            raise SpecError(f"{rest!r} is not a record number", hint="/show lists the records")
        fork = await self._engine.afork(self._require_turn(), int(rest) if rest else None)
        self._state.conversation = fork.conversation
        print_notice(
            f"(forked at record {fork.at} of {fork.parent}; the conversation is now {fork.conversation})"
        )
        if fork.result is not None and rest:
            click.echo(escape_controls(fork.result.content))

    async def _save_messages(self, rest: str) -> None:
        if not rest:
            raise SpecError("/save needs a file name")
        store, name = self._engine.store, self._require_turn()
        messages = export_messages(store.read_lines(name), name, parents=store.read_lines)
        try:
            Path(rest).write_bytes(encode_escaped_json(messages, is_indented=True))
        except OSError as error:
            raise SpecError(f"cannot be written: {error.strerror}", file=rest) from None
        print_notice(f"({len(messages)} messages written to {rest})")

    def _require_turn(self) -> str:
        """Return the id of the conversation, once it has a turn.

        Raises:
            SpecError: no message was sent yet.
        """
        if self._engine.store.read_last_line(self._state.conversation) is None:
            raise SpecError("this conversation has no messages yet")
        return self._state.conversation
