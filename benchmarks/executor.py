"""What the executor adds to one call: validation, timing, the result, beside a bare call.

    python benchmarks/executor.py

Prints microseconds per call for the whole `run`, for its judging alone, for `run` bound to a
conversation, and for the floor: the tool's own function awaited through a coroutine that times it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from toolchart.states.messages import Message, ToolCall, ToolDefinition
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.tools.definition import Tool
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.registry import Registry

ROUNDS = 20_000

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "times": {"type": "integer", "minimum": 1}},
    "required": ["text"],
}


def echo(arguments: dict[str, Any]) -> Any:
    """The trivial tool."""
    return arguments["text"]


async def bare(arguments: dict[str, Any]) -> dict[str, Any]:
    """The floor: call, time, and make the four keys, checking nothing."""
    started = time.perf_counter()
    value = echo(arguments)
    spent = round((time.perf_counter() - started) * 1000, 3)
    return {"success": True, "result": value, "tool_name": "echo", "execution_time_ms": spent}


async def per_call(work: Callable[[], Awaitable[Any]]) -> float:
    """Microseconds of one call, the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(ROUNDS):
            await work()
        best = min(best, time.perf_counter() - started)
    return best / ROUNDS * 1e6


async def main() -> None:
    """Measure and print."""
    tool = Tool(
        definition=ToolDefinition(name="echo", description="Echo.", parameters=SCHEMA), run=echo
    )
    executor = ToolExecutor(Registry([tool]))
    call = ToolCall(id="call_1", name="echo", arguments={"text": "hello", "times": 2})
    allowed = ("echo",)
    snapshot = Snapshot(turn=1, calls=(OpenCall(call=call, ruling="run"),))
    snapshot = snapshot.evolve(messages=snapshot.messages.append(Message(role="user", content="x")))
    bound = executor.bind("c", lambda: snapshot)

    async def judged() -> None:
        executor.judge(call, allowed)

    rows = {
        "floor": await per_call(lambda: bare({"text": "hello", "times": 2})),
        "judge": await per_call(judged),
        "run": await per_call(lambda: executor.run(call, allowed)),
        "run, bound to a conversation": await per_call(lambda: bound.run(call, allowed)),
    }
    for name, spent in rows.items():
        print(f"{name:30} {spent:6.2f} us   {spent / rows['floor']:5.1f} x floor")


if __name__ == "__main__":
    asyncio.run(main())
