"""What one iteration of the loop costs, beside a plain loop in the same run.

    python benchmarks/loop.py [--rounds 5] [--sizes 10,100,1000,3000] [--profile]

An iteration is one model reply with one tool call, the call, and its result. The floor is what
anybody would write without Toolchart: an async `while` loop that parses the arguments, runs the tool,
appends to a message list and writes four flushed JSON lines with a time, an id and the payload
(request, reply, call, result). The model is scripted on both sides, so what is measured is the loop.
Short conversations are run one after the other until there are a thousand iterations, on both sides.

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


def add(arguments: Any) -> int:
    """The one tool."""
    return int(arguments["a"]) + int(arguments["b"])


# -- the floor -----------------------------------------------------------------------------------


def flushed(path: Path) -> Callable[[str], None]:
    """A log of lines, each flushed to the system."""
    file = path.open("w", encoding="utf-8")

    def write(line: str) -> None:
        file.write(line + "\n")
        file.flush()

    return write


def committed(path: Path) -> Callable[[str], None]:
    """A log of rows in SQLite with a write-ahead log at NORMAL, one commit each."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, line TEXT)")

    def write(line: str) -> None:
        db.execute("BEGIN")
        db.execute("INSERT INTO rows (line) VALUES (?)", (line,))
        db.execute("COMMIT")

    return write


async def plain_loop(iterations: int, write: Callable[[str], None]) -> None:
    """A loop as one writes it by hand, with a log of four lines an iteration."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    conversation = uuid.uuid4().hex

    def log(kind: str, data: Any) -> None:
        at = datetime.now(UTC).isoformat()
        write(json.dumps({"at": at, "id": conversation, "type": kind, "data": data}))

    async def model(turn: int) -> dict[str, Any]:
        if turn == iterations:
            return {"role": "assistant", "content": "done"}
        given = json.dumps({"a": turn, "b": 2})
        call = {
            "id": f"call_{turn}",
            "type": "function",
            "function": {"name": "add", "arguments": given},
        }
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    tools = {"add": add}
    for turn in range(iterations + 1):
        log("request", {"model": "m", "messages": len(messages)})
        reply = await model(turn)
        log("reply", reply)
        messages.append(reply)
        for call in reply.get("tool_calls", ()):
            log("call", call)
            started = time.perf_counter()
            try:
                given = json.loads(call["function"]["arguments"])
                result = {"success": True, "result": tools[call["function"]["name"]](given)}
            except Exception as error:
                result = {"success": False, "error": str(error)}
            result["execution_time_ms"] = round((time.perf_counter() - started) * 1000, 3)
            log("result", result)
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}
            )


# -- toolchart -----------------------------------------------------------------------------------


def scripted(iterations: int) -> Callable[[Request], Reply]:
    """A model that calls the tool so often, then answers."""

    def reply(request: Request) -> Reply:
        turn = request.iteration
        if turn >= iterations:
            return Reply(content="done", finish_reason="stop", native_reason="stop")
        given = {"a": turn, "b": 2}
        call = ToolCall(id=f"call_{turn}", name="add", arguments=given)
        return Reply(
            tool_calls=(call,),
            finish_reason="tool_calls",
            native_reason="tool_calls",
            usage=Usage(input=10, output=5, total=15),
        )

    return reply


def engine(iterations: int, log: Any) -> Engine:
    """An engine with the one tool and a scripted model."""
    spec = {
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "limits": {"max_iterations": iterations + 1},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
        "tools": {},
    }
    tool = Tool(
        definition=ToolDefinition(name="add", description="Add.", parameters=SCHEMA), run=add
    )
    replies = [scripted(iterations)] * (iterations + 1) * turns_of(iterations)
    return Engine(spec, log=log, functions=[tool], providers={"model": ScriptedProvider(replies)})


async def ours(run: Engine, iterations: int, conversation: str = "c") -> None:
    """The same turn through chart, tools and log."""
    result = await run.arun("go", conversation=conversation)
    assert result.iterations == iterations, result


# -- measuring -----------------------------------------------------------------------------------


FLOORS: dict[str, Callable[[Path], Callable[[str], None]]] = {
    "floor": flushed,
    "plain sqlite": committed,
}
"""The plain loop on either log: the first is the floor of all, the second that of SQLite at NORMAL."""

KINDS = (*FLOORS, "memory", "sqlite normal", "sqlite full")


def turns_of(iterations: int) -> int:
    """How many conversations are measured together, so that no figure is of a few moments."""
    return max(1, 1000 // iterations)


async def timed(kind: str, iterations: int, path: Path) -> tuple[float, float]:
    """Microseconds and logged bytes per iteration; the engine is made beforehand."""
    turns = turns_of(iterations)
    gc.collect()  # what was made before is not this turn's to clear away
    if kind in FLOORS:
        write = FLOORS[kind](path)
        started = time.perf_counter()
        for _ in range(turns):
            await plain_loop(iterations, write)
        return (time.perf_counter() - started) / (iterations * turns) * 1e6, 0.0
    durable = kind == "sqlite full"
    log = "memory" if kind == "memory" else open_store(path, durable=durable)
    run = engine(iterations, log)
    gc.collect()
    started = time.perf_counter()
    for turn in range(turns):
        await ours(run, iterations, f"c{turn}")
    spent = time.perf_counter() - started
    logged = sum(map(len, run.store.read("c0"))) / iterations
    return spent / (iterations * turns) * 1e6, logged


def fsync_us(folder: Path) -> float:
    """Median latency of one small synced write on this disk."""
    spent = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 512)
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            spent.append((time.perf_counter() - started) * 1e6)
    return statistics.median(spent)


def measure(
    sizes: list[int], rounds: int, folder: Path
) -> dict[str, dict[int, tuple[float, float]]]:
    """Medians by kind and size; the kinds take turns, so that a noisy moment hits all."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = {kind: {} for kind in KINDS}
    for size in sizes:
        for turn in range(rounds):
            for kind, rows in found.items():
                path = folder / f"{kind}-{size}-{turn}"
                if kind == "sqlite full" and turn >= 3:
                    continue
                rows.setdefault(size, []).append(asyncio.run(timed(kind, size, path)))
    return {
        kind: {
            n: tuple(map(statistics.median, zip(*runs, strict=True))) for n, runs in rows.items()
        }  # type: ignore[misc]
        for kind, rows in found.items()
    }


