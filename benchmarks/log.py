"""Benchmark of the log: appends compared with bare SQLite, replay, and a thousand concurrent conversations.

    python benchmarks/log.py [--records 3000] [--conversations 1000]

Everything is compared with a floor in the same run, and the disk's sync latency is printed:

- appends at `full` and at `normal`, one record for each commit and under a lease, compared with bare SQLite
  (write-ahead log, the same synchronous level) that inserts rows of the same size;
- records per second of `replay` and of `verify`;
- concurrent turns of five iterations in memory, compared with the floor of `benchmarks/loop.py`, and the
  resident memory of each conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import loop

from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import verify_conversation
from toolchart.states.messages import Reply, Request
from toolchart.states.ports import RecordBatch

ROUNDS = 5
APPEND_ROUNDS = 9
ITERATIONS = 5
"""Iterations of each concurrent conversation."""


def measure_rate(work: Callable[[], int]) -> float:
    """Measure the median rate of a function that returns how many items it processed."""
    rates = []
    for _ in range(ROUNDS):
        start_s = time.perf_counter()
        count = work()
        rates.append(count / (time.perf_counter() - start_s))
    return statistics.median(rates)


def record_turn(iterations: int) -> list[bytes]:
    """Run one turn; return its record lines."""
    engine = loop.make_engine(iterations, "memory")
    asyncio.run(loop.run_turn(engine, iterations))
    return list(engine.store.read_lines("c"))


# -- appends -------------------------------------------------------------------------------------------


def append_to_table(path: Path, lines: list[bytes], durable: bool) -> int:
    """The floor: insert each line into a plain table, one commit per row."""
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    db.execute("CREATE TABLE rows (seq INTEGER PRIMARY KEY, line BLOB)")
    for seq, line in enumerate(lines):
        db.execute("BEGIN")
        db.execute("INSERT INTO rows VALUES (?, ?)", (seq, line))
        db.execute("COMMIT")
    db.close()
    return len(lines)


def append_to_store(path: Path, lines: list[bytes], durable: bool) -> int:
    """Append each line to the SQLite store under a lease, as an engine does, one record per commit."""
    path.unlink(missing_ok=True)
    store = SqliteStore(path, durable=durable)
    store.take_over_upkeep()
    lease = store.acquire_lease("c", "bench", 3600)
    for seq, line in enumerate(lines):
        (fault,) = store.append_many([RecordBatch("c", seq, [line], lease)])
        assert fault is None
    store.close()
    return len(lines)


def print_append_rates(folder: Path, lines: list[bytes]) -> None:
    """Print the append rates at both levels of syncing: of each round bare SQLite and then ours."""
    for durable in (True, False):
        level, sample = ("full", lines[:400]) if durable else ("normal", lines)
        rounds = [
            [
                len(sample) / timeit.timeit(partial(work, folder / work.__name__, sample, durable), number=1)
                for work in (append_to_table, append_to_store)
            ]
            for _ in range(APPEND_ROUNDS)
        ]
        bare, ours = (statistics.median(rates) for rates in zip(*rounds, strict=True))
        share = statistics.median(rates[1] / rates[0] for rates in rounds)
        print(f"appends at {level:6}: bare {bare:8.0f}/s, ours {ours:8.0f}/s, {share:.0%} of bare")


# -- reading -------------------------------------------------------------------------------------------


def print_read_rates(lines: list[bytes]) -> None:
    """Print the records per second of replay and verify."""
    replay_rate = measure_rate(lambda: sum(1 for _ in replay(lines, "c")))
    verify_rate = measure_rate(lambda: verify_conversation(lines, "c").records)
    print(f"replay {replay_rate:.0f} records/s, verify {verify_rate:.0f} records/s")


# -- concurrent conversations ------------------------------------------------------------------


async def run_floor_loops(count: int, folder: Path) -> None:
    """Run plain loops concurrently."""
    await asyncio.gather(
        *(loop.run_plain_loop(ITERATIONS, loop.open_flushed_log(folder / f"f{n}")) for n in range(count))
    )


class YieldingModel:
    """A scripted model that yields to other conversations before each reply and keeps no requests."""

    name = "model"
    _reply = staticmethod(loop.make_scripted_model(ITERATIONS))

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """Nothing is sent."""
        return {}

    async def complete(self, request: Request) -> Reply:
        """Return the next reply."""
        await asyncio.sleep(0)
        return self._reply(request)

    async def aclose(self) -> None:
        """Nothing to close."""


async def run_turns(count: int, log: Any = "memory") -> float:
    """Run turns concurrently in one engine; return the resident KiB that each adds at most."""
    engine = loop.make_engine(ITERATIONS, log)
    engine.hosts.providers["model"] = YieldingModel()
    await engine.arun("go", conversation="warm")
    gc.collect()
    before = _measure_resident_kib()

    async def run_turn(name: str) -> None:
        await engine.arun("go", conversation=name)

    await asyncio.gather(*(run_turn(f"c{n}") for n in range(count)))
    return (_measure_resident_kib() - before) / count


def _measure_resident_kib() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def print_concurrent_rates(count: int, folder: Path) -> None:
    """Print the rates and the memory of concurrent conversations."""
    kib = asyncio.run(run_turns(count, SqliteStore(folder / "resident.db", durable=False)))
    floor_rate = measure_rate(lambda: asyncio.run(run_floor_loops(count, folder)) or count * ITERATIONS)  # type: ignore[func-returns-value]
    our_rate = measure_rate(lambda: int(asyncio.run(run_turns(count)) * 0) + count * ITERATIONS)
    print(
        f"{count} conversations of {ITERATIONS} iterations at once: floor {floor_rate:.0f}/s, "
        f"ours {our_rate:.0f}/s, {our_rate / floor_rate:.2f} of the floor; "
        f"{kib:.1f} KiB resident each with the log on disk"
    )


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--conversations", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(loop.run_turn(loop.make_engine(50, "memory"), 50))
        print_concurrent_rates(options.conversations, folder)
        print(f"fsync on this disk: {loop.measure_fsync_us(folder):.0f} us")
        lines = record_turn(options.records // 3)
        print_append_rates(folder, lines)
        print_read_rates(lines)


if __name__ == "__main__":
    main()
