"""The approval prompt: asks the person at the terminal whether a tool call may run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolchart.app.cli.terminal.line_reading import read_terminal_line
from toolchart.app.cli.terminal.text import escape_line, print_notice
from toolchart.states.call_arguments import parse_arguments
from toolchart.states.canonical_json import encode_escaped_json
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.tools.questions import CallQuestion

if TYPE_CHECKING:
    from toolchart.tools.execution.executor import ToolExecutor

_CHOICES = "  [y]es, [n]o, [e]dit the arguments, [l]ater: "
DECIDED_BY = "terminal"


class TerminalApprover:
    """An approver that asks at the terminal, one call after the other.

    Edited arguments are validated like a model's arguments. The answer "later" and the end of the input
    leave the call undecided; `toolchart approve` can decide it at any time.

    Attributes:
        tools: validates edited arguments; set after the engine was built.
    """

    tools: ToolExecutor

    async def __call__(self, call: ToolCall) -> Decided | None:
        """As `decide_question`, of a call about which nothing else is known."""
        return await self.decide_question(call, CallQuestion(definition={}))

    async def decide_question(self, call: ToolCall, question: CallQuestion) -> Decided | None:
        """Show the call and what running it does, and ask until there is a decision; None means later.

        Raises:
            CancelledError: the person pressed Ctrl-C, or a deadline has passed.
        """
        decision = Decided(call_id=call.id, approved=True, by=DECIDED_BY)
        while True:
            print_notice(_format_question(call, question))
            match (await read_terminal_line(_CHOICES) or "")[:1].lower():
                case "y":
                    return decision
                case "n":
                    reason = await read_terminal_line("  reason for the model (optional): ") or None
                    return replace(decision, approved=False, arguments=None, reason=reason)
                case "e":
                    arguments = await self._ask_for_arguments(call)
                    if arguments is not None:
                        call = replace(call, arguments=arguments, raw=None)
                        decision = replace(decision, arguments=arguments)
                case "l" | "":
                    return None
                case _:
                    print_notice("  please answer y, n, e or l")

    async def _ask_for_arguments(self, call: ToolCall) -> dict[str, Any] | None:
        """Ask for other arguments until they are valid; None keeps the present ones."""
        while text := await read_terminal_line("  new arguments as JSON (empty: keep them): "):
            arguments, problem = parse_arguments(text)
            if arguments is not None:
                try:
                    return self.tools.read_own_arguments(call, arguments)
                except SpecError as error:
                    problem = str(error)
            print_notice(f"  {problem}")
        return None


def parse_decision(call: ToolCall, line: str, tools: ToolExecutor) -> Decided | None:
    """Parse one line into a decision: `y`, `n [reason]`, `e {arguments}`, or `l` for later (None).

    Raises:
        ValueError: the line is none of these.
        SpecError: its arguments do not match the tool's schema.
    """
    word, _, rest = line.strip().partition(" ")
    decision = Decided(call_id=call.id, approved=True, by=DECIDED_BY)
    match word.lower():
        case "y" | "yes" | "approve":
            return decision
        case "n" | "no" | "reject" | "deny":
            return replace(decision, approved=False, reason=rest.strip() or None)
        case "l" | "later" | "":
            return None
        case "e" | "edit":
            arguments, problem = parse_arguments(rest)
            if arguments is None:
                raise ValueError(problem)
            return replace(decision, arguments=tools.read_own_arguments(call, arguments))
        case _:
            raise ValueError(f"{word!r} is not an answer")


def _format_question(call: ToolCall, question: CallQuestion) -> str:
    arguments = encode_escaped_json(call.arguments or {}, is_indented=True).decode()
    head = f"approve {escape_line(call.name)} ({escape_line(call.id)})?\n{arguments}"
    return "\n".join([head, *map(escape_line, question.list_lines(call.arguments))])
