"""`toolchart tools test`: run one tool as the executor would run it for a model."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolchart.app.cli.exit_codes import DONE, NO
from toolchart.app.cli.log_access import json_option, print_json
from toolchart.app.cli.terminal.approval_prompt import Asking, somebody_there
from toolchart.app.cli.terminal.text import on_terminal, printable, talk
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolCall

if TYPE_CHECKING:
    from toolchart.states.events import ToolFinished
    from toolchart.tools.execution.executor import ToolExecutor


@click.command("test", short_help="Run one tool of an agent.")
@click.argument("spec")
@click.argument("tool")
@click.option(
    "--args", "arguments", default="{}", metavar="JSON", help="Its arguments; @FILE reads a file."
)
@click.option("--yes", "-y", is_flag=True, help="Run it also where it needs approval.")
@json_option
def try_command(spec: str, tool: str, arguments: str, yes: bool, as_json: bool) -> int:
    """Run TOOL of the agent SPEC with arguments, as a model's call would be run: checked against its
    schema, repaired where that is safe, asked about where it needs approval, ended at its timeout.

    The result goes to stdout, what was done to the call to stderr. Exits with 1 where the tool failed
    or was not approved.

    \b
    Example:  toolchart tools test quickstart calculator --args '{"expression": "17 * (23 + 4)"}'
              toolchart tools test agent.yaml lookup --args @arguments.json --json
    """
    from toolchart.engine.runtime.engine import Engine

    with Engine(spec, log="memory") as engine:
        for warning in (*engine.spec.warnings, *engine.tools.warnings):
            talk(f"warning: {warning}")
        if engine.tools.registry.get(tool) is None:
            raise SpecError(
                f"this agent has no tool {tool!r}", hint=engine.tools.registry.nearest(tool)
            )
        event = _finished(engine.tools, _call(tool, arguments), agreed=yes)
    for note in event.notes:
        talk(f"note: {note}")
    _print(event, as_json)
    return DONE if event.outcome == "succeeded" else NO


def _call(tool: str, arguments: str) -> ToolCall:
    """The call, its arguments read as those of a model."""
    from toolchart.providers.shared.arguments import parse_arguments

    if arguments.startswith("@"):
        try:
            arguments = Path(arguments[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"the arguments cannot be read: {error}", path="--args") from None
    given, problem = parse_arguments(arguments)
    return ToolCall(id="call_1", name=tool, arguments=given, raw=arguments, problem=problem)


def _finished(tools: ToolExecutor, call: ToolCall, *, agreed: bool) -> ToolFinished:
    """How the call ended, which may be before it ran."""
    verdict = tools.review(call, (call.name,))
    if verdict.ruling in ("denied", "invalid"):
        outcome = "denied" if verdict.ruling == "denied" else "failed"
        return tools.refuse(call, outcome, verdict.reason or "refused")
    if verdict.ruling == "needs_approval" and not agreed:
        if not somebody_there():
            return tools.refuse(
                call, "denied", "not executed: it needs approval, which --yes gives"
            )
        asking = Asking()
        asking.tools = tools
        shown = call if verdict.arguments is None else _with(call, verdict.arguments)
        decided = asking.ask(shown)
        if decided is None or not decided.approved:
            reason = decided.reason if decided else None
            return tools.refuse(call, "denied", f"not executed: {reason or 'not approved'}")
        if decided.arguments is not None:
            call = _with(call, decided.arguments)
    return asyncio.run(tools.run(call, (call.name,)))


def _with(call: ToolCall, arguments: dict[str, object]) -> ToolCall:
    return ToolCall(id=call.id, name=call.name, arguments=arguments)


def _print(event: ToolFinished, as_json: bool) -> None:
    """The whole result object, or its value: a text as it is, anything else as JSON."""
    value = event.result.get("result")
    if as_json:
        print_json(event.result)
    elif event.outcome != "succeeded":
        talk(f"toolchart: {event.outcome}: {event.result['error']}")
    elif isinstance(value, str):
        click.echo(printable(value) if on_terminal(sys.stdout) else value)
    else:
        print_json(value)
