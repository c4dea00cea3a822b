"""The report of a rerun: one result per conversation, totals, and the baseline for later reruns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from toolchart.engine.rerun.comparison import FirstDifference
from toolchart.engine.rerun.judges import Judgement, RunView
from toolchart.specs.document_files import read_regular_file
from toolchart.states.content import Value, encode_plain
from toolchart.states.errors import SpecError
from toolchart.states.json_bounds import check_foreign_json
from toolchart.states.messages import Usage

Status = Literal["same", "different", "diverged", "failed", "skipped"]
"""`same`: nothing differs. `different`: something differs. `diverged`: the run needed an answer that the log
does not have. `failed`: it could not be run. `skipped`: it is not a conversation that can run again."""

STATUSES: tuple[Status, ...] = ("same", "different", "diverged", "failed", "skipped")

_BASELINE_FORMAT = 1


class RerunResult(Value, frozen=True, kw_only=True):
    """One conversation: what was recorded, and what the rerun did."""

    conversation: str
    status: Status
    reason: str = ""
    """Why it diverged, failed or was skipped: `diverged at call 2: ...`."""
    first: FirstDifference | None = None
    """The first difference; None where there is none."""
    request_differences: tuple[str, ...] = ()
    """Where it diverged at a model request: how that request differs from the recorded one."""
    judgements: tuple[Judgement, ...] = ()
    recorded: RunView | None = None
    rerun: RunView | None = None
    is_known: bool = False
    """Whether the baseline has this very result."""

    @property
    def has_passed(self) -> bool:
        """Whether every judge passes it; a run that diverged or failed does not pass."""
        if self.status in ("diverged", "failed"):
            return False
        return self.status == "skipped" or all(judgement.passed for judgement in self.judgements)

    @property
    def is_accepted(self) -> bool:
        """Whether it passes, or is known from the baseline."""
        return self.has_passed or self.is_known

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data, with `passed`."""
        return {**super().to_dict(), "passed": self.has_passed}

    def describe_result(self) -> dict[str, Any]:
        """What a baseline keeps of it: everything that must be equal next time, and no times or tokens."""
        return {
            "status": self.status,
            "reason": self.reason,
            "first": to_builtins(self.first) if self.first is not None else None,
            "judgements": {judgement.judge: judgement.passed for judgement in self.judgements},
        }


class RerunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of a report."""

    conversations: int
    turns: int
    statuses: dict[str, int]
    passed: int
    known: int
    """Results that do not pass and are those of the baseline."""
    failed: int
    """Results that neither pass nor are known."""
    recorded_usage: Usage
    rerun_usage: Usage
    recorded_seconds: float
    """Time of the model calls."""
    rerun_seconds: float


class RerunReport(Value, frozen=True, kw_only=True):
    """The result of a rerun over many conversations."""

    results: tuple[RerunResult, ...]
    is_offline: bool = False

    @property
    def has_passed(self) -> bool:
        """Whether every result passes or is known from the baseline."""
        return all(result.is_accepted for result in self.results)

    @property
    def totals(self) -> RerunTotals:
        """The sums."""
        runs = [(result.recorded, result.rerun) for result in self.results]
        recorded = [run for run, _ in runs if run is not None]
        rerun = [run for _, run in runs if run is not None]
        counts = Counter(result.status for result in self.results)
        return RerunTotals(
            conversations=len(self.results),
            turns=sum(len(run.states) for run in recorded),
            statuses={status: counts[status] for status in STATUSES},
            passed=sum(result.has_passed for result in self.results),
            known=sum(not result.has_passed and result.is_known for result in self.results),
            failed=sum(not result.is_accepted for result in self.results),
            recorded_usage=_add_usages(recorded),
            rerun_usage=_add_usages(rerun),
            recorded_seconds=round(sum(run.seconds for run in recorded), 3),
            rerun_seconds=round(sum(run.seconds for run in rerun), 3),
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        results = [result.to_dict() for result in self.results]
        return {
            "passed": self.has_passed,
            "offline": self.is_offline,
            "totals": encode_plain(self.totals),
            "results": results,
        }


def _add_usages(runs: Iterable[RunView]) -> Usage:
    total = Usage()
    for run in runs:
        total = total.plus(run.usage)
    return total


# -- baselines -------------------------------------------------------------------------------------


def read_baseline(path: Path) -> dict[str, dict[str, Any]]:
    """The results of a baseline file by conversation.

    Raises:
        SpecError: the file cannot be read, or is no baseline.
    """
    try:
        content = read_regular_file(path)
        check_foreign_json(content, "file_values")
        data = msgspec.json.decode(content)
    except (OSError, ValueError) as error:
        raise SpecError(f"the baseline cannot be read: {error}", file=str(path)) from None
    results = data.get("results") if isinstance(data, dict) else None
    if not isinstance(results, dict) or data.get("format") != _BASELINE_FORMAT:
        raise SpecError(
            "this is no baseline of a rerun", file=str(path), hint="write one with --update-baseline"
        )
    return results


def write_baseline(path: Path, report: RerunReport) -> None:
    """Write the results of a report as a baseline.

    Raises:
        SpecError: the file cannot be written.
    """
    results = {result.conversation: result.describe_result() for result in report.results}
    text = msgspec.json.encode({"format": _BASELINE_FORMAT, "results": results}, order="sorted")
    try:
        path.write_bytes(msgspec.json.format(text, indent=1) + b"\n")
    except OSError as error:
        raise SpecError(f"the baseline cannot be written: {error}", file=str(path)) from None


def apply_baseline(report: RerunReport, baseline: Mapping[str, Any]) -> RerunReport:
    """The report in which results that the baseline has are marked as known."""
    results = tuple(
        replace(result, is_known=_to_json(result.describe_result()) == baseline.get(result.conversation))
        for result in report.results
    )
    return replace(report, results=results)


def _to_json(value: Any) -> Any:
    """The value as a file gives it back."""
    return msgspec.json.decode(msgspec.json.encode(value))
