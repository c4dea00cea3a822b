"""Runs Spin on the models of charts, and compares what it says with what `check` says."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace
from promela import SMALL_LIMITS, Claim, list_claims, write_promela

from toolchart.states.chart.document import Chart
from toolchart.states.events import Limits
from toolchart.states.proofs.check import CheckReport, check

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

MAX_CPU_SECONDS = 300
"""Processor time of one search; the longest of a shipped chart, that of `compacting`, takes 100 on a slow
machine that is busy (180 without the compiler's optimisation). By the clock, what else the machine does would
decide."""

MAX_DEPTH = 200_000

LARGER_LIMITS = replace(SMALL_LIMITS, max_iterations=4)

_REFUSALS = ("handled", "rests")
"""What `check` still finds where a step never rests."""

_EVERYTHING = "nothing_wrong"


class UndecidedError(Exception):
    """A search did not end within its time or its depth, and says nothing."""


class ModelRun:
    """The verifier of one model, compiled in a folder of its own.

    Args:
        options: of the compiler; without any, formulas of the model can be asked for.
    """

    def __init__(self, text: str, folder: Path, *options: str) -> None:
        self._folder = folder
        (folder / "model.pml").write_text(text)
        self._call("spin", "-a", "model.pml")
        assert COMPILER is not None
        self._call(COMPILER, "-w", *(options or ("-O1", "-DNOREDUCE")), "-o", "pan", "pan.c")

    def _call(self, *command: str) -> str:
        # Only the search is limited: the compiler takes seconds, whatever the model.
        limit = f"ulimit -t {MAX_CPU_SECONDS}; " if command[0] == "./pan" else ""
        limited = ("sh", "-c", f'ulimit -c 0; {limit}exec "$@"', "sh", *command)
        done = subprocess.run(limited, cwd=self._folder, capture_output=True, text=True, check=False)
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise UndecidedError(f"{' '.join(command)}: stopped after {MAX_CPU_SECONDS} s of processor time")
        assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def holds(self, claim: str) -> bool:
        """Whether a claim holds in every run of the model.

        Raises:
            UndecidedError: the search was cut.
        """
        return self._search(claim, "-a", "-w16", "-N", claim)

    def is_safe(self) -> bool:
        """Whether every assertion of the model holds in every run.

        Raises:
            UndecidedError: the search was cut.
        """
        return self._search("assertions", "-w20")

    def _search(self, what: str, *options: str) -> bool:
        output = self._call("./pan", f"-m{MAX_DEPTH}", *options)
        if "max search depth too small" in output:
            raise UndecidedError(f"{what}: a run has more than {MAX_DEPTH} steps")
        assert "errors: " in output, output[-2000:]
        return "errors: 0" in output


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """One claim about which Spin and `check` say different things."""

    text: str
    is_cautious: bool
    """Whether `check` only says too much: a fault that no run shows, or a bound that no run reaches. The
    opposite, a run that breaks what `check` proved, is a fault of one of them."""


def verify_chart(
    chart: Chart, report: CheckReport, expected: Sequence[str] = (), limits: Limits = SMALL_LIMITS
) -> list[str]:
    """The claims that fail. All are tried at once first, apart from those that are expected to fail.

    Args:
        report: of `check`, under the same limits.
        expected: claims that need not hold.

    Raises:
        UndecidedError: a search was cut.
    """
    claims = list_claims(report.worst, chart)
    safe = [claim for claim in claims if claim.holds and claim.name not in {"ends", *expected}]
    formula = " && ".join(f"({claim.formula.removeprefix('[] ')})" for claim in safe)
    text = write_promela(chart, limits=limits, worst=report.worst)
    with tempfile.TemporaryDirectory() as folder:
        run = ModelRun(f"{text}ltl {_EVERYTHING} {{ [] ({formula}) }}\n", Path(folder))
        names = [claim.name for claim in claims if claim not in safe]
        if not run.holds(_EVERYTHING):
            names += [claim.name for claim in safe]
        return [name for name in names if not run.holds(name)]


def find_disagreements(chart: Chart) -> Iterator[Disagreement]:
    """Where Spin and `check` say different things about a chart.

    `check` speaks about all limits, and a model has one value for each. So a fault that no run shows under
    small limits is looked for under larger ones.

    Raises:
        UndecidedError: a search under small limits was cut.
    """
    problems = list(_compare_under(SMALL_LIMITS, chart))
    if any(problem.is_cautious for problem in problems):
        with suppress(UndecidedError):  # a large model: then the small one decides
            larger = {problem.text for problem in _compare_under(LARGER_LIMITS, chart)}
            problems = [p for p in problems if not p.is_cautious or p.text in larger]
    yield from problems


def _compare_under(limits: Limits, chart: Chart) -> Iterator[Disagreement]:
    report = check(chart, risky=True, limits=limits)
    kinds = {finding.kind for finding in report.findings}
    if "too large" in kinds:
        return
    said = {CLAIM_OF_KIND[kind] for kind in kinds if kind in CLAIM_OF_KIND}
    failed = verify_chart(chart, report, sorted(said), limits)
    for claim in list_claims(report.worst, chart):
        if "rests" in said and claim.name not in _REFUSALS:
            continue
        yield from _compare(claim, said, failed)


def _compare(claim: Claim, said: set[str], failed: Sequence[str]) -> Iterator[Disagreement]:
    fails = claim.name in failed
    if fails and claim.holds and claim.name not in said:
        text = f"{claim.name}: Spin has a run that breaks it, and check finds nothing"
        yield Disagreement(text=text, is_cautious=False)
    elif not fails and claim.name in said:
        text = f"{claim.name}: check finds a fault, and Spin none in any run"
        yield Disagreement(text=text, is_cautious=True)
    elif not fails and not claim.holds:
        yield Disagreement(text=f"{claim.name}: no run reaches check's bound", is_cautious=True)


# -- leases ------------------------------------------------------------------------------------------

LEASE_MODEL = Path(__file__).resolve().parents[1] / "soak" / "leases.pml"

LEASE_CLAIMS = {
    "one record for each number": 1,
    "no append under an older lease": 2,
    "nothing acknowledged is lost": 3,
}
"""By name what holds of leases and appends."""

LEASE_FAULTS = {
    "append ignores the token": 1,
    "renewal compares nothing": 2,
    "token comes again after a release": 3,
    "record is acknowledged before it is synced": 4,
    "append compares nothing": 5,
}
"""By name the faults of the protocol that the model can have."""


def find_broken_lease_claims(fault: str = "") -> list[str]:
    """The claims about leases that fail in the model, without a fault or with one of `LEASE_FAULTS`.

    Raises:
        UndecidedError: a search was cut.
    """
    broken = []
    for claim, number in LEASE_CLAIMS.items():
        numbers = f"#define CLAIM {number}\n#define FAULT {LEASE_FAULTS.get(fault, 0)}\n"
        with tempfile.TemporaryDirectory() as folder:
            run = ModelRun(numbers + LEASE_MODEL.read_text(), Path(folder), "-O2", "-DSAFETY", "-DCOLLAPSE")
            if not run.is_safe():
                broken.append(claim)
    return broken
