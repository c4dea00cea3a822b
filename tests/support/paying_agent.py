"""An agent that calls `pay` once with the words of the user, for tests of workers that share a log."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from toolchart.engine import Engine
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.waiting import list_undecided_calls
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.definition import Tool

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class EchoModel:
    """A model that calls `pay` once with the user's message, and then answers with it."""

    name = "echo"

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        await asyncio.sleep(0)
        text = next(message.content for message in request.messages if message.role == "user")
        if request.messages[-1].role == "tool":
            return Reply(content=f"paid {text}", finish_reason="stop")
        call = ToolCall(name="pay", arguments={"text": text or ""})
        return Reply(finish_reason="tool_calls", tool_calls=(call,))

    async def aclose(self) -> None:
        """Nothing to close."""


def make_engine(log: Any, pay: Callable[[Any], Any], *, approval: bool = False, **options: Any) -> Engine:
    """An engine whose only tool is `pay`."""
    tool = Tool(
        definition=ToolDefinition(name="pay", description="Pay.", parameters=SCHEMA),
        run=pay,
        execution_mode="async" if inspect.iscoroutinefunction(pay) else "thread",
        requires_approval=approval,
    )
    spec = {
        "chart": "full",
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
    }
    return Engine(spec, log=log, functions=[tool], **{"providers": {"model": EchoModel()}, **options})


def read_waiting_calls(engine: Engine, conversation: str) -> list[Any]:
    """The calls of a conversation that wait for a decision, from the log."""
    loaded = load_conversation(engine.store, conversation)
    assert loaded is not None
    return [open_call.call for open_call in list_undecided_calls(loaded.snapshot)]


async def wait_until(has_happened: Callable[[], bool]) -> None:
    """Return when something has happened that sets no event; fail where it does not within five minutes."""
    async with asyncio.timeout(300):
        while not has_happened():  # noqa: ASYNC110
            await asyncio.sleep(0.003)
