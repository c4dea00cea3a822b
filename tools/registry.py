"""The registry: all tools of an agent by name, and their definitions for the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from msgspec.structs import replace

from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Risk, Tool
from toolchart.tools.formats import PORTABLE_NAME, make_portable_name
from toolchart.tools.whole_definition import describe_definition


class Registry:
    """Tools by name, in the order in which they were added."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.tools: dict[str, Tool] = {}
        """By name, in the order in which they were added; only `add` and `change` write it."""
        self._aliases: dict[str, str] = {}
        self._used_names: set[str] = set()
        """Names and aliases in lower case."""
        self._whole_definitions: dict[str, dict[str, str]] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> Tool:
        """Add a tool, and return it as it was added.

        A name that some provider would refuse is replaced by a portable one. The tool keeps the
        original name as its `alias` and can be called by both.

        Raises:
            SpecError: another tool has this name already, or its risk is none; the registry is unchanged.
        """
        if tool.risk not in get_args(Risk):
            hint = suggest_name(str(tool.risk), get_args(Risk))
            raise SpecError(f"the risk of the tool {tool.name!r} cannot be {tool.risk!r}", hint=hint)
        if not PORTABLE_NAME.fullmatch(tool.name):
            portable_name = make_portable_name(tool.name, self.tools)
            definition = replace(tool.definition, name=portable_name)
            tool = replace(tool, definition=definition, alias=tool.alias or tool.name)
        names = {tool.name.lower(), (tool.alias or tool.name).lower()}
        if not names.isdisjoint(self._used_names):
            raise SpecError(
                f"there are two tools {tool.alias or tool.name!r}",
                hint="the first one is used; names that differ only in case are the same name",
            )
        self._used_names |= names
        self.tools[tool.name] = tool
        if tool.alias:
            self._aliases[tool.alias] = tool.name
        return tool

    def change(self, tool: Tool) -> None:
        """Put a tool in the place of the one with its name."""
        assert tool.name in self.tools, "there is a tool to change"
        self.tools[tool.name] = tool
        self._whole_definitions.pop(tool.name, None)

    def get(self, name: str) -> Tool | None:
        """The tool with that name or alias."""
        tool = self.tools.get(name)
        if tool is None and name in self._aliases:
            return self.tools[self._aliases[name]]
        return tool

    def describe_tool(self, name: str) -> dict[str, str] | None:
        """The whole definition of the tool with that name or alias: what it is and what running it does; see
        `whole_definition.py`. None where there is no such tool."""
        tool = self.get(name)
        if tool is None:
            return None
        if tool.name not in self._whole_definitions:
            self._whole_definitions[tool.name] = describe_definition(tool)
        return self._whole_definitions[tool.name]

    def suggest_name(self, name: str) -> str:
        """A hint for an unknown name: the most similar tool name, or all tool names."""
        return suggest_name(name, self.tools) if self.tools else "there are no tools"

    def names(self) -> tuple[str, ...]:
        """Every tool's name, in order."""
        return tuple(self.tools)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool's definition for the model, in order."""
        return tuple(tool.definition for tool in self.tools.values())

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools.values())

    def __len__(self) -> int:
        return len(self.tools)
