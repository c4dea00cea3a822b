"""The bound of a turn in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.states.proofs.check import CheckReport, WorstCase


def format_bound(report: CheckReport) -> str:
    """The worst case of a turn in words; the parts that only flows have are left out where they are 0."""
    if report.worst is None:
        return "the length of a turn has no bound"
    worst, formulas = report.worst, report.formulas
    parts = [
        _format_count(worst.model_calls, "model calls", formulas.get("model_calls")),
        _format_count(worst.tool_rounds, "rounds of tools", formulas.get("tool_rounds")),
        *_format_rare_counts(worst, formulas),
        _format_count(worst.waits, "waits", formulas.get("waits")),
    ]
    total_wait = f" of {worst.waiting_s:g} s in total" if worst.waits else ""
    unknown = ", and what its agents cost" if worst.unknown_agent_runs else ""
    return "a turn takes at most " + ", ".join(parts) + total_wait + unknown


def _format_rare_counts(worst: WorstCase, formulas: Mapping[str, str]) -> list[str]:
    nouns = {
        "agent_runs": "runs of agents",
        "function_calls": "calls of functions",
        "questions": "questions to people",
    }
    return [
        _format_count(getattr(worst, field), noun, formulas.get(field))
        for field, noun in nouns.items()
        if getattr(worst, field)
    ]


def _format_count(number: int, noun: str, formula: str | None) -> str:
    return f"{number} {noun}" + (f" ({formula})" if formula and formula != str(number) else "")
