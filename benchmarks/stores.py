"""Benchmark of the stores: many conversations, a locked file, group commits, idle conversations.

    python benchmarks/stores.py [--conversations 100000] [--together 100] [--rounds 3] [--servers]

- a SQLite log of many conversations: seconds of `runs`, `verify ONE`, `show -n 10` and of pruning 5,000, each
  beside the same command on a log with two conversations;
- the longest time that the event loop stands still while another process holds the write lock for a second,
  beside a loop that has nothing to do: the median of five seconds;
- iterations per second of many conversations at once at `full`;
- memory of an idle conversation in an engine;
- appends under a lease, one after the other and side by side: PostgreSQL beside bare inserts, SQLite. What
  is not installed is left out. `--servers` measures these alone.

Figures of one run are compared with each other: seconds depend on the machine and on what else it does;
processor time depends on that less.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import loop
import server_appends
from log import ITERATIONS, YieldingModel

from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.runtime.engine import Engine
from toolchart.states.ports import RecordBatch


def fill_log(path: Path, count: int) -> None:
    """Write a log with `count` conversations of one turn, the same records in each but the first."""
    engine = loop.make_engine(1, SqliteStore(path, durable=False))
    asyncio.run(loop.run_turn(engine, 1))
    store = SqliteStore(path, durable=False)
    lines = list(store.read_lines("c"))
    for start in range(0, count, 1000):
        store.append_many(
            [RecordBatch(f"n{number:06}", 0, lines) for number in range(start, min(start + 1000, count))]
        )
    store.close()


def time_command(arguments: Sequence[str], rounds: int) -> tuple[float, float]:
    """The median seconds of a command of Toolchart, and those of them that it used a processor."""
    times, processor_times = [], []
    for _ in range(rounds):
        start_s, before_s = time.perf_counter(), measure_processor_s()
        subprocess.run(
            [sys.executable, "-m", "toolchart", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        times.append(time.perf_counter() - start_s)
        processor_times.append(measure_processor_s() - before_s)
    return statistics.median(times), statistics.median(processor_times)


def measure_processor_s() -> float:
    """Seconds of processor time of all commands that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def print_listing_times(folder: Path, count: int, rounds: int) -> None:
    """Print the times of commands over a log with many conversations."""
    path = folder / "many.db"
    fill_log(path, count)
    small_path = folder / "two.db"
    fill_log(small_path, 1)
    print(f"{count} conversations, {path.stat().st_size >> 20} MiB")
    for words in (
        ["runs"],
        ["verify", "c"],
        ["show", "c", "-n", "10"],
        ["prune", "--keep", str(count - 5000)],
    ):
        runs = 1 if words[0] == "prune" else rounds
        start_s, start_processor_s = time_command([*words, "--log", str(small_path)], rounds)
        seconds, processor_s = time_command([*words, "--log", str(path)], runs)
        print(
            f"{' '.join(words):24} {seconds:.2f} s, {seconds - start_s:.2f} s more than with two "
            f"({processor_s - start_processor_s:.2f} s of processor time)"
        )


async def measure_lag(path: Path, durable: bool) -> float:
    """The longest time in milliseconds between two steps of the event loop while the file is locked."""
    engine = loop.make_engine(2, SqliteStore(path, durable=durable))
    await engine.arun("go", conversation="warm")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    turn = asyncio.ensure_future(engine.arun("go", conversation=f"locked{durable}"))
    longest_ms = await measure_idle_lag()
    other.execute("ROLLBACK")
    other.close()
    await turn
    return longest_ms


async def measure_idle_lag() -> float:
    """The longest time in milliseconds by which a short sleep ends too late, in one second."""
    longest, until = 0.0, time.perf_counter() + 1.0
    while time.perf_counter() < until:
        start_s = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - start_s - 0.001)
    return longest * 1000


async def measure_rate(address: Path | str, count: int) -> float:
    """Iterations per second of many conversations at once, at `full`."""
    engine = loop.make_engine(ITERATIONS, open_store(address))
    engine.hosts.providers["model"] = YieldingModel()
    await engine.arun("go", conversation="warm")
    start_s = time.perf_counter()
    await asyncio.gather(*(engine.arun("go", conversation=f"c{number}") for number in range(count)))
    return count * ITERATIONS / (time.perf_counter() - start_s)


async def measure_idle_kib(path: Path) -> float:
    """KiB that a conversation at rest keeps in the memory of an engine."""
    engine: Engine = loop.make_engine(ITERATIONS, SqliteStore(path, durable=False))
    engine.hosts.providers["model"] = YieldingModel()
    await engine.arun("go", conversation="warm")
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(200):
        await engine.arun("go", conversation=f"c{number}")
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / 200 / 1024


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--conversations", type=int, default=100_000)
    parser.add_argument("--together", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--servers", action="store_true", help="measure appends through servers alone")
    options = parser.parse_args()
    os.environ.pop("TOOLCHART_LOG", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server_appends.print_append_rates(folder, options.rounds)
        if options.servers:
            return
        print(f"idle conversation: {asyncio.run(measure_idle_kib(folder / 'idle.db')):.1f} KiB")
        for durable in (True, False):
            lags = [asyncio.run(measure_lag(folder / f"{n}{durable}.db", durable)) for n in range(5)]
            floor_ms = statistics.median(asyncio.run(measure_idle_lag()) for _ in range(5))
            print(
                f"event loop, file locked, {'full' if durable else 'normal'}: at most "
                f"{statistics.median(lags):.1f} ms late; {floor_ms:.1f} ms with nothing to do"
            )
        rates = [
            asyncio.run(measure_rate(folder / f"{number}.db", options.together))
            for number in range(options.rounds)
        ]
        print(f"{options.together} at once at full: {statistics.median(rates):.0f}/s")
        print_listing_times(folder, options.conversations, options.rounds)


if __name__ == "__main__":
    main()
