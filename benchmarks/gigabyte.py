"""Benchmark of a gigabyte of answer: how long a turn takes to refuse it, and what it takes of memory.

    python benchmarks/gigabyte.py [WIRE|SHAPE|FORM]...

Six shapes on five wires, whole and streamed. Each turn runs in a process of its own. Its chart asks once
more, without tools, so a turn costs two answers. `of floor` is that time beside what a plain HTTP client
takes to read as many bytes as the host got rid of.
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import httpx2
from gigabyte import FORMS, SHAPES, WIRES, build_answer, run_turn, serve


async def read_alone(wire: str, shape: str, form: str, size: int) -> float:
    """Seconds in which a client alone reads so many bytes."""
    async with serve(build_answer(wire, shape, form), size) as (port, _), httpx2.AsyncClient() as client:
        start = time.monotonic()
        async with client.stream("POST", f"http://127.0.0.1:{port}") as answer:
            async for _ in answer.aiter_raw():
                pass
        return time.monotonic() - start


def main() -> None:
    """Measure each case whose wire, shape or form is named; all without a name."""
    named = set(sys.argv[1:])
    for case in product(WIRES, SHAPES, FORMS):
        if named <= set(case) or not named:
            turn = asyncio.run(run_turn(*case))
            floor = asyncio.run(read_alone(*case, int(turn["sent_mib"] * 2**20)))
            print(
                f"{' '.join(case):25} {turn['seconds']:5.1f} s {turn['seconds'] / floor:7.1f} of floor "
                f"{turn['peak_mib']:5.0f} MiB {turn['sent_mib']:5.0f} MiB sent  {turn['message']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
