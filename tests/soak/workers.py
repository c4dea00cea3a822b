"""Kills one of four workers on one log many times, while `recover --watch` goes on with their turns.

    PYTHONPATH=tests/support python tests/soak/workers.py [--kills 1000] [--seconds 900] [--store postgres]

Each conversation must end, nothing that was acknowledged may be lost, no tool that is not idempotent may
run twice, and no record may be appended by a process without the lease. Each store gets all the kills,
PostgreSQL only if its test package is installed. The script ends at the first fault.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
from killed_workers import run_fleet
from kills import addresses

LONGEST_PAUSE_S = 0.15
"""Between two kills at most."""


def main() -> None:
    """Parse the options, kill, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=900, help="of killing, for each store")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=["sqlite", "postgres"])
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # a fork beside the server's threads
    with tempfile.TemporaryDirectory() as name:
        kinds, address, end = addresses(Path(name))
        try:
            for kind in [kind for kind in kinds if kind in (options.store or kinds)]:
                place, started = Path(name) / f"fleet-{kind}", time.monotonic()
                place.mkdir()
                counts = run_fleet(
                    address(kind, place),
                    place,
                    kills=options.kills,
                    seed=options.seed,
                    longest_pause_s=LONGEST_PAUSE_S,
                    seconds=options.seconds,
                )
                figures = ", ".join(f"{label} {count}" for label, count in sorted(counts.items()))
                print(f"{kind}: {figures}, in {time.monotonic() - started:.0f} s (seed {options.seed})")
        finally:
            end()


if __name__ == "__main__":
    main()
