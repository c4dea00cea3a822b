"""`toolchart tools test`: run one tool the way the engine runs a model's call."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import json_option
from toolchart.app.cli.terminal.approval_prompt import TerminalApprover
from toolchart.app.cli.terminal.line_reading import can_ask_user
from toolchart.app.cli.terminal.text import escape_controls, is_terminal, print_notice
from toolchart.providers.shared.replies import parse_arguments
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolCall
from toolchart.tools.definition import ToolPending

if TYPE_CHECKING:
    from toolchart.states.events import ToolFinished
    from toolchart.tools.execution.executor import ToolExecutor


@click.command("test", short_help="Run one tool of an agent.")
@click.argument("spec")
@click.argument("tool")
@click.option(
    "--args", "arguments", default="{}", metavar="JSON", help="Arguments of the tool; @FILE reads a file."
)
@click.option("--yes", "-y", is_flag=True, help="Approve the call if it needs approval.")
@json_option
def try_command(spec: str, tool: str, arguments: str, yes: bool, as_json: bool) -> int:
    """Run TOOL of the agent SPEC the way a model's call is run.

    The arguments are validated and repaired, approval is requested if needed, and the timeout applies.
    The result goes to stdout, notes about the call to stderr. Exits with 1 if the tool failed or was not
    approved.

    \b
    Example:  toolchart tools test quickstart calculator --args '{"expression": "17 * (23 + 4)"}'
              toolchart tools test agent.yaml lookup --args @arguments.json --json
    """
    from toolchart.engine.runtime.engine import Engine

    with Engine(spec, log="memory") as engine:
        for warning in (*engine.spec.warnings, *engine.tools.warnings):
            print_notice(f"warning: {warning}")
        if engine.tools.registry.get(tool) is None:
            raise SpecError(f"this agent has no tool {tool!r}", hint=engine.tools.registry.suggest_name(tool))
        event = _run_call(engine.tools, _build_call(tool, arguments), is_approved=yes)
    for note in event.notes:
        print_notice(f"note: {note}")
    _print_result(event, as_json)
    return SUCCESS if event.outcome == "succeeded" else NEGATIVE


def _build_call(tool: str, arguments: str) -> ToolCall:
    """Return the call, with its arguments parsed like a model's."""
    if arguments.startswith("@"):
        try:
            arguments = Path(arguments[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"the arguments cannot be read: {error}", path="--args") from None
    values, problem = parse_arguments(arguments)
    return ToolCall(id="call_1", name=tool, arguments=values, raw=arguments, problem=problem)


def _run_call(tools: ToolExecutor, call: ToolCall, *, is_approved: bool) -> ToolFinished:
    """Review the call, ask for approval if needed, run it, and return its outcome."""
    verdict = tools.review(call, (call.name,))
    if verdict.ruling in ("denied", "invalid"):
        outcome = "denied" if verdict.ruling == "denied" else "failed"
        return tools.refuse(call, outcome, verdict.reason or "refused")
    if verdict.ruling == "needs_approval" and not is_approved:
        if not can_ask_user():
            return tools.refuse(call, "denied", "not executed: it needs approval (use --yes)")
        approver = TerminalApprover()
        approver.tools = tools
        candidate = call if verdict.arguments is None else _replace_arguments(call, verdict.arguments)
        decision = asyncio.run(approver.decide_question(candidate, tools.ask_about(candidate)))
        if decision is None or not decision.approved:
            reason = decision.reason if decision else None
            return tools.refuse(call, "denied", f"not executed: {reason or 'not approved'}")
        if decision.arguments is not None:
            call = _replace_arguments(call, decision.arguments)
    try:
        return asyncio.run(tools.run(call, (call.name,)))
    except ToolPending:
        return tools.refuse(call, "failed", "its outcome comes later, from outside: run it in a turn")


def _replace_arguments(call: ToolCall, arguments: dict[str, object]) -> ToolCall:
    return ToolCall(id=call.id, name=call.name, arguments=arguments)


def _print_result(event: ToolFinished, as_json: bool) -> None:
    """Print the whole result object, or only its value: a text as it is, anything else as JSON."""
    value = event.result.get("result")
    if as_json:
        print_json(event.result)
    elif event.outcome != "succeeded":
        print_notice(f"toolchart: {event.outcome}: {event.result['error']}")
    elif isinstance(value, str):
        click.echo(escape_controls(value) if is_terminal(sys.stdout) else value)
    else:
        print_json(value)
