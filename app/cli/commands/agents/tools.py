"""`toolchart tools`: the commands about tools, `tools list`, `tools pin` and `tools test`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import json_option, list_engine_options
from toolchart.app.cli.terminal.approval_prompt import TerminalApprover
from toolchart.app.cli.terminal.line_reading import can_ask_user
from toolchart.app.cli.terminal.output import echo, get_output
from toolchart.app.cli.terminal.text import (
    escape_controls,
    is_terminal,
    print_notice,
    print_text,
    shorten,
    terminal_width,
)
from toolchart.providers.hosts import find_host
from toolchart.states.call_arguments import parse_arguments
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolCall
from toolchart.tools.builtin import BUILTINS
from toolchart.tools.definition import ToolPending
from toolchart.tools.formats import ConvertedTools, convert_tools
from toolchart.tools.sources.table import TOOL_SOURCES
from toolchart.tools.whole_definition import describe_definition

if TYPE_CHECKING:
    from toolchart.states.events import ToolFinished
    from toolchart.tools.definition import Tool
    from toolchart.tools.execution.executor import ToolExecutor

# -- tools test -----------------------------------------------------------------------------------------


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

    with Engine(**list_engine_options(spec), log="memory") as engine:
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
        echo(escape_controls(value) if is_terminal(get_output()) else value)
    else:
        print_json(value)


# -- tools, tools list, tools pin -----------------------------------------------------------------------


@click.group(short_help="List the tools of an agent, or run one of them.")
def command() -> None:
    """List the tools of an agent, or run one of them."""


command.add_command(try_command)


@command.command("list", short_help="List the tools of an agent.")
@click.argument("spec", required=False)
@click.option(
    "--provider", metavar="NAME", help="Print the JSON sent to this provider, as an `llms` entry names it."
)
@json_option
def list_tools(spec: str | None, provider: str | None, as_json: bool) -> int:
    """List the tools of the agent SPEC, or without SPEC the builtin tools: name, kind, description.

    With --provider, each change that the provider's dialect of JSON Schema requires is printed on stderr.

    \b
    Example:  toolchart tools list
              toolchart tools list quickstart --json | jq .parameters
              toolchart tools list quickstart --provider gemini
    """
    tools, warnings = _load_tools(spec)
    for warning in warnings:
        print_notice(f"warning: {warning}")
    if provider:
        conversion = _convert_tools(tools, provider)
        for rewrite in (*_list_rewrites(tools), *conversion.rewrites):
            print_notice(f"warning: {rewrite}")
        print_json(conversion.tools)
        return 0
    if as_json:
        for tool in tools:
            print_json(_encode_tool_row(tool), lines=True)
    else:
        _print_tool_table(tools)
    if not tools:
        print_notice("this agent has no tools")
    return 0


@command.command("pin", short_help="Print the definitions of tools, to notice changes.")
@click.argument("spec")
@click.option(
    "--all", "pins_all", is_flag=True, help="Pin every tool, also those that the spec itself defines."
)
def pin_tools(spec: str, pins_all: bool) -> int:
    """Print a `pins` section for `tools`: the definition of each tool of an MCP server, an OpenAPI document
    or an HTTP entry, part by part.

    It covers what a model reads and what is done: address, method, where arguments go, command, hints, risk.
    Read the tools first (`toolchart tools list SPEC --json`). With the section in the spec, a tool asks
    before each call where any part of it has changed, and so does an imported tool without a pin. A warning
    and the question name what changed.

    \b
    Example:  toolchart tools pin agent.yaml
              toolchart tools pin agent.yaml --all
    """
    tools, warnings = _load_tools(spec)
    for warning in warnings:
        print_notice(f"warning: {warning}")
    pins = {tool.name: describe_definition(tool) for tool in tools if pins_all or _is_of_strangers(tool)}
    echo("pins:" if pins else "pins: {}")
    for name, parts in pins.items():
        print_text(f"  {name}:")
        for part, text in parts.items():
            # JSON texts are YAML; what `print_text` makes visible, YAML reads as the same character again.
            print_text(f"    {_quote(part)}: {_quote(text)}")
    return 0


def _is_of_strangers(tool: Tool) -> bool:
    """Whether strangers may write what a tool returns, and so may have changed what it is."""
    source = TOOL_SOURCES.find_known(tool.kind)
    return source is not None and source.trust == "untrusted"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _convert_tools(tools: list[Tool], provider: str) -> ConvertedTools:
    """Return the tools in the dialect of JSON Schema that the provider's host supports.

    Raises:
        SpecError: there is no such provider, or it contacts no host, or its dialect has no tool format.
    """
    formats = find_host(provider).formats
    dialect = formats[0].dialect if formats else None
    return convert_tools([tool.definition for tool in tools], dialect.name if dialect else provider)


def _load_tools(spec: str | None) -> tuple[list[Tool], tuple[str, ...]]:
    """Return the tools of an agent, or the builtin tools, with the warnings about them."""
    if spec is None:
        return list(BUILTINS.values()), ()
    from toolchart.engine.runtime.engine import Engine

    with Engine(**list_engine_options(spec), log="memory") as engine:
        return list(engine.tools.registry), (*engine.spec.warnings, *engine.tools.warnings)


def _list_rewrites(tools: list[Tool]) -> list[str]:
    """Return the changes that are independent of a provider: to names, and to imported schemas."""
    notes = []
    for tool in tools:
        if tool.alias:
            notes.append(f"{tool.name}: named {tool.alias!r} in the spec; both names work")
        notes += [f"{tool.name}: {change}" for change in tool.rewrites]
    return notes


def _encode_tool_row(tool: Tool) -> dict[str, Any]:
    return {
        **to_builtins(tool.definition),
        "kind": tool.kind,
        "alias": tool.alias,
        "risk": tool.risk,
        "requires_approval": tool.requires_approval,
        "idempotent": tool.idempotent,
        "parallel": tool.parallel,
        "timeout_ms": round(tool.timeout_s * 1000),
        "rewrites": list(tool.rewrites),
    }


def _print_tool_table(tools: list[Tool]) -> None:
    width = max((len(tool.name) for tool in tools), default=0)
    for tool in tools:
        head = f"{shorten(tool.name, width):<{width}}  {tool.kind:<8}  "
        echo(head + shorten(tool.definition.description, max(20, terminal_width() - len(head))))
    for change in _list_rewrites(tools):
        print_notice(f"warning: {change}")
