"""`toolchart tools`: what an agent's models may call."""

from __future__ import annotations

import click

from toolchart.app.cli.common import json_option, print_json, short


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
    """List the tools of the agent SPEC.

    \b
    Example:  toolchart tools list quickstart
              toolchart tools list quickstart --provider gemini
    """
    from toolchart.specs.loader import load_spec
    from toolchart.specs.models import ToolsConfig
    from toolchart.states.codec import encode
    from toolchart.tools.manager import ToolManager
    from toolchart.tools.registry import provider_format

    loaded = load_spec(spec)
    manager = ToolManager.from_config(loaded.tools or ToolsConfig())
    for warning in (*loaded.warnings, *manager.warnings):
        click.echo(f"warning: {warning}", err=True)
    if provider:
        print_json(provider_format(manager.definitions(), provider))
        return 0
    for tool in manager.registry:
        if as_json:
            print_json({**encode(tool.definition), "kind": tool.kind}, lines=True)
        else:
            click.echo(f"{tool.name:<24} {tool.kind:<8} {short(tool.definition.description, 80)}")
    return 0
