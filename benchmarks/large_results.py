"""Benchmark of large results and of making tools, beside another tree.

    python benchmarks/large_results.py [--rounds 5] [--beside TREE]

Measures a turn with one call whose result is a text, or rows, of about 1 MB, and the engine's share for each
of 40 tools from functions. The floor of a result is one encoding and one hash of it. The log is in memory.

Each measurement runs in a process of its own, and the trees take turns; prints medians of milliseconds of
processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

HERE = Path(__file__).resolve()

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


MEASUREMENTS: dict[str, Callable[[], float]] = {
    **{f"{name}, floor": lambda result=result: measure_floor_ms(result) for name, result in RESULTS.items()},
    **{name: lambda result=result: measure_result_ms(result) for name, result in RESULTS.items()},
    "engine, a tool": lambda: (measure_engine_ms(TOOLS + 1) - measure_engine_ms(1)) / TOOLS,
}


def run_apart(tree: Path, name: str) -> float:
    """Measure in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree / ".typing"), "PYTHONHASHSEED": "0"}
    command = [sys.executable, str(HERE), "--run", name]
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode:
        sys.exit(process.stderr)
    return float(process.stdout)


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="the root folder of another checkout")
    parser.add_argument("--run", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        gc.disable()
        print(MEASUREMENTS[options.run]())
        return
    trees = [HERE.parents[1], *([options.beside.resolve()] if options.beside else [])]
    print(f"{'milliseconds':24}" + "".join(f"{name:>12}" for name in ("this tree", "beside")[: len(trees)]))
    for name in MEASUREMENTS:
        rounds = [[run_apart(tree, name) for tree in trees] for _ in range(options.rounds)]
        medians = [statistics.median(costs) for costs in zip(*rounds, strict=True)]
        print(f"{name:24}" + "".join(f"{cost:>12.2f}" for cost in medians))


if __name__ == "__main__":
    main()
