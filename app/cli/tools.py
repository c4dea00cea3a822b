"""`toolchart tools`: what an agent's models may call."""

from __future__ import annotations

from dataclasses import asdict

import click

from toolchart.app.cli.options import json_option
from toolchart.app.cli.text import room, short, talk


@click.group(short_help="List the tools of an agent.")
def command() -> None:
    """Look at the tools of an agent."""


@command.command("list", short_help="List the tools of an agent.")
@click.argument("spec")
@click.option(
    "--provider",
    metavar="NAME",
    help="Print them as this provider is told: openai, ollama, gemini.",
)
@json_option
def list_tools(spec: str, provider: str | None, as_json: bool) -> int:
    """List the tools of the agent SPEC: name, kind, description.

    \b
    Example:  toolchart tools list quickstart
              toolchart tools list quickstart --json | jq .parameters
              toolchart tools list quickstart --provider gemini
    """
    from toolchart.app.cli.common import print_json
    from toolchart.engine.engine import Engine
    from toolchart.tools.formats import convert

    with Engine(spec, log="memory") as engine:
        tools = list(engine.tools.registry)
        for warning in (*engine.spec.warnings, *engine.tools.warnings):
            talk(f"warning: {warning}")
    if provider:
        converted = convert([tool.definition for tool in tools], provider)
        for rewrite in converted.rewrites:
            talk(f"warning: {rewrite}")
        print_json(converted.tools)
        return 0
    width = max((len(tool.name) for tool in tools), default=0)
    for tool in tools:
        if as_json:
            print_json({**asdict(tool.definition), "kind": tool.kind}, lines=True)
        else:
            head = f"{short(tool.name, width):<{width}}  {tool.kind:<8}  "
            click.echo(head + short(tool.definition.description, max(20, room() - len(head))))
    if not tools:
        talk("this agent has no tools")
    return 0
