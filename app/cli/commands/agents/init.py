"""`toolchart init`: write an agent of one's own, copied from one that ships, and list what there is."""

from __future__ import annotations

from pathlib import Path

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.listing import print_listing
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import json_option
from toolchart.app.cli.terminal.output import echo
from toolchart.specs.loader import list_shipped_agents, read_shipped_agent
from toolchart.states.errors import SpecError, suggest_name


@click.command(short_help="Write an agent, copied from one that ships.")
@click.argument("name", required=False)
@click.option(
    "--from", "origin", default="quickstart", show_default=True, help="Shipped agent or flow to copy."
)
@click.option(
    "--list", "lists", is_flag=True, help="List the agents and charts that ship, and those of this folder."
)
@json_option
def command(name: str | None, origin: str, lists: bool, as_json: bool) -> int:
    """Write NAME.yaml, a copy of a shipped agent or flow, to be changed. It runs at once, offline.

    An existing file is never overwritten.

    \b
    Example:  toolchart init --list
              toolchart init editor --from reflection
              toolchart run editor.yaml "tides"
    """
    if lists:
        print_listing(as_json=as_json)
        return SUCCESS
    if name is None:
        raise click.UsageError("Name the agent to write, or use --list.")
    if origin not in list_shipped_agents():
        raise SpecError(
            f"there is no shipped agent {origin!r}", hint=suggest_name(origin, list_shipped_agents())
        )
    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    text = read_shipped_agent(origin).replace(f"\nname: {origin}\n", f"\nname: {path.stem}\n", 1)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(f"{path} exists already", hint="choose another name; nothing was written") from None
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror or error}") from None
    if as_json:
        print_json({"path": str(path), "from": origin})
    else:
        echo(str(path))
        click.echo(
            f'next: toolchart run {path} "..."    toolchart check {path}    toolchart draw {path}', err=True
        )
    return SUCCESS
