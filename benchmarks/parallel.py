"""Benchmark of parallel calls: the cost of one tool call where a reply has many, beside another tree.

    python benchmarks/parallel.py [--calls 100,500,2000] [--rounds 5] [--beside TREE] [--instructions]

A turn is one reply with so many calls of an inline tool, all their results, and the answer; the log is in
memory. Linear is: a call costs as much among 2,000 as among 100.

Each measurement runs in a process of its own, and the trees take turns, so that a noisy moment affects both.
Prints the medians of microseconds a call (of processor time) and, with `--instructions`, the instructions a
call, which Valgrind counts as in `instructions.py`: those of a turn with so many calls, less those of one
with a single call.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()


def measure_turn_us(calls: int) -> float:
    """Measure the microseconds of processor time of a turn with so many calls in one reply."""
    from toolchart.engine.runtime.engine import Engine
    from toolchart.providers.scripted.provider import ScriptedProvider
    from toolchart.states.messages import Reply, ToolCall
    from toolchart.tools import tool

    @tool(isolation="inline")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    asked = tuple(
        ToolCall(id=f"call_{number}", name="add", arguments={"a": number, "b": 2}) for number in range(calls)
    )
    replies = [
        Reply(tool_calls=asked, finish_reason="tool_calls", native_reason="tool_calls"),
        Reply(content="done", finish_reason="stop", native_reason="stop"),
    ]
    spec = {
        "chart": "tool_loop",
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
        "tools": {},
    }
    engine = Engine(spec, log="memory", functions=[add], providers={"model": ScriptedProvider(replies * 2)})

    async def run() -> float:
        gc.collect()
        start_s = time.process_time()
        result = await engine.arun("go", conversation="c")
        elapsed_s = time.process_time() - start_s
        assert result.iterations == 1, result
        return elapsed_s

    return asyncio.run(run()) * 1e6


def run_apart(tree: Path, calls: int, *, counts: bool = False) -> float:
    """Measure in a process of its own; microseconds, or instructions where they are counted."""
    command = [sys.executable, str(HERE), "--run", str(calls)]
    if counts:
        options = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        command = ["valgrind", *options, *command]
    environment = {**os.environ, "PYTHONPATH": str(tree / ".typing"), "PYTHONHASHSEED": "0"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode:
        sys.exit(process.stderr)
    if not counts:
        return float(process.stdout)
    found = re.search(r"I\s+refs:\s+([\d,]+)", process.stderr)
    assert found is not None, process.stderr
    return float(found[1].replace(",", ""))


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", default="100,500,2000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="the root folder of another checkout")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--run", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        gc.disable()
        print(measure_turn_us(options.run))
        return
    trees = [HERE.parents[1], *([options.beside.resolve()] if options.beside else [])]
    sizes = [int(size) for size in options.calls.split(",")]
    print(
        f"{'calls a turn':>14} {'':16}"
        + "".join(f"{name:>16}" for name in ("this tree", "beside")[: len(trees)])
    )
    for size in sizes:
        rounds = [[run_apart(tree, size) / size for tree in trees] for _ in range(options.rounds)]
        medians = [statistics.median(costs) for costs in zip(*rounds, strict=True)]
        print(f"{size:>14} {'us a call':16}" + "".join(f"{cost:>16.1f}" for cost in medians))
        if options.instructions:
            counts = [
                (run_apart(tree, size, counts=True) - run_apart(tree, 1, counts=True)) / (size - 1)
                for tree in trees
            ]
            print(f"{'':>14} {'instructions':16}" + "".join(f"{count:>16,.0f}" for count in counts))


if __name__ == "__main__":
    main()
