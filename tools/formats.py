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


class _ToolFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How one provider writes tool definitions."""

    encode: Callable[[ToolDefinition, dict[str, Any]], dict[str, Any]]
    """Writes one definition with its lowered schema."""
    loose: str | None = None
    """For a strict form: the one of a tool that cannot be strict."""
    list_key: str | None = None
    """The key under which all definitions stand in one entry, where they do."""


def _encode_openai_tool(tool: ToolDefinition, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _encode_gemini_tool(tool: ToolDefinition, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters_json_schema": parameters}


def _encode_anthropic_tool(tool: ToolDefinition, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": parameters}


_FORMATS = {
    "openai": _ToolFormat(encode=_encode_openai_tool),
    "ollama": _ToolFormat(encode=_encode_openai_tool),
    # One Tool with all declarations: the raw interface reads only the first Tool.
    "gemini": _ToolFormat(encode=_encode_gemini_tool, list_key="function_declarations"),
    "anthropic": _ToolFormat(encode=_encode_anthropic_tool),
    "openai-strict": _ToolFormat(encode=_encode_openai_tool, loose="openai"),
    "anthropic-strict": _ToolFormat(encode=_encode_anthropic_tool, loose="anthropic"),
}
"""By provider: how it writes tools; their schemas are lowered to its dialect (`DIALECTS`)."""


def convert_tools(tools: Iterable[ToolDefinition], provider: str) -> ConvertedTools:
    """Encode tool definitions for a provider, and list every schema change that this required.

    Raises:
        SpecError: an unknown provider.
    """
    if provider not in _FORMATS:
        raise SpecError(f"no tool format for provider {provider!r}", hint=suggest_name(provider, _FORMATS))
    form = _FORMATS[provider]
    entries: list[dict[str, Any]] = []
    rewrites: list[str] = []
    for tool in tools:
        dialect = DIALECTS[provider]
        obstacle = find_strict_obstacle(tool.parameters) if form.loose is not None else None
        if obstacle and form.loose is not None:
            dialect = DIALECTS[form.loose]
            rewrites.append(f"{tool.name}: not strict: {obstacle}")
        parameters, changes = lower_schema(tool.parameters, dialect)
        entries.append(form.encode(tool, parameters))
        rewrites += [f"{tool.name}: {change}" for change in changes]
    if form.list_key is not None:
        entries = [{form.list_key: entries}]
    return ConvertedTools(tools=entries, rewrites=tuple(rewrites))


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
