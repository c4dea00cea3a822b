"""Benchmark of the loop: the cost of one iteration, compared with a plain loop in the same run.

    python benchmarks/loop.py [--rounds 5] [--sizes 10,100,1000,3000] [--profile]

An iteration is one model reply with one tool call, the call, and its result. The floor is a loop written
without Toolchart: an async `while` loop that parses the arguments, runs the tool, appends to a message list
and writes four flushed JSON lines with a time, an id and the payload (request, reply, call, result). The
model is scripted on both sides, so that only the loop is measured. Short conversations are repeated until
there are a thousand iterations, on both sides.

Prints, per size, the median over the rounds: microseconds per iteration, the ratio to the floor, bytes
logged per iteration; and how the cost grows from the smallest size to the largest.
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
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import conftest  # noqa: F401  makes a checkout importable

from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import Reply, Request, ToolCall, Usage
from toolchart.tools.definition import Tool, ToolDefinition

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


def add_numbers(arguments: Any) -> int:
    """The only tool."""
    return int(arguments["a"]) + int(arguments["b"])


# -- the floor -----------------------------------------------------------------------------------


def open_flushed_log(path: Path) -> Callable[[str], None]:
    """Open a log of lines; return a function that writes one and flushes it to the system."""
    file = path.open("w", encoding="utf-8")

    def write(line: str) -> None:
        file.write(line + "\n")
        file.flush()

    return write


def open_committed_log(path: Path) -> Callable[[str], None]:
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


async def run_plain_loop(iterations: int, write: Callable[[str], None]) -> None:
    """Run a hand-written loop that logs four lines in each iteration."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    conversation = uuid.uuid4().hex

    def log(kind: str, data: Any) -> None:
        at = datetime.now(UTC).isoformat()
        write(json.dumps({"at": at, "id": conversation, "type": kind, "data": data}))

    async def model(turn: int) -> dict[str, Any]:
        if turn == iterations:
            return {"role": "assistant", "content": "done"}
        arguments = json.dumps({"a": turn, "b": 2})
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": "add", "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    tools = {"add": add_numbers}
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
                result = {"success": True, "result": tools[call["function"]["name"]](arguments)}
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


def make_engine(iterations: int, log: Any) -> Engine:
    """Make an engine with the tool and a scripted model."""
    spec = {
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "limits": {"max_iterations": iterations + 1},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
        "tools": {},
    }
    tool = Tool(definition=ToolDefinition(name="add", description="Add.", parameters=SCHEMA), run=add_numbers)
    replies = [make_scripted_model(iterations)] * (iterations + 1) * count_turns(iterations)
    return Engine(spec, log=log, functions=[tool], providers={"model": ScriptedProvider(replies)})


async def run_turn(engine: Engine, iterations: int, conversation: str = "c") -> None:
    """Run the same turn through the engine: chart, tools and log."""
    result = await engine.arun("go", conversation=conversation)
    assert result.iterations == iterations, result


# -- measuring -----------------------------------------------------------------------------------


FLOOR_LOGS: dict[str, Callable[[Path], Callable[[str], None]]] = {
    "floor": open_flushed_log,
    "plain sqlite": open_committed_log,
}
"""The plain loop with either log: the first is the general floor, the second that of SQLite at NORMAL."""

KINDS = (*FLOOR_LOGS, "memory", "sqlite normal", "sqlite full")


def count_turns(iterations: int) -> int:
    """Count the conversations to measure together, so that each measurement has about 1000 iterations."""
    return max(1, 1000 // iterations)


async def measure_run(kind: str, iterations: int, path: Path) -> tuple[float, float]:
    """Measure microseconds and logged bytes per iteration; making the engine is not measured."""
    turns = count_turns(iterations)
    gc.collect()  # earlier garbage must not be collected during the measurement
    if kind in FLOOR_LOGS:
        write = FLOOR_LOGS[kind](path)
        start_s = time.perf_counter()
        for _ in range(turns):
            await run_plain_loop(iterations, write)
        return (time.perf_counter() - start_s) / (iterations * turns) * 1e6, 0.0
    durable = kind == "sqlite full"
    log = "memory" if kind == "memory" else open_store(path, durable=durable)
    engine = make_engine(iterations, log)
    gc.collect()
    start_s = time.perf_counter()
    for turn in range(turns):
        await run_turn(engine, iterations, f"c{turn}")
    elapsed_s = time.perf_counter() - start_s
    logged_bytes = sum(map(len, engine.store.read_lines("c0"))) / iterations
    return elapsed_s / (iterations * turns) * 1e6, logged_bytes


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


def measure_kinds(sizes: list[int], rounds: int, folder: Path) -> dict[str, dict[int, tuple[float, float]]]:
    """Measure the medians by kind and size; the kinds alternate, so that a noisy moment affects all."""
    results: dict[str, dict[int, list[tuple[float, float]]]] = {kind: {} for kind in KINDS}
    for size in sizes:
        for turn in range(rounds):
            for kind, rows in results.items():
                path = folder / f"{kind}-{size}-{turn}"
                if kind == "sqlite full" and turn >= 3:
                    continue
                rows.setdefault(size, []).append(asyncio.run(measure_run(kind, size, path)))
    return {
        kind: {n: tuple(map(statistics.median, zip(*runs, strict=True))) for n, runs in rows.items()}  # type: ignore[misc]
        for kind, rows in results.items()
    }


def print_report(results: dict[str, dict[int, tuple[float, float]]]) -> None:
    """Print the table of results."""
    print(
        f"{'iterations':>10} {'floor us':>9} {'memory us':>10} {'ratio':>6} {'plain sqlite':>13} "
        f"{'normal us':>10} {'ratio':>6} {'full us':>9} {'bytes':>6}"
    )
    for size, (floor, _) in results["floor"].items():
        memory, plain = results["memory"][size], results["plain sqlite"][size][0]
        normal, full = results["sqlite normal"][size][0], results["sqlite full"][size][0]
        print(
            f"{size:>10} {floor:>9.1f} {memory[0]:>10.1f} {memory[0] / floor:>6.2f} {plain:>13.1f} "
            f"{normal:>10.1f} {normal / plain:>6.2f} {full:>9.1f} {memory[1]:>6.0f}"
        )
    first, last = min(results["memory"]), max(results["memory"])
    growth = results["memory"][last][0] / results["memory"][first][0]
    print(f"growth of the cost from {first} to {last} iterations, in memory: {growth:.2f}")


def print_profile(iterations: int = 3000) -> None:
    """Print a profile of a turn with a log in memory."""
    import cProfile
    import pstats

    asyncio.run(run_turn(make_engine(100, "memory"), 100))
    engine = make_engine(iterations, "memory")
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
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.profile:
        print_profile()
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(run_turn(make_engine(50, "memory"), 50))  # compiles the chart, imports the rest
        print(f"fsync on this disk: {measure_fsync_us(folder):.0f} us")
        print_report(measure_kinds([int(size) for size in options.sizes.split(",")], options.rounds, folder))


if __name__ == "__main__":
    main()
