"""`toolchart models list`: the models of a host, and what they can do."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.commands.models_validate import badge, results_option, told
from toolchart.app.cli.exit_codes import DONE, NO
from toolchart.app.cli.log_access import json_option, print_json
from toolchart.app.cli.terminal.text import short, styled, talk
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError

if TYPE_CHECKING:
    from toolchart.providers.models import OfferedModel
    from toolchart.tools.validation.tracker import Standing

_COLUMNS = ("model", "tools", "vision", "thinking", "context", "tested")


@click.command("list", short_help="List the models of a host.")
@click.argument("spec", required=False)
@click.option("--provider", metavar="NAME", help="Ask this provider: openai, ollama, gemini.")
@click.option("--base-url", metavar="URL", help="Address of the host, with --provider.")
@results_option
@json_option
def list_command(
    spec: str | None, provider: str | None, base_url: str | None, results: str, as_json: bool
) -> int:
    """List the models of the hosts of the agent SPEC, or of one provider: what they can, as far as told.

    `tested` is what `models validate` has on record. Keys come from the agent's entries, else from the
    environment.

    \b
    Example:  toolchart models list ollama
              toolchart models list --provider openai --base-url http://127.0.0.1:8000/v1
              toolchart models list --provider ollama --json | jq 'select(.tools) | .model'
    """
    from toolchart.providers.models import list_models
    from toolchart.specs.secrets import resolve
    from toolchart.tools.validation.tracker import Tracker

    record = Tracker(results).standings()
    code = DONE
    for name, config in _hosts(spec, provider, base_url):
        try:
            offered = list_models(config, partial(resolve, where=f"llms.{name}"))
        except ProviderError as error:  # the other hosts are asked all the same
            talk(f"toolchart: {name} ({config.provider}): {error}")
            code = NO
            continue
        rows = [_row(name, one, record.get(f"{config.provider}/{one.name}")) for one in offered]
        _tell(name, config.provider, rows, as_json)
    return code


def _tell(name: str, provider: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json({**row, "tested": told(row["tested"])}, lines=True)
        return
    talk(f"{name} ({provider}): {len(rows)} models")
    if rows:
        _print_table(rows)


def _row(host: str, offered: OfferedModel, tested: Standing | None) -> dict[str, Any]:
    known = asdict(offered)
    return {"host": host, "model": known.pop("name"), **known, "tested": tested}


def _hosts(
    spec: str | None, provider: str | None, base_url: str | None
) -> list[tuple[str, LLMConfig]]:
    """The hosts to ask, by name.

    Raises:
        SpecError: neither or both of agent and provider, or an agent that asks no host.
    """
    if (spec is None) == (provider is None):
        raise SpecError(
            "name an agent or a provider, one of the two",
            hint="toolchart models list SPEC, or toolchart models list --provider ollama",
        )
    if spec is None:
        return [
            (str(provider), LLMConfig.model_validate({"provider": provider, "base_url": base_url}))
        ]
    if base_url is not None:
        raise SpecError("--base-url goes with --provider", hint="an agent's entries have their own")
    from toolchart.specs.loader import load_spec

    entries = load_spec(spec).llms.items()
    asking = [(name, one) for name, one in entries if one.provider not in ("scripted", "recorded")]
    for name, one in entries:
        if (name, one) not in asking:
            talk(f"{name} ({one.provider}): asks no host")
    return asking


def _print_table(rows: list[dict[str, Any]]) -> None:
    rows = [{**row, "tested": badge(row["tested"])} for row in rows]
    cells = [_COLUMNS, *(tuple(_cell(row[column]) for column in _COLUMNS) for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(_COLUMNS))]
    for number, line in enumerate(cells):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(text.rstrip() if number else styled(text.rstrip(), bold=True))


def _cell(value: Any) -> str:
    """`?` is what the host does not say."""
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short(str(value), 60)
