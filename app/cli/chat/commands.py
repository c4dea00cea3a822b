"""The commands of a chat, each a slash and a word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from toolchart.app.cli.terminal.text import printable, short, talk
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest

if TYPE_CHECKING:
    from toolchart.app.cli.chat.session import Talk
    from toolchart.engine.runtime.engine import Engine

Handler = Callable[[str], Awaitable[None]]


class Commands:
    """Runs commands on the chat's engine and state."""

    def __init__(self, engine: Engine, state: Talk) -> None:
        self._engine = engine
        self._state = state
        self._known: dict[str, tuple[str, Handler]] = {
            "help": ("these commands", self._help),
            "tools": ("what the model may call", self._tools),
            "model": ("[NAME]: the model, or another one from now on", self._model),
            "show": ("every step of this conversation", self._show),
            "draw": ("its path through the machine", self._draw),
            "fork": ("[SEQ]: go on in a new conversation from a record", self._fork),
            "save": ("FILE: the messages, as JSON", self._save),
        }

    async def run(self, line: str) -> bool:
        """Run one; whether the chat goes on.

        Raises:
            SpecError: no such command, or it cannot be done; names the nearest.
        """
        name, _, rest = line[1:].strip().partition(" ")
        if name in ("quit", "exit", "q"):
            return False
        if name not in self._known:
            hint = nearest(name, (*self._known, "quit"))
            raise SpecError(f"there is no command /{name}", hint=hint)
        await self._known[name][1](rest.strip())
        return True

    async def _help(self, rest: str) -> None:
        rows = [(f"/{name}", words) for name, (words, _) in self._known.items()]
        for name, words in [*rows, ("/quit", "leave (Ctrl-D too)")]:
            click.echo(f"{name:8} {words}")

    async def _tools(self, rest: str) -> None:
        for tool in self._engine.tools.definitions():
            click.echo(f"{printable(tool.name)}: {short(tool.description, 80)}")

    async def _model(self, rest: str) -> None:
        if rest:
            self._state.model = rest
        click.echo(self._state.model or "the agent's own")

    async def _show(self, rest: str) -> None:
        from toolchart.app.cli.commands.show import line
        from toolchart.engine.log.replay import read_chain

        name = self._begun()
        for record in read_chain(self._engine.store.read(name), name):
            click.echo(line(record))

    async def _draw(self, rest: str) -> None:
        from toolchart.engine.log.replay import replay_of
        from toolchart.engine.log.visited_path import overlay_of
        from toolchart.states.diagram import draw

        steps = list(replay_of(self._engine.store, self._begun(), whole=True))
        click.echo(str(draw(steps[-1].machine.chart, "text", overlay_of(steps))))

    async def _fork(self, rest: str) -> None:
        if rest and not rest.isdigit():
            raise SpecError(f"{rest!r} is no record number", hint="/show lists them")
        done = await self._engine.afork(self._begun(), int(rest) if rest else None)
        self._state.conversation = done.conversation
        talk(f"(from record {done.at} of {done.parent}; this is {done.conversation} now)")
        if done.result is not None and rest:
            click.echo(printable(done.result.content))

    async def _save(self, rest: str) -> None:
        from toolchart.engine.exchange.messages import export_messages

        if not rest:
            raise SpecError("/save needs the name of a file")
        store, name = self._engine.store, self._begun()
        messages = export_messages(store.read(name), name, parents=store.read)
        try:
            Path(rest).write_bytes(orjson.dumps(messages, option=orjson.OPT_INDENT_2))
        except OSError as error:
            raise SpecError(f"it cannot be written: {error.strerror}", file=rest) from None
        talk(f"({len(messages)} messages in {rest})")

    def _begun(self) -> str:
        """The conversation, once it has a turn.

        Raises:
            SpecError: nothing was said yet.
        """
        if self._engine.store.last(self._state.conversation) is None:
            raise SpecError("nothing was said yet")
        return self._state.conversation
