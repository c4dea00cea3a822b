"""Makes small agents for tests: a spec, tools, a scripted model and an engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import Tool


def make_spec(**changes: Any) -> dict[str, Any]:
    """Make an agent spec with a calculator, an echo and a mock tool, on a scripted model."""
    return {
        "chart": "tool_loop",
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


def make_engine(
    replies: Sequence[Any], *, log: Any = "memory", functions: Sequence[Any] = (), **changes: Any
) -> Engine:
    """Make an engine whose model gives these replies; `changes` replace sections of the spec."""
    names = ("observer", "approver", "signer", "asker", "clock", "services", "dependencies", "telemetry")
    options = {name: changes.pop(name) for name in names if name in changes}
    return Engine(
        make_spec(**changes),
        log=log,
        functions=functions,
        providers={"model": ScriptedProvider(replies)},
        **options,
    )


def reply_with_calls(*tool_calls: tuple[str, Any]) -> dict[str, Any]:
    """Make a scripted reply with these tool calls, each a name and its arguments."""
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in tool_calls]}


def make_function_tool(name: str, parameters: dict[str, Any], run: Callable[..., Any]) -> Tool:
    """Make a tool from a function of the test."""
    definition = ToolDefinition(name=name, description=name, parameters=parameters)
    way = "async" if inspect.iscoroutinefunction(run) else "inline"
    return Tool(definition=definition, run=run, execution_mode=way)
