"""Compares Spin with `check`: `python tests/soak/spin_gate.py [COUNT] [FIRST_SEED]`.

First every shipped chart, those of flows too: each claim holds, and each bound is exact. Then mutants of
them, with rows, guards, effects, states and regions that are dropped, changed or added
(`tests/support/chart_mutants.py`): what `check` proves must hold in every run, and Spin must have a run
for each of its findings and bounds. The script prints what differs. It exits with 1 where a run breaks what
`check` has proved, where more than 3 of 100 mutants have a finding or a bound that no run shows, or where
Spin's search does not end in its time: for a shipped chart, or for more than 4 of 100 mutants. It needs
`spin` and a C compiler, and exits with 2 without them.
"""

from __future__ import annotations

import copy
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import count
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]
import conftest  # noqa: E402, F401  makes the checkout importable
from chart_mutants import CHANGES  # noqa: E402
from promela import SMALL_LIMITS, list_claims  # noqa: E402
from spin_models import (  # noqa: E402
    IS_MISSING,
    LEASE_FAULTS,
    REASON,
    Disagreement,
    UndecidedError,
    find_broken_lease_claims,
    find_disagreements,
    verify_chart,
)

from toolchart.app.cli.parameters.charts import resolve_chart  # noqa: E402
from toolchart.specs.charts import list_shipped_charts  # noqa: E402
from toolchart.specs.flows import list_shipped_flows  # noqa: E402
from toolchart.states.chart.document import Chart  # noqa: E402
from toolchart.states.chart.loading import make_chart  # noqa: E402
from toolchart.states.errors import SpecError  # noqa: E402
from toolchart.states.machine import get_machine  # noqa: E402
from toolchart.states.proofs.check import check  # noqa: E402

SHORT = 50
MAX_CAUTIOUS_PERCENT = 3
MAX_UNDECIDED_PERCENT = 4


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One mutant, and what Spin and `check` say differently about it."""

    seed: int
    document: str = ""
    """Empty where there is no mutant, or no model of it."""
    problems: tuple[Disagreement, ...] = ()
    undecided: str = ""
    """Why Spin says nothing."""

    @property
    def verdict(self) -> str:
        """What is counted."""
        if self.undecided:
            return "undecided"
        if not self.problems:
            return "equal"
        return "cautious" if all(problem.is_cautious for problem in self.problems) else "broken"

    def __str__(self) -> str:
        texts = [problem.text for problem in self.problems]
        texts += [f"not decided: {self.undecided}"] if self.undecided else []
        return "\n".join([*(f"seed {self.seed}: {text}" for text in texts), self.document])


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


def verify_shipped_chart(name: str) -> list[str]:
    """The claims about a shipped chart that are not as they should be."""
    chart = resolve_chart(name)
    assert chart is not None
    report = check(chart, risky=True, limits=SMALL_LIMITS)
    expected = {claim.name for claim in list_claims(report.worst, chart) if not claim.holds}
    messages = [finding.message for finding in report.findings]
    try:
        return messages + sorted(expected ^ {*verify_chart(chart, report)})
    except UndecidedError as error:
        return [*messages, f"not decided: {error}"]


def verify_leases(fault: str) -> str:
    """What is not as it should be in the model of leases, without a fault or with one; empty where nothing
    is."""
    try:
        broken = find_broken_lease_claims(fault)
    except UndecidedError as error:
        return f"leases: not decided: {error}"
    if fault:
        return "" if broken else f"leases: the model does not show that {fault}"
    return f"leases: {', '.join(broken)}" if broken else ""


def compare_seed(seed: int) -> Comparison:
    """What differs about the mutant of a seed."""
    chart = make_mutant(random.Random(seed))
    if chart is None:
        return Comparison(seed=seed)
    try:
        problems = tuple(find_disagreements(chart))
        return Comparison(seed=seed, document=chart.to_yaml(), problems=problems)
    except UndecidedError as error:
        return Comparison(seed=seed, document=chart.to_yaml(), undecided=str(error))
    except SpecError:
        return Comparison(seed=seed)


def compare_mutants(pool: Executor, wanted: int, seed: int) -> Counter[str]:
    """How many of so many mutants have each verdict."""
    verdicts: Counter[str] = Counter()
    for first in count(seed, 20):
        for comparison in pool.map(compare_seed, range(first, first + 20)):
            if not comparison.document or verdicts.total() >= wanted:
                continue
            verdicts[comparison.verdict] += 1
            if comparison.verdict != "equal":
                print(comparison, flush=True)
        if verdicts.total() >= wanted:
            return verdicts
    raise AssertionError("seeds do not end")


def main() -> int:
    """Run as a script."""
    if IS_MISSING:
        print(REASON)
        return 2
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else SHORT
    start = time.monotonic()
    names = [*list_shipped_charts(), *list_shipped_flows()]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        wrong = [
            f"{name}: {', '.join(claims)}"
            for name, claims in zip(names, pool.map(verify_shipped_chart, names), strict=True)
            if claims
        ]
        wrong += filter(None, pool.map(verify_leases, ["", *LEASE_FAULTS]))
        print(
            *wrong,
            f"the model of leases and {len(names)} shipped charts, {len(wrong)} not as claimed",
            sep="\n",
            flush=True,
        )
        verdicts = compare_mutants(pool, wanted, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    broken, cautious, undecided = (verdicts[name] for name in ("broken", "cautious", "undecided"))
    print(f"{wanted} mutants, {broken} break a proof, {cautious} with more than runs show, ", end="")
    print(f"{undecided} not decided, {time.monotonic() - start:.0f} s")
    too_cautious = cautious * 100 > wanted * MAX_CAUTIOUS_PERCENT
    too_undecided = undecided * 100 > wanted * MAX_UNDECIDED_PERCENT
    return 1 if wrong or broken or too_cautious or too_undecided else 0


if __name__ == "__main__":
    sys.exit(main())
