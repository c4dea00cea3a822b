"""Simulates histories of the stores, seed by seed: `python tests/soak/histories.py COUNT [FIRST_SEED]`.

Each seed is one history (`tests/support/store_simulator.py`): workers on the memory or the SQLite
store with clocks that differ, pauses, kills, full disks, failed syncs and losses of power. Each must be
linearizable, and lose nothing that was acknowledged. With `--results` what was found is kept in a file, a
line for each hundred seeds, and a later call goes on after those that are in it. The script exits with 1
where a history is broken.

    python tests/soak/histories.py 100000 --results histories.jsonl   # the long form, for 15 minutes
    python tests/soak/histories.py --seed 17                          # print one history
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / path) for path in ("", "support")]
import conftest  # noqa: E402, F401  makes the checkout importable
from store_simulator import Simulator  # noqa: E402

BLOCK = 100


def simulate_block(simulator: Simulator, first: int, count: int) -> dict[str, Any]:
    """What a block of seeds shows: the broken ones with why, and how often what happened."""
    start = time.process_time()
    broken: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        try:
            world = simulator.run(seed)
        except Exception as error:
            broken[str(seed)] = f"{type(error).__name__}: {error}".partition("\n")[0]
        else:
            seen.update(f"with {fault}" for fault in world.faults)
            seen.update({world.profile.kind: 1, "operations": len(world.history)})
    seconds = time.process_time() - start
    return {
        "first": first,
        "count": count,
        "broken": broken,
        "seen": dict(seen),
        "seconds": round(seconds, 2),
    }


def read_results(path: Path | None) -> dict[int, dict[str, Any]]:
    """What earlier calls have found, by the first seed of a block; a line that was cut is simulated again."""
    found: dict[int, dict[str, Any]] = {}
    for line in path.read_bytes().splitlines() if path is not None and path.exists() else ():
        try:
            result = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        found[result["first"]] = result
    return found


def show(seed: int) -> int:
    """Print the history of a seed."""
    with Simulator() as simulator:
        try:
            print(*simulator.run(seed).story, sep="\n")
        except Exception as error:
            print(error, *getattr(error, "__notes__", ()), sep="\n")
            return 1
    return 0


def main() -> int:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--seed", type=int, help="print the history of this seed alone")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # what the stores say of their faults
    if options.seed is not None:
        return show(options.seed)
    found = read_results(options.results)
    results = []
    with Simulator() as simulator:
        for first in range(options.first, options.first + options.count, BLOCK):
            count = min(BLOCK, options.first + options.count - first)
            result = found.get(first)
            if result is None or result["count"] != count:
                result = simulate_block(simulator, first, count)
                if options.results is not None:
                    with options.results.open("ab") as file:
                        file.write(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE))
            results.append(result)
            for seed, why in result["broken"].items():
                print(f"seed {seed}: {why}", flush=True)
    seen: Counter[str] = Counter()
    for result in results:
        seen.update(result["seen"])
    broken = sum(len(result["broken"]) for result in results)
    print(*(f"{number} {name}" for name, number in sorted(seen.items())), sep=", ")
    print(f"{options.count} histories, {broken} broken, {sum(r['seconds'] for r in results):.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
