"""Tool definitions encoded for each model provider, and tool names that all providers accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import ToolDefinition
from toolchart.states.schema_dialects import DIALECTS, find_strict_obstacle, lower_schema

PORTABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Names that every provider accepts. Source: OpenAI allows `[A-Za-z0-9_-]{1,64}`, Gemini wants a
letter or an underscore first (both read in their SDKs' documentation of function declarations)."""


class ConvertedTools(msgspec.Struct, frozen=True, kw_only=True):
    """Tool definitions encoded for one provider."""

    tools: list[dict[str, Any]]
    rewrites: tuple[str, ...]
    """Schema changes that the provider's subset of JSON Schema required: `tool: path: change`."""


def _encode_openai_tool(tool: ToolDefinition, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _encode_gemini_tool(tool: ToolDefinition, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters_json_schema": parameters}


def _encode_anthropic_tool(tool: ToolDefinition, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": parameters}


_ENCODERS: dict[str, Callable[[ToolDefinition, dict[str, Any]], dict[str, Any]]] = {
    "openai": _encode_openai_tool,
    "ollama": _encode_openai_tool,
    "gemini": _encode_gemini_tool,
    "anthropic": _encode_anthropic_tool,
    "openai-strict": _encode_openai_tool,
    "anthropic-strict": _encode_anthropic_tool,
}
"""By provider: the function that encodes one tool definition."""


def convert_tools(tools: Iterable[ToolDefinition], provider: str) -> ConvertedTools:
    """Encode tool definitions for a provider, and list every schema change that this required.

    Raises:
        SpecError: an unknown provider.
    """
    if provider not in _ENCODERS:
        raise SpecError(f"no tool format for provider {provider!r}", hint=suggest_name(provider, _ENCODERS))
    entries: list[dict[str, Any]] = []
    rewrites: list[str] = []
    for tool in tools:
        dialect = DIALECTS[provider]
        changes: tuple[str, ...] = ()
        obstacle = find_strict_obstacle(tool.parameters) if dialect.is_strict else None
        if obstacle:
            dialect, changes = DIALECTS[provider.removesuffix("-strict")], (f"not strict: {obstacle}",)
        parameters, rewrites_of_tool = lower_schema(tool.parameters, dialect)
        entries.append(_ENCODERS[provider](tool, parameters))
        changes += rewrites_of_tool
        rewrites += [f"{tool.name}: {change}" for change in changes]
    if provider == "gemini":
        # One Tool with all declarations: the raw interface reads only the first Tool.
        entries = [{"function_declarations": entries}]
    return ConvertedTools(tools=entries, rewrites=tuple(rewrites))


def provider_format(tools: Iterable[ToolDefinition], provider: str) -> list[dict[str, Any]]:
    """Encode tool definitions for a provider, without the list of schema changes.

    Raises:
        SpecError: an unknown provider.
    """
    return convert_tools(tools, provider).tools


def make_portable_name(name: str, used_names: Iterable[str] = ()) -> str:
    """Spell a name so that every provider accepts it, and so that it differs from `used_names`.

    >>> make_portable_name("geo.lookup")
    'geo_lookup'
    >>> make_portable_name("geo.lookup", used_names=["geo_lookup"])
    'geo_lookup_2'
    """
    base = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") or "tool"
    base = (base if re.match(r"[A-Za-z_]", base) else f"_{base}")[:64]
    lower_names = {used_name.lower() for used_name in used_names}
    candidate, number = base, 2
    while candidate.lower() in lower_names:
        suffix = f"_{number}"
        candidate, number = base[: 64 - len(suffix)] + suffix, number + 1
    return candidate
