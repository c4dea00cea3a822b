"""Runs Spin on the models of charts, and compares what it says with what `check` says."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from toolchart.states.chart.document import Chart
from toolchart.states.proofs.check import CheckReport, check
from toolchart.states.proofs.promela import SMALL_LIMITS, Claim, list_claims, write_promela

COMPILER = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
IS_MISSING = shutil.which("spin") is None or COMPILER is None
REASON = "Spin and a C compiler are not installed; CI installs them"

CLAIM_OF_KIND = {
    "unhandled": "handled",
    "gap": "handled",
    "spin": "rests",
    "stuck": "goes_on",
    "unapproved": "approved",
    "unreviewed": "reviewed",
    "lost answer": "kept",
    "no answer": "concluded",
    "unbounded": "ends",
}
"""By kind of finding the claim that fails with it. The others (`unreachable`, `dead end`, `dead row`, `too
large`) are about what never happens, which no formula of linear temporal logic says."""

_REFUSALS = ("handled", "rests")
"""What `check` still finds where a step never rests."""

_EVERYTHING = "nothing_wrong"


class ModelRun:
    """The verifier of one model, compiled in a folder of its own.

    Args:
        claims: the formulas of the model that will be asked for.
    """

    def __init__(self, text: str, folder: Path) -> None:
        self._folder = folder
        (folder / "model.pml").write_text(text)
        self._call("spin", "-a", "model.pml")
        assert COMPILER is not None
        self._call(COMPILER, "-O0", "-w", "-DNOREDUCE", "-o", "pan", "pan.c")

    def _call(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def holds(self, claim: str) -> bool:
        """Whether a claim holds in every run of the model."""
        output = self._call("./pan", "-a", "-w16", "-m200000", "-N", claim)
        assert "max search depth too small" not in output, "the search was cut"
        assert "errors: " in output, output[-2000:]
        return "errors: 0" in output


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What Spin says about a chart."""

    states: int = 0
    failed: tuple[str, ...]
    """The claims that do not hold."""


def verify_chart(chart: Chart, report: CheckReport, expected: Sequence[str] = ()) -> list[str]:
    """The claims that fail. All are tried at once first, apart from those that are expected to fail.

    Args:
        report: of `check`, under the same limits.
        expected: claims that need not hold.
    """
    claims = list_claims(report.worst, chart)
    safe = [claim for claim in claims if claim.holds and claim.name not in {"ends", *expected}]
    formula = " && ".join(f"({claim.formula.removeprefix('[] ')})" for claim in safe)
    text = write_promela(chart, limits=SMALL_LIMITS, worst=report.worst)
    with tempfile.TemporaryDirectory() as folder:
        run = ModelRun(f"{text}ltl {_EVERYTHING} {{ [] ({formula}) }}\n", Path(folder))
        names = [claim.name for claim in claims if claim not in safe]
        if not run.holds(_EVERYTHING):
            names += [claim.name for claim in safe]
        return [name for name in names if not run.holds(name)]


def find_disagreements(chart: Chart) -> Iterator[str]:
    """Where Spin and `check` say different things about a chart, one sentence each."""
    report = check(chart, risky=True, limits=SMALL_LIMITS)
    kinds = {finding.kind for finding in report.findings}
    if "too large" in kinds:
        return
    said = {CLAIM_OF_KIND[kind] for kind in kinds if kind in CLAIM_OF_KIND}
    failed = verify_chart(chart, report, sorted(said))
    for claim in list_claims(report.worst, chart):
        if "rests" in said and claim.name not in _REFUSALS:
            continue
        yield from _compare(claim, said, failed)


def _compare(claim: Claim, said: set[str], failed: Sequence[str]) -> Iterator[str]:
    fails = claim.name in failed
    if not claim.holds:
        if not fails:
            yield f"{claim.name}: check's bound is never reached"
    elif claim.name.endswith("_bounded"):
        if fails:
            yield f"{claim.name}: check's bound is exceeded"
    elif fails and claim.name not in said:
        yield f"{claim.name}: Spin has a run that breaks it, and check finds nothing"
    elif not fails and claim.name in said:
        yield f"{claim.name}: check finds a fault, and Spin none in any run"
