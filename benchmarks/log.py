"""What the log costs: appends beside bare SQLite, replay, and a thousand conversations at once.

    python benchmarks/log.py [--records 3000] [--conversations 1000]

Everything is measured beside a floor in the same run, and the disk's sync latency is printed with it:

- appends at `full` and at `normal`, one record a commit, beside bare SQLite (write-ahead log, the same
  level of syncing) that inserts rows of the same size;
- records a second that `replay` derives again and `verify` checks;
- turns of five iterations at once, in memory, beside the floor of `benchmarks/loop.py`, with resident
  memory for each conversation.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import loop

from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import verify_lines
from toolchart.states.messages import Reply, Request

ROUNDS = 5
FIVE = 5
"""Iterations of a concurrent conversation."""


def per_second(work: Callable[[], int]) -> float:
    """Median rate of something that says how many it did."""
    rates = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        done = work()
        rates.append(done / (time.perf_counter() - started))
    return statistics.median(rates)


def lines_of(iterations: int) -> list[bytes]:
    """The records of one turn."""
    run = loop.engine(iterations, "memory")
    asyncio.run(loop.ours(run, iterations))
    return list(run.store.read("c"))


# -- appends -------------------------------------------------------------------------------------------


def bare(path: Path, lines: list[bytes], durable: bool) -> int:
    """The floor: one row a commit into a plain table."""
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


def ours(path: Path, lines: list[bytes], durable: bool) -> int:
    """The store, one record an append."""
    path.unlink(missing_ok=True)
    store = SqliteStore(path, durable=durable)
    for seq, line in enumerate(lines):
        store.append("c", seq, [line])
    store.close()
    return len(lines)


def appends(folder: Path, lines: list[bytes]) -> None:
    """Print both levels."""
    for durable in (True, False):
        level = "full" if durable else "normal"
        few = lines[:400] if durable else lines
        rates = [
            per_second(lambda w=work, f=few, d=durable: w(folder / w.__name__, f, d))
            for work in (bare, ours)
        ]
        share = rates[1] / rates[0]
        print(
            f"appends at {level:6}: bare {rates[0]:8.0f}/s, ours {rates[1]:8.0f}/s, {share:.0%} of bare"
        )


# -- reading -------------------------------------------------------------------------------------------


def reading(lines: list[bytes]) -> None:
    """Print what replay and verify do in a second."""
    replayed = per_second(lambda: sum(1 for _ in replay(lines, "c")))
    verified = per_second(lambda: verify_lines(lines, "c").records)
    print(f"replay {replayed:.0f} records/s, verify {verified:.0f} records/s")


# -- at once -------------------------------------------------------------------------------------------


async def floors(count: int, folder: Path) -> None:
    """So many plain loops at once."""
    await asyncio.gather(
        *(loop.plain_loop(FIVE, loop.flushed(folder / f"f{n}")) for n in range(count))
    )


class Model:
    """Answers as the scripted one does, lets others go on meanwhile, and remembers nothing."""

    name = "model"
    _reply = staticmethod(loop.scripted(FIVE))

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        await asyncio.sleep(0)
        return self._reply(request)

    async def aclose(self) -> None:
        """Nothing to give back."""


async def turns(count: int, log: Any = "memory") -> float:
    """So many turns at once, in one engine; resident KiB that each of them adds at most."""
    run = loop.engine(FIVE, log)
    run.hosts.made["model"] = Model()
    await run.arun("go", conversation="warm")
    gc.collect()
    before = _resident_kib()

    async def one(name: str) -> None:
        await run.arun("go", conversation=name)

    await asyncio.gather(*(one(f"c{n}") for n in range(count)))
    return (_resident_kib() - before) / count


def _resident_kib() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def at_once(count: int, folder: Path) -> None:
    """Print rates and memory of concurrent conversations."""
    kib = asyncio.run(turns(count, SqliteStore(folder / "resident.db", durable=False)))
    floor = per_second(lambda: asyncio.run(floors(count, folder)) or count * FIVE)  # type: ignore[func-returns-value]
    own = per_second(lambda: int(asyncio.run(turns(count)) * 0) + count * FIVE)
    print(
        f"{count} conversations of {FIVE} iterations at once: floor {floor:.0f}/s, ours {own:.0f}/s, "
        f"{own / floor:.2f} of the floor; {kib:.1f} KiB resident each with the log on disk"
    )


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=3000)
    parser.add_argument("--conversations", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(loop.ours(loop.engine(50, "memory"), 50))
        at_once(options.conversations, folder)
        print(f"fsync on this disk: {loop.fsync_us(folder):.0f} us")
        lines = lines_of(options.records // 3)
        appends(folder, lines)
        reading(lines)


if __name__ == "__main__":
    main()
