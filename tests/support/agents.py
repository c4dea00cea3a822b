"""Small agents for tests: a spec, its tools and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool


def spec(**changes: Any) -> dict[str, Any]:
    """An agent spec with a calculator, an echo and a mock, on a scripted model."""
    return {
        "llms": {"model": {"provider": "scripted", "model": "m", "replies": ["unused"]}},
        "tools": {
            "registry": [
                {"name": "calculator"},
                {"name": "echo"},
                {
                    "name": "weather",
                    "description": "The weather.",
                    "parameters": {
                        "type": "object",
                        "properties": {"city": {"type": "string"}},
                        "required": ["city"],
                    },
                    "implementation": {"type": "mock", "mock_response": {"sky": "blue"}},
                },
            ]
        },
        "responses": [{"llm": "model", "prompt": "Be brief.", "tools": {"enabled": True}}],
        **changes,
    }


def engine(
    replies: Sequence[Any], *, log: Any = "memory", functions: Sequence[Any] = (), **changes: Any
) -> Engine:
    """An engine whose model gives these replies."""
    options = {
        k: changes.pop(k) for k in ("observer", "approver", "clock", "services") if k in changes
    }
    return Engine(
        spec(**changes),
        log=log,
        functions=functions,
        providers={"model": ScriptedProvider(replies)},
        **options,
    )


def calls(*made: tuple[str, Any]) -> dict[str, Any]:
    """A scripted reply that asks for these calls."""
    return {"tool_calls": [{"name": name, "arguments": given} for name, given in made]}


def fixed_tool(name: str, parameters: dict[str, Any], run: Callable[..., Any]) -> Tool:
    """A tool of the test's own."""
    definition = ToolDefinition(name=name, description=name, parameters=parameters)
    way = "async" if asyncio.iscoroutinefunction(run) else "inline"
    return Tool(definition=definition, run=run, way=way)
