"""Runs the long form of a gate seed by seed: `python tests/soak/gates.py GATE COUNT [FIRST_SEED]`.

Each seed is judged in one of two processes, and its verdict is printed as a line. With `--results` the lines
are kept in a file too, and a later call goes on after those that are in it, so a run may be cut at any time.
The script exits with 1 where a seed breaks what its gate promises, which its line then says. The gates are:

- `soundness`: `tests/engine/flows/test_soundness_gate.py`, one chart a seed
- `completeness`: `tests/states/test_completeness_gate.py`, one chart a seed, up to 10,000 worlds for each
- `python`, `z3`: `tests/states/test_solver.py`, 100 random formulas a seed, against all values or Z3
- `migration`: `tests/engine/test_migration.py`, one pair of charts a seed
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parents[2]
os.environ["TOOLCHART_LONG"] = "1"
sys.path[:0] = [str(ROOT / "tests" / path) for path in ("", "support", "states", "engine", "engine/flows")]
import conftest  # noqa: E402, F401  makes the checkout importable
import test_completeness_gate  # noqa: E402
import test_migration  # noqa: E402
import test_solver  # noqa: E402
import test_soundness_gate  # noqa: E402

FORMULAS = 100
"""Random formulas that one seed of a solver gate stands for."""

PROCESSES = 2

BROKEN = "broken: "
"""How the verdict about a seed begins that breaks the promise of its gate."""


def judge_soundness(seed: int) -> str:
    """Whether a chart is clean; raises where it is and misbehaves."""
    return "clean" if test_soundness_gate.run_seed(seed) else "not clean"


def judge_with_z3(seed: int) -> str:
    """Compare the solver with Z3; raises where they disagree."""
    undecided = test_solver.compare_with_z3(f"seed {seed}", FORMULAS)
    return f"equal, Z3 undecided about {undecided}" if undecided else "equal"


def judge_by_trying(seed: int) -> str:
    """Compare the solver with all values of small facts; raises where they disagree."""
    test_solver.compare_with_python(f"seed {seed}", FORMULAS)
    return "equal"


GATES: dict[str, Callable[[int], str]] = {
    "soundness": judge_soundness,
    "completeness": test_completeness_gate.judge_seed,
    "python": judge_by_trying,
    "z3": judge_with_z3,
    "migration": test_migration.judge_seed,
}
"""By name what judges one seed. It raises where the gate is broken, and gives a verdict to be counted."""


def judge(gate: str, seed: int) -> tuple[int, str, float]:
    """The verdict of a gate about a seed, and the processor time that it took in seconds."""
    logging.getLogger("toolchart").setLevel(logging.CRITICAL)  # else warnings hide a broken seed
    start = time.process_time()
    try:
        verdict = GATES[gate](seed)
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        verdict = f"{BROKEN}{type(error).__name__}: {error} {notes}"
    return seed, verdict.replace("\n", " "), time.process_time() - start


def read_results(path: Path | None) -> Iterator[tuple[int, str, float]]:
    """What an earlier call has found; a line that was cut is judged again."""
    for line in path.read_bytes().splitlines() if path is not None and path.exists() else ():
        try:
            seed, verdict, seconds = orjson.loads(line)
        except (orjson.JSONDecodeError, ValueError):
            continue
        yield seed, verdict, seconds


def judge_seeds(gate: str, seeds: range, path: Path | None) -> Iterator[tuple[int, str, float]]:
    """Each seed with its verdict, those of earlier calls first."""
    earlier = {result[0]: result for result in read_results(path) if result[0] in seeds}
    yield from earlier.values()
    left = [seed for seed in seeds if seed not in earlier]
    with ProcessPoolExecutor(max_workers=PROCESSES) as pool:
        for result in pool.map(judge, [gate] * len(left), left):
            line = orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE)
            if path is not None:
                with path.open("ab") as file:
                    file.write(line)
            print(line.decode(), end="", flush=True)
            yield result


def main() -> int:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gate", choices=GATES)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    results = list(judge_seeds(options.gate, seeds, options.results))
    verdicts = Counter(verdict.split(":")[0] for _, verdict, _ in results)
    broken = [f"seed {seed}: {verdict}" for seed, verdict, _ in results if verdict.startswith(BROKEN)]
    for line in broken:
        print(line[:300], file=sys.stderr)  # `.ci/run` prints only the last lines of the output
    print(*(f"{number} {verdict}" for verdict, number in sorted(verdicts.items())), sep=", ")
    print(f"{len(results)} seeds, {sum(seconds for *_, seconds in results):.0f} s of processor time")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
