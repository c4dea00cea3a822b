"""Small parts for tests of the tools room."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from toolchart.states.events import Limits, Settings
from toolchart.states.messages import Message, ToolCall, ToolDefinition
from toolchart.states.persistent_list import Trail
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.tools.definition import Tool
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.registry import Registry

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def made(
    name: str, run: Callable[..., Any], parameters: dict[str, Any] | None = None, **options: Any
) -> Tool:
    """A tool around a function of the test."""
    definition = ToolDefinition(name=name, description=name, parameters=parameters or NOTHING)
    way = "async" if inspect.iscoroutinefunction(run) else "inline"
    return Tool(definition=definition, run=run, **{"way": way, "kind": "test", **options})


def executor(*tools: Tool, **options: Any) -> ToolExecutor:
    """An executor of these tools."""
    return ToolExecutor(Registry(tools), **options)


def call(name: str, arguments: Any = None, id: str = "call_1", **given: Any) -> ToolCall:
    """A call; text as arguments is read as a provider's adapter reads it."""
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments)
        except ValueError as error:
            return ToolCall(id=id, name=name, raw=arguments, problem=f"not valid JSON: {error}")
        return ToolCall(id=id, name=name, arguments=read, raw=arguments)
    return ToolCall(id=id, name=name, arguments={} if arguments is None else arguments, **given)


def ran(executor_: Any, *calls: ToolCall, allowed: Sequence[str] | None = None) -> list[Any]:
    """How the calls ended, run at the same time as the driver does."""

    async def all_() -> list[Any]:
        names = executor_.definitions() if allowed is None else ()
        permitted = tuple(d.name for d in names) if allowed is None else allowed
        return await asyncio.gather(*(executor_.run(one, permitted) for one in calls))

    return asyncio.run(all_())


def standing(*calls: ToolCall, repeat: int = 1, **given: Any) -> Snapshot:
    """A snapshot in which these calls of the latest reply are about to run."""
    limits = given.pop("limits", Limits())
    opened = tuple(OpenCall(call=one, ruling="run", repeat=repeat) for one in calls)
    messages = given.pop("messages", (Message(role="user", content="go"),))
    return Snapshot(
        turn=1,
        settings=Settings(service="s", provider="scripted", model="m", limits=limits),
        calls=opened,
        messages=Trail(messages),
        **given,
    )
