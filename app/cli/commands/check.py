"""`toolchart check`: what can be proved of a chart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from toolchart.app.cli.log_access import json_option, print_json
from toolchart.app.cli.terminal.text import printable
from toolchart.states.encoding import encode
from toolchart.states.proofs.bounds import Worst
from toolchart.states.proofs.check import Finding, Report, check


@click.command(short_help="Prove what can be proved of a chart.")
@click.argument("what")
@json_option
def command(what: str, as_json: bool) -> int:
    """Check WHAT: a chart (a shipped name or a file), or an agent with its limits and tools.

    Proves that every state can be reached and left, that every event that may arrive is taken, that no
    transition is dead, that nothing waiting for a person is run, and that every turn ends; shows facts
    that break it where it cannot. Exits with 1 where there is a finding.

    \b
    Example:  toolchart check full
              toolchart check agent.yaml --json
    """
    chart, options = _found(what)
    report = check(chart, **options)
    if as_json:
        print_json(_data(report))
    else:
        _tell(report, chart.source or what)
    return 1 if report.findings else 0


def _found(what: str) -> tuple[Any, dict[str, Any]]:
    """The chart that is meant, and what an agent says about it."""
    from toolchart.specs.charts import load_chart, shipped
    from toolchart.specs.loader import load_spec, shipped_agents
    from toolchart.specs.turn_plan import limits_of
    from toolchart.specs.yaml_document import read_document

    path = Path(what)
    is_agent = what in shipped_agents() or (path.is_file() and "llms" in read_document(path).data)
    if what in shipped() or not is_agent:
        return load_chart(what), {"risky": True}
    spec = load_spec(what)
    risky = any(
        t.requires_approval or t.risk == "high" for t in (spec.tools.registry if spec.tools else ())
    )
    chart = load_chart(spec.chart, beside=path.parent if path.is_file() else None)
    limits = max(
        (limits_of(spec, one) for one in spec.responses), key=lambda one: one.max_iterations
    )
    return chart, {"risky": risky, "limits": limits, "unbounded": spec.limits.unbounded}


def _data(report: Report) -> dict[str, Any]:
    return {
        "chart": report.chart,
        "ok": not report.findings,
        "findings": [encode(finding) for finding in report.findings],
        "places": report.places,
        "answers": report.table_size,
        "notes": [encode(note) for note in report.notes],
        "worst": encode(report.worst) if report.worst else None,
        "formulas": dict(report.formulas),
    }


def _tell(report: Report, source: str) -> None:
    for finding in report.findings:
        click.echo(printable(f"{_place(finding, source)}{finding.kind}: {finding.message}"))
    for note in report.notes:
        click.echo(printable(f"{_place(note, source)}note: {note.message}"))
    count = len(report.findings)
    verdict = f"{count} finding{'s' if count > 1 else ''}" if count else "clean"
    told = _bound(report.worst, report.formulas) if report.worst else "no bound for a turn"
    size = f"{report.places} places, {report.table_size} answers"
    click.echo(printable(f"{report.chart}: {verdict}; {size}; {told}"))


def _bound(worst: Worst, formulas: Mapping[str, str]) -> str:
    parts = (
        _counted(worst.model_calls, "model calls", formulas.get("model_calls")),
        _counted(worst.tool_rounds, "rounds of tools", formulas.get("tool_rounds")),
        _counted(worst.waits, "waits", formulas.get("waits")),
    )
    waiting = f" of together {worst.waiting_s:g} s" if worst.waits else ""
    return "a turn takes at most " + ", ".join(parts) + waiting


def _counted(number: int, what: str, formula: str | None) -> str:
    return f"{number} {what}" + (f" ({formula})" if formula and formula != str(number) else "")


def _place(finding: Finding, source: str) -> str:
    return f"{source}:{finding.line}: " if finding.line else f"{source}: "
