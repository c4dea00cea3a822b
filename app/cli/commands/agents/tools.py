"""`toolchart tools`: the group of commands about tools, and `tools list`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from toolchart.app.cli.commands.agents.tools_test import try_command
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import json_option
from toolchart.app.cli.terminal.text import print_notice, print_text, shorten, terminal_width
from toolchart.providers.hosts import find_host
from toolchart.tools.builtin import BUILTINS
from toolchart.tools.formats import ConvertedTools, convert_tools
from toolchart.tools.whole_definition import describe_definition

if TYPE_CHECKING:
    from toolchart.tools.definition import Tool


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
    pins = {
        tool.name: describe_definition(tool) for tool in tools if pins_all or tool.kind in ("mcp", "http")
    }
    click.echo("pins:" if pins else "pins: {}")
    for name, parts in pins.items():
        print_text(f"  {name}:")
        for part, text in parts.items():
            # JSON texts are YAML; what `print_text` makes visible, YAML reads as the same character again.
            print_text(f"    {_quote(part)}: {_quote(text)}")
    return 0


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

    with Engine(spec, log="memory") as engine:
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
        click.echo(head + shorten(tool.definition.description, max(20, terminal_width() - len(head))))
    for change in _list_rewrites(tools):
        print_notice(f"warning: {change}")
