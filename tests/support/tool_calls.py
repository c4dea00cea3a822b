"""Builders of tools, calls, executors and snapshots for the tests of tools."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from toolchart.states.events import Limits, Settings
from toolchart.states.message_list import MessageList
from toolchart.states.messages import Message, ToolCall, ToolDefinition
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.tools.definition import Tool
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.registry import Registry

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def build_tool(
    name: str, run: Callable[..., Any], parameters: dict[str, Any] | None = None, **options: Any
) -> Tool:
    """A tool that runs the given function; `options` are fields of `Tool`."""
    definition = ToolDefinition(name=name, description=name, parameters=parameters or NOTHING)
    execution_mode = "async" if inspect.iscoroutinefunction(run) else "inline"
    return Tool(
        definition=definition, run=run, **{"execution_mode": execution_mode, "kind": "test", **options}
    )


def make_executor(*tools: Tool, **options: Any) -> ToolExecutor:
    """An executor for these tools."""
    return ToolExecutor(Registry(tools), **options)


def make_call(name: str, arguments: Any = None, id: str = "call_1", **fields: Any) -> ToolCall:
    """A tool call; arguments that are a text are parsed as a provider's adapter parses them."""
    if isinstance(arguments, str):
        try:
            parsed_arguments = json.loads(arguments)
        except ValueError as error:
            return ToolCall(id=id, name=name, raw=arguments, problem=f"not valid JSON: {error}")
        return ToolCall(id=id, name=name, arguments=parsed_arguments, raw=arguments)
    return ToolCall(id=id, name=name, arguments={} if arguments is None else arguments, **fields)


def run_calls(executor: Any, *calls: ToolCall, allowed: Sequence[str] | None = None) -> list[Any]:
    """Run the calls concurrently, as the driver does, and return how they ended."""

    async def gather_runs() -> list[Any]:
        names = tuple(definition.name for definition in executor.definitions())
        allowed_tools = names if allowed is None else allowed
        return await asyncio.gather(*(executor.run(call, allowed_tools) for call in calls))

    return asyncio.run(gather_runs())


def build_snapshot(
    *calls: ToolCall, repeat_count: int = 1, executor: ToolExecutor | None = None, **fields: Any
) -> Snapshot:
    """A snapshot whose latest reply has these calls, which were approved and are about to run.

    Args:
        executor: its tools are those that were approved; without it the decisions name no definition.
    """
    limits = fields.pop("limits", Limits())
    definition = executor.describe_tool(calls[0].name) if executor is not None else None
    approval: Any = {"ruling": "run", "decided_at": "2026-01-01T00:00:00+00:00", "definition": definition}
    open_calls = tuple(OpenCall(call=call, repeat=repeat_count, **approval) for call in calls)
    messages = fields.pop("messages", (Message(role="user", content="go"),))
    return Snapshot(
        turn=1,
        settings=Settings(service="s", provider="scripted", model="m", limits=limits),
        calls=open_calls,
        messages=MessageList(messages),
        **fields,
    )
