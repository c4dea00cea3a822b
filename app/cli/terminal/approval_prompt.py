"""Asking a person at the terminal about a call that needs approval."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import orjson

from toolchart.app.cli.terminal.text import on_terminal, talk
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall

if TYPE_CHECKING:
    from toolchart.tools.execution.executor import ToolExecutor

_CHOICES = "  [y]es, [n]o, [e]dit the arguments, [l]ater: "
BY = "terminal"


def somebody_there() -> bool:
    """Whether a person can be asked: they see stderr and type on stdin."""
    return on_terminal(sys.stdin) and on_terminal(sys.stderr)


class Asking:
    """An approver that asks at the terminal, one call after the other.

    Changed arguments are looked at as the model's would be, before they are taken. "Later", or the end
    of the input, leaves the call undecided: `toolchart approve` decides it another day.

    Attributes:
        tools: what says whether changed arguments fit; set once the engine is there.
    """

    tools: ToolExecutor

    async def __call__(self, call: ToolCall) -> Decided | None:
        """Ask. Ctrl-C cancels the turn as it does anywhere else.

        Raises:
            CancelledError: the person pressed Ctrl-C.
        """
        try:
            with _interruptible():
                return self.ask(call)
        except KeyboardInterrupt:
            # Raised again where the loop's own handler hears it, which cancels this turn in order.
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
            raise

    def ask(self, call: ToolCall) -> Decided | None:
        """Ask until there is an answer."""
        decided = Decided(call_id=call.id, approved=True, by=BY)
        while True:
            talk(_told(call))
            match _line(_CHOICES)[:1].lower():
                case "y":
                    return decided
                case "n":
                    reason = _line("  why not? (the model is told): ") or None
                    return replace(decided, approved=False, arguments=None, reason=reason)
                case "e":
                    changed = self._edited(call)
                    if changed is not None:
                        call = replace(call, arguments=changed, raw=None)
                        decided = replace(decided, arguments=changed)
                case "l" | "":
                    return None
                case _:
                    talk("  y, n, e or l, please")

    def _edited(self, call: ToolCall) -> dict[str, Any] | None:
        """Other arguments that fit; None where they stay."""
        from toolchart.providers.shared.arguments import parse_arguments

        while text := _line("  arguments as JSON (empty: as they were): "):
            given, problem = parse_arguments(text)
            if given is not None:
                judged = self.tools.judge(replace(call, arguments=given, raw=None), (call.name,))
                if judged.outcome is None:
                    for note in judged.notes:
                        talk(f"  {note}")
                    return judged.arguments
                problem = judged.reason
            talk(f"  {problem}")
        return None


def decision_of(call: ToolCall, line: str, tools: ToolExecutor) -> Decided | None:
    """The decision that one line says: `y`, `n [why not]`, `e {arguments}`, or `l` for later.

    Raises:
        ValueError: it says none, or arguments that do not fit.
    """
    from toolchart.providers.shared.arguments import parse_arguments

    word, _, rest = line.strip().partition(" ")
    decided = Decided(call_id=call.id, approved=True, by=BY)
    match word.lower():
        case "y" | "yes":
            return decided
        case "n" | "no":
            return replace(decided, approved=False, reason=rest.strip() or None)
        case "l" | "later" | "":
            return None
        case "e" | "edit":
            given, problem = parse_arguments(rest)
            if given is None:
                raise ValueError(problem)
            judged = tools.judge(replace(call, arguments=given, raw=None), (call.name,))
            if judged.outcome is not None:
                raise ValueError(judged.reason)
            return replace(decided, arguments=judged.arguments)
        case _:
            raise ValueError(f"{word!r} is no answer")


def _told(call: ToolCall) -> str:
    given = orjson.dumps(call.arguments or {}, option=orjson.OPT_INDENT_2).decode()
    return f"approve {call.name} ({call.id})?\n{given}"


def _line(prompt: str) -> str:
    """One line that was typed, stripped; empty at the end of the input."""
    click.echo(prompt, err=True, nl=False)
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        click.echo("", err=True)
    return line.strip()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a wait for a line; the event loop's own handler would only take note of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
