"""The approval prompt: asks the person at the terminal whether a tool call may run."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import orjson
from msgspec.structs import replace

from toolchart.app.cli.terminal.text import is_terminal, print_notice
from toolchart.providers.shared.arguments import parse_arguments
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall

if TYPE_CHECKING:
    from toolchart.tools.execution.executor import ToolExecutor

_CHOICES = "  [y]es, [n]o, [e]dit the arguments, [l]ater: "
DECIDED_BY = "terminal"


def can_ask_user() -> bool:
    """Whether a person can be asked: stdin and stderr are terminals."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


class TerminalApprover:
    """An approver that asks at the terminal, one call after the other.

    Edited arguments are validated like a model's arguments. The answer "later" and the end of the input
    leave the call undecided; `toolchart approve` can decide it at any time.

    Attributes:
        tools: validates edited arguments; set after the engine was built.
    """

    tools: ToolExecutor

    async def __call__(self, call: ToolCall) -> Decided | None:
        """Ask. Ctrl-C cancels the turn.

        Raises:
            CancelledError: the person pressed Ctrl-C.
        """
        try:
            with _allow_interrupt():
                return self.ask(call)
        except KeyboardInterrupt:
            # Send the signal again: now the event loop's own handler gets it and cancels the turn.
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
            raise

    def ask(self, call: ToolCall) -> Decided | None:
        """Ask until there is a decision; None means later."""
        decision = Decided(call_id=call.id, approved=True, by=DECIDED_BY)
        while True:
            print_notice(_format_question(call))
            match _prompt_line(_CHOICES)[:1].lower():
                case "y":
                    return decision
                case "n":
                    reason = _prompt_line("  reason for the model (optional): ") or None
                    return replace(decision, approved=False, arguments=None, reason=reason)
                case "e":
                    arguments = self._ask_for_arguments(call)
                    if arguments is not None:
                        call = replace(call, arguments=arguments, raw=None)
                        decision = replace(decision, arguments=arguments)
                case "l" | "":
                    return None
                case _:
                    print_notice("  please answer y, n, e or l")

    def _ask_for_arguments(self, call: ToolCall) -> dict[str, Any] | None:
        """Ask for other arguments until they are valid; None keeps the present ones."""
        while text := _prompt_line("  new arguments as JSON (empty: keep them): "):
            arguments, problem = parse_arguments(text)
            if arguments is not None:
                validation = self.tools.judge_call(replace(call, arguments=arguments, raw=None), (call.name,))
                if validation.outcome is None:
                    for note in validation.notes:
                        print_notice(f"  {note}")
                    return validation.arguments
                problem = validation.reason
            print_notice(f"  {problem}")
        return None


def parse_decision(call: ToolCall, line: str, tools: ToolExecutor) -> Decided | None:
    """Parse one line into a decision: `y`, `n [reason]`, `e {arguments}`, or `l` for later (None).

    Raises:
        ValueError: the line is none of these, or its arguments do not match the tool's schema.
    """
    word, _, rest = line.strip().partition(" ")
    decision = Decided(call_id=call.id, approved=True, by=DECIDED_BY)
    match word.lower():
        case "y" | "yes":
            return decision
        case "n" | "no":
            return replace(decision, approved=False, reason=rest.strip() or None)
        case "l" | "later" | "":
            return None
        case "e" | "edit":
            arguments, problem = parse_arguments(rest)
            if arguments is None:
                raise ValueError(problem)
            validation = tools.judge_call(replace(call, arguments=arguments, raw=None), (call.name,))
            if validation.outcome is not None:
                raise ValueError(validation.reason)
            return replace(decision, arguments=validation.arguments)
        case _:
            raise ValueError(f"{word!r} is not an answer")


def _format_question(call: ToolCall) -> str:
    arguments = orjson.dumps(call.arguments or {}, option=orjson.OPT_INDENT_2).decode()
    return f"approve {call.name} ({call.id})?\n{arguments}"


def _prompt_line(prompt: str) -> str:
    """Print a prompt and read one line, stripped; empty at the end of the input."""
    click.echo(prompt, err=True, nl=False)
    _wait_for_line()
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        click.echo("", err=True)
    return line.strip()


def _wait_for_line() -> None:
    """Return when the terminal has a line to read.

    A signal that arrives just before a blocking read begins would only be handled after it. Here it waits for
    half a second at most.
    """
    can_wait = os.name == "posix" and sys.stdin.isatty()
    while can_wait and not select.select([sys.stdin], [], [], 0.5)[0]:
        pass


@contextmanager
def _allow_interrupt() -> Iterator[None]:
    """Let Ctrl-C interrupt a blocking read; the event loop's handler would only set a flag."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
