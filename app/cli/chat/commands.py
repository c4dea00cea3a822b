"""The slash commands of a chat: decisions about what waits, and looking at the conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from toolchart.app.cli.commands.reading.show import format_record
from toolchart.app.cli.terminal.approval_prompt import parse_decision
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import escape_controls, escape_line, print_notice, print_text, shorten
from toolchart.app.cli.turn_output import format_answer_command
from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.reading.listing import summarize_conversation
from toolchart.engine.reading.visited_path import draw_conversation_path
from toolchart.engine.reading.waiting import Waiting, has_open_turn, read_waiting
from toolchart.states.canonical_json import encode_canonical_text, encode_escaped_json, is_whole_number
from toolchart.states.diagram import draw
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import ToolCall

if TYPE_CHECKING:
    from toolchart.app.cli.chat.state import ChatState
    from toolchart.engine.reading.waiting import PendingApproval
    from toolchart.engine.runtime.engine import Engine
    from toolchart.states.events import Decided
    from toolchart.states.ports import Store

CommandHandler = Callable[[str], Awaitable[None]]


class ChatCommands:
    """Runs slash commands on the engine and the state of a chat.

    Args:
        go_on: goes on with the open turn and shows it, with a decision if there is one.
    """

    def __init__(
        self, engine: Engine, state: ChatState, go_on: Callable[[Decided | None], Awaitable[None]]
    ) -> None:
        self._engine = engine
        self._state = state
        self._go_on = go_on
        self._handlers: dict[str, tuple[str, CommandHandler]] = {
            "help": ("list the commands", self._print_help),
            "waiting": ("show what the open turn waits for", self._print_waiting),
            "approve": ("[CALL] [{ARGUMENTS}]: let a call run that waits for approval", self._approve_call),
            "reject": (
                "[CALL] [REASON]: refuse a call that waits; the model reads the reason",
                self._reject_call,
            ),
            "resume": ("go on with the open turn; open questions are asked again", self._resume_turn),
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
            echo(f"{name:9} {help_text}")

    async def _print_waiting(self, rest: str) -> None:
        text = describe_open_turn(self._engine.store, self._state.conversation)
        print_text(text or "nothing waits")

    async def _approve_call(self, rest: str) -> None:
        call, arguments = self._find_call(rest)
        await self._decide(call, f"edit {arguments}" if arguments else "yes")

    async def _reject_call(self, rest: str) -> None:
        call, reason = self._find_call(rest)
        await self._decide(call, f"no {reason}")

    async def _decide(self, call: PendingApproval, line: str) -> None:
        """Go on with a decision.

        Raises:
            SpecError: changed arguments do not match the tool's schema; the call still waits.
        """
        tool_call = ToolCall(id=call.id, name=call.tool, arguments=call.params)
        try:
            decision = parse_decision(tool_call, line, self._engine.tools)
        except ValueError as error:
            raise SpecError(str(error), hint="nothing was decided; the call still waits") from None
        await self._go_on(decision)

    def _find_call(self, rest: str) -> tuple[PendingApproval, str]:
        """The waiting call that a line begins with the id of, else the only one; and the rest of the line.

        Raises:
            SpecError: no call waits, or several do and none is named.
        """
        calls = read_waiting(self._engine.store, self._state.conversation).approvals
        word, _, words = rest.partition(" ")
        matching_calls = [call for call in calls if call.id == word]
        if matching_calls:
            return matching_calls[0], words.strip()
        if len(calls) == 1:
            return calls[0], rest
        if not calls:
            raise SpecError("no call waits for a decision", hint="/waiting shows what the turn waits for")
        ids = ", ".join(escape_line(call.id) for call in calls)
        raise SpecError(f"{len(calls)} calls wait for a decision", hint=f"name one of them: {ids}")

    async def _resume_turn(self, rest: str) -> None:
        if not has_open_turn(self._engine.store, self._state.conversation):
            raise SpecError("no turn is open")
        await self._go_on(None)

    async def _print_tools(self, rest: str) -> None:
        for tool in self._engine.tools.definitions():
            echo(f"{escape_controls(tool.name)}: {shorten(tool.description, 80)}")

    async def _select_model(self, rest: str) -> None:
        if rest:
            self._state.model = rest
        print_text(self._state.model or "(the model of the agent spec)")

    async def _print_steps(self, rest: str) -> None:
        name = self._require_turn()
        for record in read_conversation(self._engine.store, name):
            echo(format_record(record))

    async def _print_diagram(self, rest: str) -> None:
        chart, overlay = draw_conversation_path(self._engine.store, self._require_turn())
        print_text(str(draw(chart, "text", overlay)))

    async def _fork_conversation(self, rest: str) -> None:
        if rest and not is_whole_number(rest):
            raise SpecError(f"{rest!r} is not a record number", hint="/show lists the records")
        fork = await self._engine.conversation(self._require_turn()).afork(int(rest) if rest else None)
        self._state.conversation = fork.conversation
        print_notice(
            f"(forked at record {fork.at} of {fork.parent}; the conversation is now {fork.conversation})"
        )
        if fork.result is not None and rest:
            echo(escape_controls(fork.result.content))

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


def describe_open_turn(store: Store, conversation: str) -> str:
    """What the open turn of a conversation waits for; empty where none is open."""
    if not has_open_turn(store, conversation):
        return ""
    state = summarize_conversation(store, conversation).state
    return format_waiting(read_waiting(store, conversation), state)


def format_waiting(waiting: Waiting, state: str) -> str:
    """What an open turn waits for, and the commands of the chat that go on with it."""
    until = f" until {waiting.due}" if waiting.due else ""
    lines = [
        f"(waiting for approval{until}: {call.tool} {shorten(encode_canonical_text(call.params), 120)}; "
        f"/approve {call.id}, or /reject {call.id} REASON)"
        for call in waiting.approvals
    ]
    for question in waiting.questions:
        command = format_answer_command(question["conversation"], question)
        text = shorten(question["question"], 120)
        lines.append(f"(waiting for an answer{until}: {text}; /resume asks again, or elsewhere: {command})")
    if not lines:
        lines.append(f"(the turn is open in state {state}{until}; /resume goes on with it)")
    return "\n".join(lines)
