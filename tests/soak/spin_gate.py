"""Compares Spin with `check` on mutants of charts: `python tests/soak/spin_gate.py [COUNT] [FIRST_SEED]`.

The mutants are shipped charts, those of flows too, with rows, guards, effects, states and regions that are
dropped, changed or added (`tests/engine/test_chart_mutants.py`). For each, Spin verifies what `check` claims
and must find a run for each fault that `check` finds. The script prints the disagreements, and exits with 1
where there is one. It needs `spin` and a C compiler.
"""

from __future__ import annotations

import copy
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "engine")]
import conftest  # noqa: E402, F401  makes the checkout importable
from spin_models import IS_MISSING, REASON, find_disagreements  # noqa: E402
from test_chart_mutants import CHANGES  # noqa: E402

from toolchart.app.cli.parameters.charts import resolve_chart  # noqa: E402
from toolchart.specs.charts import list_shipped_charts  # noqa: E402
from toolchart.specs.flows import list_shipped_flows  # noqa: E402
from toolchart.states.chart.document import Chart  # noqa: E402
from toolchart.states.chart.loading import make_chart  # noqa: E402
from toolchart.states.errors import SpecError  # noqa: E402
from toolchart.states.machine import get_machine  # noqa: E402

SHORT = 50
LONG = 500


def make_mutant(rng: random.Random) -> Chart | None:
    """A shipped chart with one to three changes; None where the rules for charts refuse it."""
    chart = resolve_chart(rng.choice([*list_shipped_charts(), *list_shipped_flows()]))
    assert chart is not None
    document = copy.deepcopy({**chart.document, "effects": dict(chart.effects)})
    for _ in range(rng.choice([1, 1, 2, 3])):
        rng.choice(CHANGES)(document, rng)
    try:
        mutant = make_chart(document)
        get_machine(mutant)
    except SpecError:
        return None
    return mutant


def compare_seed(seed: int) -> tuple[int, list[str] | None, str]:
    """The disagreements about one mutant, and the mutant; None where there is no mutant or no model."""
    chart = make_mutant(random.Random(seed))
    if chart is None:
        return seed, None, ""
    try:
        return seed, list(find_disagreements(chart)), chart.to_yaml()
    except SpecError as error:
        return seed, None, error.message


def compare_mutants(wanted: int, seed: int) -> int:
    """Compare this many mutants; the number of those about which Spin and `check` disagree."""
    done = bad = 0
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        for first in count(seed, 20):
            for number, problems, document in pool.map(compare_seed, range(first, first + 20)):
                if problems is None or done >= wanted:
                    continue
                done += 1
                bad += bool(problems)
                for problem in problems:
                    print(f"seed {number}: {problem}")
                if problems:
                    print(f"    {document}", flush=True)
            if done >= wanted:
                return bad


def main() -> int:
    """Run as a script."""
    if IS_MISSING:
        print(REASON)
        return 2
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else SHORT
    start = time.monotonic()
    bad = compare_mutants(wanted, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(f"{wanted} mutants, {bad} disagreements, {time.monotonic() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
