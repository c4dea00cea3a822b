"""The registry: which tools exist, and what a model is told of them in each provider's form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from toolchart.states.chart_rules import nearest
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""Names that every provider takes. Source: OpenAI allows `[A-Za-z0-9_-]{1,64}`, Gemini wants a letter
or an underscore first (both read in their SDKs' documentation of function declarations)."""


class Registry:
    """Tools by name, in the order in which they were added."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Add a tool.

        Raises:
            SpecError: the name is taken, and the first tool stays, or no provider would take it.
        """
        if not NAME.fullmatch(tool.name):
            raise SpecError(
                f"{tool.name!r} is not a name for a tool",
                hint="letters, digits, _ and -, beginning with a letter or _, at most 64",
            )
        if tool.name in self._tools:
            raise SpecError(f"there are two tools {tool.name!r}", hint="the first one stays")
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    def nearest(self, name: str) -> str:
        """A hint with the nearest name, or with all."""
        return nearest(name, self._tools) if self._tools else "there are no tools"

    def names(self) -> tuple[str, ...]:
        """Every name, in order."""
        return tuple(self._tools)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """What a model is told of each tool, in order."""
        return tuple(tool.definition for tool in self._tools.values())

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


def _function(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def _declaration(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters_json_schema": tool.parameters,
    }


def _functions(tools: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    return [_function(tool) for tool in tools]


def _declarations(tools: Iterable[ToolDefinition]) -> list[dict[str, Any]]:
    # One Tool with all declarations: on the raw interface only the first Tool counts.
    return [{"function_declarations": [_declaration(tool) for tool in tools]}]


FORMATS: dict[str, Callable[[Iterable[ToolDefinition]], list[dict[str, Any]]]] = {
    "openai": _functions,
    "ollama": _functions,
    "gemini": _declarations,
}
"""How each provider wants to be told of tools."""


def provider_format(tools: Iterable[ToolDefinition], provider: str) -> list[dict[str, Any]]:
    """The tools in a provider's form.

    Raises:
        SpecError: an unknown provider.
    """
    if provider not in FORMATS:
        raise SpecError(f"no tool format for provider {provider!r}", hint=nearest(provider, FORMATS))
    return FORMATS[provider](tools)
