"""`toolchart tools`: what an agent's models may call, and trying one of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.commands.tools_try import try_command
from toolchart.app.cli.parameters.options import json_option
from toolchart.app.cli.terminal.text import room, short, talk

if TYPE_CHECKING:
    from toolchart.tools.definition import Tool


@click.group(short_help="List the tools of an agent, or try one.")
def command() -> None:
    """Look at the tools of an agent."""


command.add_command(try_command)


@command.command("list", short_help="List the tools of an agent.")
@click.argument("spec", required=False)
@click.option(
    "--provider",
    metavar="NAME",
    help="Print them as this provider is told: openai, anthropic, ollama, gemini.",
)
@json_option
def list_tools(spec: str | None, provider: str | None, as_json: bool) -> int:
    """List the tools of the agent SPEC, or without it the builtins: name, kind, description.

    With --provider, every rewrite that the provider's part of JSON Schema forces is told on stderr.

    \b
    Example:  toolchart tools list
              toolchart tools list quickstart --json | jq .parameters
              toolchart tools list quickstart --provider gemini
    """
    from toolchart.app.cli.log_access import print_json
    from toolchart.tools.formats import convert

    tools, warnings = _tools(spec)
    for warning in warnings:
        talk(f"warning: {warning}")
    if provider:
        converted = convert([tool.definition for tool in tools], provider)
        for rewrite in (*_changes(tools), *converted.rewrites):
            talk(f"warning: {rewrite}")
        print_json(converted.tools)
        return 0
    if as_json:
        for tool in tools:
            print_json(_row(tool), lines=True)
    else:
        _print_table(tools)
    if not tools:
        talk("this agent has no tools")
    return 0


def _tools(spec: str | None) -> tuple[list[Tool], tuple[str, ...]]:
    """The tools of an agent, or the builtins, with what is to be said of them."""
    if spec is None:
        from toolchart.tools.builtin import BUILTINS

        return list(BUILTINS.values()), ()
    from toolchart.engine.runtime.engine import Engine

    with Engine(spec, log="memory") as engine:
        return list(engine.tools.registry), (*engine.spec.warnings, *engine.tools.warnings)


def _changes(tools: list[Tool]) -> list[str]:
    """What was changed before any provider came into it: names, and schemas that were imported."""
    said = []
    for tool in tools:
        if tool.alias:
            said.append(
                f"{tool.name}: called {tool.alias!r} by the spec; both names are understood"
            )
        said += [f"{tool.name}: {change}" for change in tool.rewrites]
    return said


def _row(tool: Tool) -> dict[str, Any]:
    return {
        **asdict(tool.definition),
        "kind": tool.kind,
        "alias": tool.alias,
        "risk": tool.risk,
        "requires_approval": tool.requires_approval,
        "idempotent": tool.idempotent,
        "parallel": tool.parallel,
        "timeout_ms": round(tool.timeout_s * 1000),
        "rewrites": list(tool.rewrites),
    }


def _print_table(tools: list[Tool]) -> None:
    width = max((len(tool.name) for tool in tools), default=0)
    for tool in tools:
        head = f"{short(tool.name, width):<{width}}  {tool.kind:<8}  "
        click.echo(head + short(tool.definition.description, max(20, room() - len(head))))
    for change in _changes(tools):
        talk(f"warning: {change}")
