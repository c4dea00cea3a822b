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

import asyncio
import gc
import re
import time
from pathlib import Path

import beside


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


def count_instructions(tree: Path, calls: int) -> float:
    """Count the instructions of a process with such a turn."""
    options = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    process = beside.run_apart(__file__, tree, str(calls), ["valgrind", *options])
    found = re.search(r"I\s+refs:\s+([\d,]+)", process.stderr)
    assert found is not None, process.stderr
    return float(found[1].replace(",", ""))


def main() -> None:
    """Parse the options, measure, print."""
    parser = beside.make_parser(__doc__)
    parser.add_argument("--calls", default="100,500,2000")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    if options.run:
        gc.disable()
        print(measure_turn_us(int(options.run)) / int(options.run))
        return
    sizes = [int(size) for size in options.calls.split(",")]
    print("microseconds a call, by calls of a reply")
    beside.measure_medians(__file__, list(map(str, sizes)), options)
    if options.instructions:
        print("instructions a call, in this tree and beside")
    for size in sizes if options.instructions else ():
        counts = [
            (count_instructions(tree, size) - count_instructions(tree, 1)) / (size - 1)
            for tree in beside.list_trees(options.beside)
        ]
        print(f"{size:>8}" + "".join(f"{count:>12,.0f}" for count in counts))


if __name__ == "__main__":
    main()
