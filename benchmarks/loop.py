"""Benchmark of the loop: the cost of one iteration, compared with plain loops in the same run.

    python benchmarks/loop.py [--rounds 7] [--sizes 10,100,1000,3000] [--profile inline]

An iteration is one model reply with one tool call, the call, and its result. The tool is the same function,
as users write it: `@tool(isolation="inline")`, `@tool` on an async function, and `@tool` on a sync one, which
runs in a thread.

The floor is a loop written without Toolchart: an async `while` loop that parses the arguments, runs the tool,
appends to a message list and writes four flushed JSON lines with a time, an id and the payload (request,
reply, call, result). There are three further floors: the same loop without any log, with the tool in a thread
(`asyncio.to_thread`), and with four SQLite commits. The model is scripted on all sides, so that only the loop
is measured. Short conversations are repeated until there are a thousand iterations, on all sides.

Prints, per size, the medians over the rounds: microseconds per iteration, and the ratios to the floors, each
taken within its round; the bytes logged per iteration; how the cost grows from the smallest size to the
largest; and the goals.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import conftest  # noqa: F401  makes a checkout importable

from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import Reply, Request, ToolCall, Usage
from toolchart.tools import tool


@tool(name="add", isolation="inline")
def add_inline(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(name="add")
async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(name="add")
def add_sync(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# -- the floor -----------------------------------------------------------------------------------


WriteLine: TypeAlias = Callable[[str], None]


def open_no_log(path: Path) -> None:
    """Open nothing: the loop then builds no lines either."""


def open_flushed_log(path: Path) -> WriteLine:
    """Open a log of lines; return a function that writes one and flushes it to the system."""
    file = path.open("w", encoding="utf-8")

    def write(line: str) -> None:
        file.write(line + "\n")
        file.flush()

    return write


def open_committed_log(path: Path) -> WriteLine:
    """Open a SQLite log (WAL, synchronous NORMAL); return a function that commits one row."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, line TEXT)")

    def write(line: str) -> None:
        db.execute("BEGIN")
        db.execute("INSERT INTO rows (line) VALUES (?)", (line,))
        db.execute("COMMIT")

    return write


