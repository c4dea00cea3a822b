"""Benchmark of the loop by machine instructions: it says the same on a busy machine as on a quiet one.

    python benchmarks/instructions.py [inline async sync "sqlite normal" floor "plain sqlite" bare ...]

The kinds are those of `loop.py`, and the lower bound of `bare_loop.py`. Valgrind runs each twice, with 100
and with 300 iterations, and the difference is divided by 200. So the start and the turn itself do not count,
nor what the system does in its calls. Garbage is not collected. The engine's clock advances by 40 us a
reading, because under Valgrind each reading would fall into another millisecond.

Valgrind knows no instructions for SHA-256. Where the processor has them, hashing costs far less than is
counted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

SIZES = (100, 300)

KINDS = ("floor", "inline")
"""What is measured where nobody names a kind; ratios are to the first one."""

READING_NS = 40_000


class SlowClock:
    """The module `time` with a clock that advances by the same at each reading."""

    def __init__(self) -> None:
        self._now_ns = time.time_ns()

    def time_ns(self) -> int:
        """The time after one more reading."""
        self._now_ns += READING_NS
        return self._now_ns

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


async def run_kind(kind: str, iterations: int, folder: Path) -> None:
    """Run one turn of a kind; whoever counts compares two sizes."""
    import bare_loop
    import loop

    if kind in loop.FLOORS:
        open_log, in_thread = loop.FLOORS[kind]
        await loop.run_plain_loop(iterations, open_log(folder / "log"), in_thread)
        return
    if kind == "bare":
        await (await bare_loop.begin_loop(iterations)).run(iterations)
        return
    from toolchart.engine.runtime import clock

    is_memory = kind in loop.TOOLS
    log = "memory" if is_memory else loop.open_store(folder / "log", durable=kind == "sqlite full")
    engine = loop.make_engine(iterations, log, loop.TOOLS.get(kind, loop.add_inline))
    with patch.object(clock, "time", SlowClock()):
        await loop.run_turn(engine, iterations)


def count_instructions(kind: str, iterations: int) -> int:
    """Count the instructions of a process that runs a kind."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    process = subprocess.run(
        [*command, sys.executable, __file__, "--run", kind, str(iterations)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    found = re.search(r"I\s+refs:\s+([\d,]+)", process.stderr)
    if process.returncode or found is None:
        sys.exit(process.stderr)
    return int(found[1].replace(",", ""))


def main() -> None:
    """Parse the options, count, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        gc.disable()
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(run_kind(options.run[0], int(options.run[1]), Path(name)))
        return
    if shutil.which("valgrind") is None:
        parser.error("valgrind is missing: apt-get install valgrind")
    first = 0.0
    for kind in options.kinds:
        counts = [count_instructions(kind, size) for size in SIZES]
        cost = (counts[1] - counts[0]) / (SIZES[1] - SIZES[0])
        first = first or cost
        print(
            f"{kind:15} {cost:12,.0f} instructions an iteration, {cost / first:.2f} times {options.kinds[0]}"
        )


if __name__ == "__main__":
    main()
