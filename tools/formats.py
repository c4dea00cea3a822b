"""What a model is told of the tools, in each provider's form, in one place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.schema_dialects import DIALECTS, lowered
from toolchart.states.suggestions import nearest

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Names that every provider takes. Source: OpenAI allows `[A-Za-z0-9_-]{1,64}`, Gemini wants a
letter or an underscore first (both read in their SDKs' documentation of function declarations)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Tools in one provider's form."""

    tools: list[dict[str, Any]]
    rewrites: tuple[str, ...]
    """What the provider's subset of JSON Schema forced, `tool: place: change`."""


def _function(tool: ToolDefinition, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": parameters,
        },
    }


def _declaration(tool: ToolDefinition, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters_json_schema": parameters,
    }


def _input(tool: ToolDefinition, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": parameters}


_ENTRY: dict[str, Callable[[ToolDefinition, dict[str, Any]], dict[str, Any]]] = {
    "openai": _function,
    "ollama": _function,
    "gemini": _declaration,
    "anthropic": _input,
}
"""How each provider wants to be told of one tool."""


def convert(tools: Iterable[ToolDefinition], provider: str) -> Conversion:
    """The tools in a provider's form, with every rewrite that it took.

    Raises:
        SpecError: an unknown provider.
    """
    if provider not in _ENTRY:
        raise SpecError(f"no tool format for provider {provider!r}", hint=nearest(provider, _ENTRY))
    entries: list[dict[str, Any]] = []
    rewrites: list[str] = []
    for tool in tools:
        parameters, changes = lowered(tool.parameters, DIALECTS[provider])
        entries.append(_ENTRY[provider](tool, parameters))
        rewrites += [f"{tool.name}: {change}" for change in changes]
    if provider == "gemini":
        # One Tool with all declarations: on the raw interface only the first Tool counts.
        entries = [{"function_declarations": entries}]
    return Conversion(tools=entries, rewrites=tuple(rewrites))


def provider_format(tools: Iterable[ToolDefinition], provider: str) -> list[dict[str, Any]]:
    """The tools in a provider's form.

    Raises:
        SpecError: an unknown provider.
    """
    return convert(tools, provider).tools


def portable_name(name: str, taken: Iterable[str] = ()) -> str:
    """The name in a spelling that every provider takes, unlike all that are taken.

    >>> portable_name("geo.lookup")
    'geo_lookup'
    >>> portable_name("geo.lookup", taken=["geo_lookup"])
    'geo_lookup_2'
    """
    base = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "tool"
    base = (base if re.match(r"[A-Za-z_]", base) else f"_{base}")[:64]
    used, fresh, number = {one.lower() for one in taken}, base, 2
    while fresh.lower() in used:
        tail = f"_{number}"
        fresh, number = base[: 64 - len(tail)] + tail, number + 1
    return fresh
