"""`toolchart models list`: the models of a host and their capabilities."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from toolchart.app.cli.commands.agents.models_validate import encode_rating, format_badge, results_option
from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import json_option, load_named_spec
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import print_notice, shorten, style_text
from toolchart.providers.catalogs import list_models
from toolchart.providers.entries import can_list_models
from toolchart.providers.hosts import HOSTS
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import resolve_environment
from toolchart.states.errors import ProviderError, SpecError
from toolchart.tools.validation.tracker import Tracker

if TYPE_CHECKING:
    from toolchart.providers.catalogs import OfferedModel
    from toolchart.tools.validation.tracker import ModelRating

_COLUMNS = ("model", "tools", "vision", "thinking", "context", "tested")


@click.command("list", short_help="List the models of a host.")
@click.argument("spec", required=False)
@click.option(
    "--provider", metavar="NAME", help="List the models of this provider, as an `llms` entry names it."
)
@click.option("--base-url", metavar="URL", help="Address of the host; needs --provider.")
@results_option
@json_option
def list_command(
    spec: str | None, provider: str | None, base_url: str | None, results: str, as_json: bool
) -> int:
    """List the models of the hosts of the agent SPEC, or of one provider, with their known capabilities.

    The column `tested` shows the results of `models validate`. API keys come from the agent's entries, else
    from the environment.

    \b
    Example:  toolchart models list ollama
              toolchart models list --provider openai --base-url http://127.0.0.1:8000/v1
              toolchart models list --provider ollama --json | jq 'select(.tools) | .model'
    """
    record = Tracker(results).list_ratings()
    code = SUCCESS
    folder = Path(spec).parent if spec else None
    for name, config in _list_hosts(spec, provider, base_url):
        try:
            models = list_models(config, partial(resolve_environment, where=f"llms.{name}"), folder)
        except ProviderError as error:  # one failure does not hide the other hosts
            print_notice(f"toolchart: {name} ({config.provider}): {error}")
            code = NEGATIVE
            continue
        rows = [
            _build_model_row(name, model, record.get(f"{config.provider}/{model.name}")) for model in models
        ]
        _print_models(name, config.provider, rows, as_json)
    return code


def _print_models(name: str, provider: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json({**row, "tested": encode_rating(row["tested"])}, lines=True)
        return
    print_notice(f"{name} ({provider}): {len(rows)} models")
    if rows:
        _print_model_table(rows)


def _build_model_row(host: str, model: OfferedModel, rating: ModelRating | None) -> dict[str, Any]:
    values = to_builtins(model)
    return {"host": host, "model": values.pop("name"), **values, "tested": rating}


def _list_hosts(spec: str | None, provider: str | None, base_url: str | None) -> list[tuple[str, LLMConfig]]:
    """Return the hosts to ask, by name.

    Raises:
        SpecError: neither or both of agent and provider are given, there is no such provider, or `--base-url`
            comes with an agent.
    """
    if (spec is None) == (provider is None):
        raise SpecError(
            "name either an agent or a provider",
            hint="toolchart models list SPEC, or toolchart models list --provider ollama",
        )
    if spec is None:
        host = HOSTS.find(str(provider), "--provider")
        return [(host.name, LLMConfig(provider=host.name, base_url=base_url))]
    if base_url is not None:
        raise SpecError(
            "--base-url needs --provider", hint="the entries of an agent have their own addresses"
        )

    entries = load_named_spec(spec).llms.items()
    hosted_entries = [(name, entry) for name, entry in entries if can_list_models(entry)]
    for name, entry in entries:
        if (name, entry) not in hosted_entries:
            print_notice(f"{name} ({entry.provider}): has no list of models")
    return hosted_entries


def _print_model_table(rows: list[dict[str, Any]]) -> None:
    rows = [{**row, "tested": format_badge(row["tested"])} for row in rows]
    cells = [_COLUMNS, *(tuple(_format_cell(row[column]) for column in _COLUMNS) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    for number, line in enumerate(cells):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        echo(text.rstrip() if number else style_text(text.rstrip(), bold=True))


def _format_cell(value: Any) -> str:
    """Return a value for the table; `?` if the host does not report it."""
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shorten(str(value), 60)