async def run_plain_loop(iterations: int, write: WriteLine | None, in_thread: bool = False) -> None:
    """Run a hand-written loop that logs four lines in each iteration, or none."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    conversation = uuid.uuid4().hex

    def log(kind: str, data: Any) -> None:
        if write is None:
            return
        at = datetime.now(UTC).isoformat()
        write(json.dumps({"at": at, "id": conversation, "type": kind, "data": data}))

    async def model(turn: int) -> dict[str, Any]:
        if turn == iterations:
            return {"role": "assistant", "content": "done"}
        arguments = json.dumps({"a": turn, "b": 2})
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": "add", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    tools = {"add": add_sync}
    for turn in range(iterations + 1):
        log("request", {"model": "m", "messages": len(messages)})
        reply = await model(turn)
        log("reply", reply)
        messages.append(reply)
        for call in reply.get("tool_calls", ()):
            log("call", call)
            start_s = time.perf_counter()
            try:
                arguments = json.loads(call["function"]["arguments"])
                function = tools[call["function"]["name"]]
                value = (
                    (await asyncio.to_thread(function, **arguments)) if in_thread else function(**arguments)
                )
                result = {"success": True, "result": value}
            except Exception as error:
                result = {"success": False, "error": str(error)}
            result["execution_time_ms"] = round((time.perf_counter() - start_s) * 1000, 3)
            log("result", result)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})


# -- toolchart -----------------------------------------------------------------------------------


def make_scripted_model(iterations: int) -> Callable[[Request], Reply]:
    """Make a model that calls the tool `iterations` times and then answers."""

    def reply(request: Request) -> Reply:
        turn = request.iteration
        if turn >= iterations:
            return Reply(content="done", finish_reason="stop", native_reason="stop")
        arguments = {"a": turn, "b": 2}
        call = ToolCall(id=f"call_{turn}", name="add", arguments=arguments)
        return Reply(
            tool_calls=(call,),
            finish_reason="tool_calls",
            native_reason="tool_calls",
            usage=Usage(input=10, output=5, total=15),
        )

    return reply


def make_engine(
    iterations: int, log: Any, function: Callable[..., Any] = add_inline, calls: int | None = None
) -> Engine:
    """Make an engine with the tool and a scripted model.

    Args:
        calls: how many calls the model makes before it answers, if not `iterations`, which are allowed.
    """
    spec = {
        "chart": "tool_loop",
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "limits": {"max_iterations": iterations + 1},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
        "tools": {},
    }
    model = make_scripted_model(iterations if calls is None else calls)
    replies = [model] * (iterations + 1) * count_turns(iterations)
    return Engine(spec, log=log, functions=[function], providers={"model": ScriptedProvider(replies)})


async def run_turn(engine: Engine, iterations: int, conversation: str = "c") -> None:
    """Run the same turn through the engine: chart, tools and log."""
    result = await engine.arun("go", conversation=conversation)
    assert result.iterations == iterations, result


# -- measuring -----------------------------------------------------------------------------------


FLOORS: dict[str, tuple[Callable[[Path], WriteLine | None], bool]] = {
    "floor": (open_flushed_log, False),
    "no log": (open_no_log, False),
    "threads": (open_flushed_log, True),
    "plain sqlite": (open_committed_log, False),
}
"""The plain loops: how each opens its log, and whether it runs the tool in a thread."""

TOOLS: dict[str, Callable[..., Any]] = {"inline": add_inline, "async": add_async, "sync": add_sync}
"""The kinds of tools, each measured with a log in memory."""

KINDS = (*FLOORS, *TOOLS, "sqlite normal", "sqlite full")

GOALS = {("inline", "floor"): 2.2, ("sync", "floor"): 5.0, ("sqlite normal", "plain sqlite"): 1.7}
"""The highest ratio that each kind is to have to its floor, from 100 iterations on."""

Measurements: TypeAlias = dict[str, dict[int, list[float]]]
"""Microseconds per iteration, by kind, size and round."""


def count_turns(iterations: int) -> int:
    """Count the conversations to measure together, so that each measurement has about 1000 iterations."""
    return max(1, 1000 // iterations)


async def measure_run_us(kind: str, iterations: int, path: Path) -> float:
    """Measure microseconds per iteration; making the engine is not measured."""
    turns = count_turns(iterations)
    gc.collect()  # earlier garbage must not be collected during the measurement
    if kind in FLOORS:
        open_log, in_thread = FLOORS[kind]
        write = open_log(path)
        start_s = time.perf_counter()
        for _ in range(turns):
            await run_plain_loop(iterations, write, in_thread)
        return (time.perf_counter() - start_s) / (iterations * turns) * 1e6
    log = "memory" if kind in TOOLS else open_store(path, durable=kind == "sqlite full")
    engine = make_engine(iterations, log, TOOLS.get(kind, add_inline))
    gc.collect()
    start_s = time.perf_counter()
    for turn in range(turns):
        await run_turn(engine, iterations, f"c{turn}")
    return (time.perf_counter() - start_s) / (iterations * turns) * 1e6


async def measure_bytes(iterations: int) -> float:
    """Measure the bytes logged per iteration."""
    engine = make_engine(iterations, "memory")
    await run_turn(engine, iterations)
    return sum(map(len, engine.store.read_lines("c"))) / iterations


def measure_fsync_us(folder: Path) -> float:
    """Measure the median latency of one small synced write on this disk, in microseconds."""
    elapsed_s = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 512)
            file.flush()
            start_s = time.perf_counter()
            os.fsync(file.fileno())
            elapsed_s.append((time.perf_counter() - start_s) * 1e6)
    return statistics.median(elapsed_s)


def measure_kinds(sizes: list[int], rounds: int, folder: Path) -> Measurements:
    """Measure by kind and size; the kinds alternate, so that a noisy moment affects all."""
    results: Measurements = {kind: {size: [] for size in sizes} for kind in KINDS}
    for size in sizes:
        for turn in range(rounds):
            for kind, rows in results.items():
                if kind != "sqlite full" or turn < 3:
                    path = folder / f"{kind}-{size}-{turn}"
                    rows[size].append(asyncio.run(measure_run_us(kind, size, path)))
    return results


def compute_ratio(results: Measurements, kind: str, floor: str, size: int) -> float:
    """The median of the ratios of a kind to a floor, each taken within one round."""
    pairs = zip(results[kind][size], results[floor][size], strict=False)
    return statistics.median(cost / floor_cost for cost, floor_cost in pairs)


def print_table(results: Measurements, kinds: list[str], floors: list[str]) -> None:
    """Print the medians of the floors and kinds by size, and below each kind its ratio to each floor."""
    columns = [*floors, *kinds]
    print("iterations       " + "".join(f"{name:>15}" for name in columns))
    for size in results[columns[0]]:
        costs = "".join(f"{statistics.median(results[name][size]):>15.1f}" for name in columns)
        print(f"{size:>10} us    {costs}")
        for floor in floors:
            ratios = "".join(f"{compute_ratio(results, kind, floor, size):>15.2f}" for kind in kinds)
            print(f"{'':>10} x {floor:<{15 * len(floors) + 5}}{ratios}")


def print_report(results: Measurements) -> None:
    """Print the tables of both logs, the growth, and each goal with its highest ratio."""
    print("\nlog in memory")
    print_table(results, list(TOOLS), ["no log", "floor", "threads"])
    print("\nlog in SQLite, inline tool")
    print_table(results, ["sqlite normal", "sqlite full"], ["plain sqlite"])
    medians = {size: statistics.median(costs) for size, costs in results["inline"].items()}
    first, last = min(medians), max(medians)
    print(f"\nbytes logged per iteration: {asyncio.run(measure_bytes(last)):.0f}")
    print(f"growth of the cost from {first} to {last} iterations: {medians[last] / medians[first]:.2f}")
    for (kind, floor), goal in GOALS.items():
        ratios = [compute_ratio(results, kind, floor, size) for size in medians if size >= 100]
        if ratios:
            verdict = "kept" if max(ratios) <= goal else "missed"
            print(f"goal {kind} / {floor}: at most {goal}, highest {max(ratios):.2f}: {verdict}")


def print_profile(function: Callable[..., Any], iterations: int = 3000) -> None:
    """Print a profile of a turn with a log in memory."""
    import cProfile
    import pstats

    asyncio.run(run_turn(make_engine(100, "memory", function), 100))
    engine = make_engine(iterations, "memory", function)
    profiler = cProfile.Profile()
    profiler.enable()
    asyncio.run(run_turn(engine, iterations))
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(20)


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", default="10,100,1000,3000")
    parser.add_argument("--profile", choices=TOOLS, help="profile a turn with this kind of tool")
    options = parser.parse_args()
    if options.profile:
        print_profile(TOOLS[options.profile])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(run_turn(make_engine(50, "memory"), 50))  # compiles the chart, imports the rest
        print(f"fsync on this disk: {measure_fsync_us(folder):.0f} us")
        print_report(measure_kinds([int(size) for size in options.sizes.split(",")], options.rounds, folder))


if __name__ == "__main__":
    main()
