"""`toolchart check`: prove properties of a chart before it runs, and measure what conversations visited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.chart_checks import format_bound
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.charts import load_subject, suggest_chart
from toolchart.app.cli.parameters.options import json_option, log_option
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import escape_controls, print_notice, print_text
from toolchart.states.core.encoding import encode
from toolchart.states.errors import SpecError
from toolchart.states.proofs.check import CheckReport, Finding, check

if TYPE_CHECKING:
    from toolchart.specs.models import AgentSpec
    from toolchart.states.chart.document import Chart
    from toolchart.testing.counterexamples.replaying import Counterexample


@click.command(short_help="Prove properties of a chart before it runs.")
@click.argument("name", metavar="CHART|AGENT")
@click.option(
    "--replay-counterexample",
    "replays",
    is_flag=True,
    help="Drive the run of each finding through the engine, with a scripted world, and say what it did.",
)
@click.option(
    "--coverage",
    "measures_coverage",
    is_flag=True,
    help="In place of the proofs: measure which states and transitions the conversations of the log visited.",
)
@click.option(
    "--conversation",
    "conversations",
    multiple=True,
    metavar="ID",
    help="With --coverage: only this conversation. Repeatable.",
)
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="With --coverage: exit with 1 if it is below this.",
)
@json_option
@log_option
def command(
    name: str,
    replays: bool,
    measures_coverage: bool,
    conversations: tuple[str, ...],
    fail_under: float | None,
    as_json: bool,
    log: str | None,
) -> int:
    """Check a chart (a shipped name or a file), or the chart of an agent with the agent's limits and tools.

    Proves that every state can be reached and left, that every event that may arrive is handled, that every
    transition can be taken, that no call runs before its approval, and that every turn ends; of an agent also
    that no words of strangers reach a tool of high risk, that its hosts are known, and that its tools and
    functions can be loaded. Where a proof fails, prints a counterexample. Exits with 1 if there is a finding.

    With --coverage, conversations that ran another chart, or another version of it, are skipped and counted.
    Rows that the chart inherits and that can never be taken in it are named apart and do not count, so that
    tests can reach 100 %.

    \b
    Example:  toolchart check full
              toolchart check agent.yaml --json
              toolchart check my_chart.yaml --replay-counterexample
              toolchart check my_chart.yaml --coverage --log tests.db --fail-under 90
    """
    if measures_coverage and replays:
        raise click.UsageError("--coverage measures and proves nothing: leave out --replay-counterexample.")
    if (conversations or fail_under is not None) and not measures_coverage:
        raise click.UsageError("--conversation and --fail-under go with --coverage.")
    subject = load_subject(name)
    if subject is None:
        raise SpecError(f"{name!r} is not a chart, an agent or a file", hint=suggest_chart(name))
    chart, options = subject.chart, subject.options
    if measures_coverage:
        return _report_coverage(chart, conversations, log, fail_under=fail_under, as_json=as_json)
    report = check(chart, **options)
    problems, warnings = _list_start_problems(subject.spec, subject.functions)
    runs = _replay_findings(chart, report, options) if replays else ()
    if as_json:
        is_ok = not (report.findings or problems)
        print_json({**_encode_report(report, runs), "ok": is_ok, "start": problems, "warnings": warnings})
    else:
        for warning in warnings:
            print_notice(f"warning: {warning}")
        for problem in problems:
            is_left_out = "left out" in problem  # the agent starts, but not with this tool
            lead = (
                "the agent starts without a tool"
                if is_left_out
                else "the agent cannot start as it is written"
            )
            echo(escape_controls(f"{lead}: {problem}"))
        _print_report(report, runs, chart.source or name)
    return 1 if report.findings or problems else 0


def _report_coverage(
    chart: Chart, prefixes: Sequence[str], log: str | None, *, fail_under: float | None, as_json: bool
) -> int:
    """Print what conversations visited of a chart: those that are named, or all of the log."""
    from toolchart.testing.coverage import measure_coverage

    with open_log_for_reading(log) as store:
        names = [find_conversation(store, prefix) for prefix in prefixes] or list(store.list_conversations())
        lines = (store.read_lines(name) for name in track_progress(names, "replaying", len(names)))
        coverage = measure_coverage(chart, lines, parents=store.read_lines)
    if as_json:
        print_json(coverage.to_dict())
    else:
        print_text(str(coverage))
    if fail_under is not None and coverage.percent < fail_under:
        click.echo(f"toolchart: {coverage.percent:g} % is below {fail_under:g} %", err=True)
        return 1
    return 0


def _list_start_problems(spec: AgentSpec | None, functions: Sequence[Any]) -> tuple[list[str], list[str]]:
    """What keeps the agent from starting, and what it says when it starts, one text each."""
    from toolchart.engine.runtime.start_check import find_start_problems, list_tool_warnings

    if spec is None:
        return [], []
    problems = [str(error) for error in find_start_problems(spec, functions)]
    return problems, [*spec.warnings, *list_tool_warnings(spec, functions)]


def _replay_findings(
    chart: Chart, report: CheckReport, options: Mapping[str, Any]
) -> tuple[Counterexample, ...]:
    from toolchart.testing.counterexamples.replaying import replay_counterexample

    agent = options.get("flow_agent")
    return tuple(replay_counterexample(chart, finding, agent) for finding in report.findings)


def _encode_report(report: CheckReport, runs: Sequence[Counterexample]) -> dict[str, Any]:
    return {
        "chart": report.chart,
        "ok": not report.findings,
        "verdict": report.verdict,
        "findings": [encode(finding) for finding in report.findings],
        "places": report.state_count,
        "answers": report.table_size,
        "notes": [encode(note) for note in report.notes],
        **({"replays": [encode(run) for run in runs]} if runs else {}),
        "worst": encode(report.worst) if report.worst else None,
        "is_exact": report.is_exact,
        "formulas": dict(report.formulas),
    }


def _print_report(report: CheckReport, runs: Sequence[Counterexample], source: str) -> None:
    """Print findings and notes, then one line with the verdict, the size and the bound of a turn."""
    for index, finding in enumerate(report.findings):
        echo(escape_controls(f"{_format_location(finding, source)}{finding.kind}: {finding.message}"))
        if finding.run:
            echo(escape_controls(f"    run: {' > '.join(finding.run)}"))
        if runs:
            echo(escape_controls(f"    replay: {runs[index]}"))
        if finding.change:
            echo(escape_controls(f"    change: {finding.change}"))
    for note in report.notes:
        echo(escape_controls(f"{_format_location(note, source)}note: {note.message}"))
    size = f"{report.state_count} explored states, {report.table_size} table entries"
    echo(escape_controls(f"{report.chart}: {report.verdict}; {size}; {format_bound(report)}"))


def _format_location(finding: Finding, source: str) -> str:
    return f"{source}:{finding.line}: " if finding.line else f"{source}: "
