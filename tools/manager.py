"""The manager: from the `tools` section of a spec, and Python functions, to tools that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from toolchart.specs.models import Implementation, ToolEntry, ToolsConfig
from toolchart.states.messages import ToolDefinition
from toolchart.tools.builtin import BUILTINS
from toolchart.tools.definition import Tool
from toolchart.tools.executor import ToolExecutor
from toolchart.tools.function import tool_of
from toolchart.tools.registry import Registry


class ToolManager(ToolExecutor):
    """The tools of one agent. It is the executor that the engine works with.

    Attributes:
        warnings: what was left out and why, for people.
    """

    def __init__(self, registry: Registry, warnings: tuple[str, ...] = ()) -> None:
        super().__init__(registry)
        self.warnings = warnings

    @classmethod
    def from_config(
        cls, config: ToolsConfig, *, functions: Sequence[Tool | Callable[..., Any]] = ()
    ) -> ToolManager:
        """The tools of a spec, then the Python functions.

        An entry that names no known builtin is left out with a warning that names the nearest.

        Raises:
            SpecError: two tools of one name, a name no provider takes, a schema that is none.
        """
        registry, warnings = Registry(), []
        for entry in config.registry:
            tool = _tool(entry)
            if isinstance(tool, str):
                warnings.append(tool)
            else:
                registry.add(_settings(tool, entry, config))
        for function in functions:
            registry.add(function if isinstance(function, Tool) else tool_of(function))
        return cls(registry, tuple(warnings))

    def names(self) -> tuple[str, ...]:
        """Every tool's name, in order."""
        return self.registry.names()

    @property
    def risky(self) -> tuple[str, ...]:
        """Names of the tools that a person should decide about."""
        return tuple(t.name for t in self.registry if t.requires_approval or t.risk == "high")


def _tool(entry: ToolEntry) -> Tool | str:
    """The tool of an entry, or why there is none."""
    does = entry.implementation or Implementation(type="builtin")
    if does.type == "mock":
        return _mock(entry, does)
    if does.type == "builtin":
        return _builtin(entry, does.handler or entry.name)
    return (
        f"tool {entry.name!r} left out: tools of type {does.type!r} cannot be run here "
        "(known: mock, builtin)"
    )


def _builtin(entry: ToolEntry, handler: str) -> Tool | str:
    found = BUILTINS.get(handler)
    if found is None:
        close = get_close_matches(handler, BUILTINS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(BUILTINS)
        return f"tool {entry.name!r} left out: there is no builtin {handler!r}; {hint}"
    known = found.definition
    definition = ToolDefinition(
        name=entry.name,
        description=entry.description or known.description,
        parameters=entry.parameters or known.parameters,
    )
    return replace(found, definition=definition)


def _mock(entry: ToolEntry, does: Implementation) -> Tool:
    answer = does.mock_response

    def respond(arguments: Mapping[str, Any]) -> Any:
        return answer

    return Tool(
        definition=ToolDefinition(
            name=entry.name,
            description=entry.description or f"{entry.name} (mock)",
            parameters=entry.parameters or {"type": "object", "properties": {}},
        ),
        run=respond,
        kind="mock",
    )


def _settings(tool: Tool, entry: ToolEntry, config: ToolsConfig) -> Tool:
    return replace(
        tool,
        timeout_s=(entry.timeout_ms or config.default_timeout_ms) / 1000,
        idempotent=entry.idempotent or tool.idempotent,
        requires_approval=entry.requires_approval,
        risk=entry.risk,
    )
