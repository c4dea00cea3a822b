"""Benchmark of large results and of making tools, beside another tree.

    python benchmarks/large_results.py [--rounds 5] [--beside TREE]

Measures a turn with one call whose result is a text, or rows, of about 1 MB, and the engine's share for each
of 40 tools from functions. The floor of a result is one encoding and one hash of it. The log is in memory.

Each measurement runs in a process of its own, and the trees take turns; prints medians of milliseconds of
processor time.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import time
from collections.abc import Callable
from typing import Any

import beside
import orjson

TEXT = "a line of text with words in it\n" * 31_250
ROWS = [{"id": number, "name": f"some name {number}", "ok": True, "share": 1.5} for number in range(18_000)]
RESULTS: dict[str, Any] = {"text of 1 MB": TEXT, "rows of 1 MB": ROWS}

TOOLS = 40


def make_functions(count: int) -> list[Callable[..., Any]]:
    """Make plain functions that are tools."""
    functions = []
    for number in range(count):

        def look_up(word: str, times: int = 1, exact: bool = False) -> str:
            """Look a word up."""
            return word

        look_up.__name__ = f"look_up_{number}"
        functions.append(look_up)
    return functions


def measure_engine_ms(count: int) -> float:
    """Measure the milliseconds of making an engine with so many tools."""
    make_engine(None, make_functions(1))
    functions = make_functions(count)
    start_s = time.process_time()
    make_engine(None, functions)
    return (time.process_time() - start_s) * 1e3


def make_engine(result: Any, functions: list[Callable[..., Any]]) -> Any:
    """Make an engine whose model calls `get` once and then answers."""
    from toolchart.engine.runtime.engine import Engine
    from toolchart.providers.scripted.provider import ScriptedProvider
    from toolchart.states.messages import Reply, ToolCall
    from toolchart.tools import tool

    @tool(isolation="inline")
    def get() -> Any:
        """Get the result."""
        return result

    call = ToolCall(id="call_1", name="get", arguments={})
    replies = [
        Reply(tool_calls=(call,), finish_reason="tool_calls", native_reason="tool_calls"),
        Reply(content="done", finish_reason="stop", native_reason="stop"),
    ]
    spec = {
        "chart": "tool_loop",
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
        "tools": {},
    }
    providers = {"model": ScriptedProvider(replies)}
    return Engine(spec, log="memory", functions=[get, *functions], providers=providers)


def measure_result_ms(result: Any) -> float:
    """Measure the milliseconds of a turn with this result, less those of a turn with a short one."""

    def measure_turn_s(value: Any) -> float:
        engine = make_engine(value, [])

        async def run() -> float:
            gc.collect()
            start_s = time.process_time()
            await engine.arun("go", conversation="c")
            return time.process_time() - start_s

        return asyncio.run(run())

    measure_turn_s("warm")
    return (measure_turn_s(result) - measure_turn_s("short")) * 1e3


def measure_floor_ms(result: Any) -> float:
    """Measure the milliseconds of one encoding and one hash."""
    start_s = time.process_time()
    hashlib.sha256(orjson.dumps(result)).hexdigest()
    return (time.process_time() - start_s) * 1e3


MEASUREMENTS: dict[str, beside.Measurement] = {
    **{f"{name}, floor": lambda result=result: measure_floor_ms(result) for name, result in RESULTS.items()},
    **{name: lambda result=result: measure_result_ms(result) for name, result in RESULTS.items()},
    "engine, a tool": lambda: (measure_engine_ms(TOOLS + 1) - measure_engine_ms(1)) / TOOLS,
}


def main() -> None:
    """Parse the options, measure, print."""
    options = beside.make_parser(__doc__).parse_args()
    if options.run:
        gc.disable()
        print(MEASUREMENTS[options.run]())
        return
    beside.measure_medians(__file__, list(MEASUREMENTS), options)


if __name__ == "__main__":
    main()