def report(found: dict[str, dict[int, tuple[float, float]]]) -> None:
    """The table."""
    print(
        f"{'iterations':>10} {'floor us':>9} {'memory us':>10} {'ratio':>6} {'plain sqlite':>13} "
        f"{'normal us':>10} {'ratio':>6} {'full us':>9} {'bytes':>6}"
    )
    for size, (floor, _) in found["floor"].items():
        memory, plain = found["memory"][size], found["plain sqlite"][size][0]
        normal, full = found["sqlite normal"][size][0], found["sqlite full"][size][0]
        print(
            f"{size:>10} {floor:>9.1f} {memory[0]:>10.1f} {memory[0] / floor:>6.2f} {plain:>13.1f} "
            f"{normal:>10.1f} {normal / plain:>6.2f} {full:>9.1f} {memory[1]:>6.0f}"
        )
    first, last = min(found["memory"]), max(found["memory"])
    growth = found["memory"][last][0] / found["memory"][first][0]
    print(f"growth of the cost from {first} to {last} iterations, in memory: {growth:.2f}")


def profile(iterations: int = 3000) -> None:
    """Where the time of a turn in memory goes."""
    import cProfile
    import pstats

    asyncio.run(ours(engine(100, "memory"), 100))
    run = engine(iterations, "memory")
    watch = cProfile.Profile()
    watch.enable()
    asyncio.run(ours(run, iterations))
    watch.disable()
    pstats.Stats(watch).sort_stats("tottime").print_stats(20)


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", default="10,100,1000,3000")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.profile:
        profile()
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(ours(engine(50, "memory"), 50))  # compile the chart and load what loads lazily
        print(f"fsync on this disk: {fsync_us(folder):.0f} us")
        report(measure([int(size) for size in options.sizes.split(",")], options.rounds, folder))


if __name__ == "__main__":
    main()
