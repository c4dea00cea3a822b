"""The registry: which tools exist, and what a model is told of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.suggestions import nearest
from toolchart.tools.definition import Tool
from toolchart.tools.formats import NAME, Conversion, convert, portable_name, provider_format

__all__ = ["Registry", "provider_format"]


class Registry:
    """Tools by name, in the order in which they were added."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._aliases: dict[str, str] = {}
        self._converted: dict[str, Conversion] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> Tool:
        """Add a tool; gives it back as it was added.

        A name that some provider would refuse is mapped to a portable one; the tool keeps its own
        as `alias` and answers to both.

        Raises:
            SpecError: the name is taken; the first tool stays.
        """
        if not NAME.fullmatch(tool.name):
            fresh = portable_name(tool.name, self._tools)
            definition = replace(tool.definition, name=fresh)
            tool = replace(tool, definition=definition, alias=tool.alias or tool.name)
        taken = {name.lower() for name in (*self._tools, *self._aliases)}
        if tool.name.lower() in taken or (tool.alias or tool.name).lower() in taken:
            raise SpecError(
                f"there are two tools {tool.alias or tool.name!r}",
                hint="the first one stays; names that differ only in case count as one",
            )
        self._tools[tool.name] = tool
        if tool.alias:
            self._aliases[tool.alias] = tool.name
        self._converted.clear()
        return tool

    def get(self, name: str) -> Tool | None:
        """The tool of that name or alias."""
        tool = self._tools.get(name)
        if tool is None and name in self._aliases:
            return self._tools[self._aliases[name]]
        return tool

    def nearest(self, name: str) -> str:
        """A hint with the nearest name, or with all."""
        return nearest(name, self._tools) if self._tools else "there are no tools"

    def names(self) -> tuple[str, ...]:
        """Every name, in order."""
        return tuple(self._tools)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """What a model is told of each tool, in order."""
        return tuple(tool.definition for tool in self._tools.values())

    def converted(self, provider: str) -> Conversion:
        """All tools in a provider's form, converted once.

        Raises:
            SpecError: an unknown provider.
        """
        if provider not in self._converted:
            self._converted[provider] = convert(self.definitions(), provider)
        return self._converted[provider]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)
