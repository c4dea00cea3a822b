"""Benchmark of the tool executor: the cost of one call, compared with calling the function directly.

    python benchmarks/executor.py

Prints microseconds per call for `run`, for its validation alone, for `run` bound to a conversation, and for
the floor: the tool's function, awaited in a coroutine that measures its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from toolchart.states.messages import Message, ToolCall, ToolDefinition
from toolchart.states.snapshot import OpenCall, OpenCalls, Snapshot
from toolchart.tools.definition import Tool
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.registry import Registry

ROUNDS = 20_000

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "times": {"type": "integer", "minimum": 1}},
    "required": ["text"],
}


def return_text(arguments: dict[str, Any]) -> Any:
    """A trivial tool."""
    return arguments["text"]


async def call_without_executor(arguments: dict[str, Any]) -> dict[str, Any]:
    """The floor: call the tool, measure the time and build the result, without any check."""
    start_s = time.perf_counter()
    value = return_text(arguments)
    elapsed_s = round((time.perf_counter() - start_s) * 1000, 3)
    return {"success": True, "result": value, "tool_name": "echo", "execution_time_ms": elapsed_s}


async def measure_call_us(work: Callable[[], Awaitable[Any]]) -> float:
    """Measure the microseconds of one call: the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        start_s = time.perf_counter()
        for _ in range(ROUNDS):
            await work()
        best = min(best, time.perf_counter() - start_s)
    return best / ROUNDS * 1e6


async def main() -> None:
    """Measure and print."""
    tool = Tool(
        definition=ToolDefinition(name="echo", description="Echo.", parameters=SCHEMA), run=return_text
    )
    executor = ToolExecutor(Registry([tool]))
    call = ToolCall(id="call_1", name="echo", arguments={"text": "hello", "times": 2})
    allowed_tools = ("echo",)
    snapshot = Snapshot(turn=1, calls=OpenCalls([OpenCall(call=call, ruling="run")]))
    snapshot = replace(snapshot, messages=snapshot.messages.append(Message(role="user", content="x")))
    bound_executor = executor.bind("c", lambda: snapshot)

    async def judge_call() -> None:
        executor.judge_call(call, allowed_tools)

    rows = {
        "floor": await measure_call_us(lambda: call_without_executor({"text": "hello", "times": 2})),
        "judge": await measure_call_us(judge_call),
        "run": await measure_call_us(lambda: executor.run(call, allowed_tools)),
        "run, bound to a conversation": await measure_call_us(
            lambda: bound_executor.run(call, allowed_tools)
        ),
    }
    for name, elapsed_s in rows.items():
        print(f"{name:30} {elapsed_s:6.2f} us   {elapsed_s / rows['floor']:5.1f} x floor")


if __name__ == "__main__":
    asyncio.run(main())
