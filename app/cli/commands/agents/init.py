"""`toolchart init`: write an agent of one's own, copied from one that ships, and list what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.listing import print_listing
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import json_option
from toolchart.app.cli.terminal.output import echo
from toolchart.providers.hosts import find_host
from toolchart.specs.loader import list_shipped_agents, read_shipped_agent
from toolchart.states.errors import SpecError, suggest_name


@click.command(short_help="Write an agent, copied from one that ships.")
@click.argument("name", required=False)
@click.option("--from", "origin", help="Shipped agent or flow to copy.  [default: quickstart]")
@click.option(
    "--model", metavar="PROVIDER:MODEL", help="Write an agent of this model, for instance openai:gpt-5-mini."
)
@click.option(
    "--list", "lists", is_flag=True, help="List the agents and charts that ship, and those of this folder."
)
@json_option
def command(name: str | None, origin: str | None, model: str | None, lists: bool, as_json: bool) -> int:
    """Write NAME.yaml, an agent to be changed: of a model that you name, or a copy of one that ships.

    A copy of the quickstart or of a flow runs at once, offline. An existing file is never overwritten.

    \b
    Example:  toolchart init support --model openai:gpt-5-mini
              toolchart init --list
              toolchart init editor --from reflection
              toolchart run editor.yaml "tides"
    """
    if lists:
        print_listing(as_json=as_json)
        return SUCCESS
    if name is None:
        raise click.UsageError("Name the agent to write, or use --list.")
    if origin is not None and model is not None:
        raise click.UsageError(
            "--from copies an agent with its model: leave out --model, or change the copy."
        )
    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if model is not None:
        text = _write_agent(path.stem, model)
    else:
        origin = origin or "quickstart"
        if origin not in list_shipped_agents():
            raise SpecError(
                f"there is no shipped agent {origin!r}", hint=suggest_name(origin, list_shipped_agents())
            )
        text = read_shipped_agent(origin).replace(f"\nname: {origin}\n", f"\nname: {path.stem}\n", 1)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(f"{path} exists already", hint="choose another name; nothing was written") from None
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror or error}") from None
    if as_json:
        print_json({"path": str(path), **({"from": origin} if model is None else {"model": model})})
    else:
        echo(str(path))
        click.echo(
            f'next: toolchart run {path} "..."    toolchart check {path}    toolchart draw {path}', err=True
        )
    return SUCCESS


_AGENT = """\
name: {name}
llms:
  main: {{provider: {provider}, model: {model}}}
responses:
  - llm: main
    prompt: You are a helpful assistant.
    tools: {{enabled: true}}
tools:
  max_iterations: 10
  registry:
    - {{name: calculator}}
    - {{name: get_current_datetime}}
"""

_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")

_YAML_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def _write_agent(name: str, model: str) -> str:
    """A small agent of a model, whose key comes from the variable that is usual for its host.

    Raises:
        SpecError: the model is not named as PROVIDER:MODEL, or there is no such provider.
    """
    provider, _, model_name = model.partition(":")
    if not provider or not model_name:
        raise SpecError(
            f"a model is named as PROVIDER:MODEL, not {model!r}",
            path="--model",
            hint="for instance openai:gpt-5-mini",
        )
    find_host(provider, "--model")  # an unknown name is refused here
    return _AGENT.format(name=_write_yaml(name), provider=provider, model=_write_yaml(model_name))


def _write_yaml(text: str) -> str:
    """A text as YAML has it inside braces; in quotes where it would be something else."""
    is_plain = _PLAIN_TEXT.fullmatch(text) is not None and text.lower() not in _YAML_WORDS
    return text if is_plain else json.dumps(text)
