"""`toolchart rerun`: run recorded conversations again under changes, and report what differs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolchart.app.cli.exit_codes import CANCELLED, NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log
from toolchart.app.cli.parameters.conditions import parse_conditions
from toolchart.app.cli.parameters.options import (
    NameChoice,
    json_option,
    list_engine_options,
    log_option,
    parse_variables,
)
from toolchart.app.cli.terminal.text import print_notice, print_text, shorten, terminal_width
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from toolchart.engine.rerun.report import RerunReport, RerunResult

_MIN_REASON_WIDTH = 30


@click.command(short_help="Run recorded conversations again under changes, and compare.")
@click.argument("conversations", nargs=-1)
@click.option("--spec", metavar="SPEC", help="Agent that runs: your own spec. Not needed with --offline.")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="K=V",
    help="Only conversations with this agent, state, model, tool, text, since or until. Repeatable.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="K=V",
    help="Change model, llm, prompt, chart, limits.NAME, tool.NAME.description, ...; @FILE reads a file. "
    "Repeatable.",
)
@click.option("--var", "variables", multiple=True, metavar="K=V", help="Variable that the log does not have.")
@click.option("--offline", is_flag=True, help="Take all answers from the log, model replies too.")
@click.option(
    "--live-tool",
    "live_tools",
    multiple=True,
    metavar="NAME",
    help="Let this tool run where the log has no result of a call. Repeatable.",
)
@click.option(
    "--judge",
    "judges",
    multiple=True,
    metavar="JUDGE",
    help="same, state, calls, answer, contains=TEXT, schema=FILE, python=MODULE:FUNCTION or agent=SPEC. "
    "Repeatable; all must pass.  [default: same]",
)
@click.option("--baseline", type=click.Path(), metavar="FILE", help="Accept the results of this file.")
@click.option("--update-baseline", is_flag=True, help="Write the results to the baseline.")
@click.option(
    "--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Conversations at once."
)
@click.option(
    "--format",
    "form",
    type=NameChoice(["table", "json", "junit", "html"]),
    default="table",
    show_default=True,
    help="Form of the report.",
)
@click.option("--output", type=click.Path(), metavar="FILE", help="Write the report to a file.")
@json_option
@log_option
def command(
    conversations: tuple[str, ...],
    spec: str | None,
    conditions: tuple[str, ...],
    changes: tuple[str, ...],
    variables: tuple[str, ...],
    offline: bool,
    live_tools: tuple[str, ...],
    judges: tuple[str, ...],
    baseline: str | None,
    update_baseline: bool,
    parallel: int,
    form: str,
    output: str | None,
    as_json: bool,
    log: str | None,
) -> int:
    """Run recorded CONVERSATIONS again under changes and compare each with its recording.

    Without ids every conversation that meets --where runs again. The user says what was recorded, and tools
    give their recorded results: a call that was never recorded ends that run as diverged. Only the model
    answers anew, or nothing at all with --offline. Nothing is written to the log. Exits with 1 if a result
    does not pass and is not in the baseline. After Ctrl-C the report has the results until then.

    \b
    Example:  toolchart rerun --spec agent.yaml --set model=qwen3 --judge state --judge calls
              toolchart rerun --offline --set limits.max_iterations=3
              toolchart rerun --spec agent.yaml --baseline rerun.json --format junit --output rerun.xml
    """
    from toolchart.engine.rerun.campaign import arerun
    from toolchart.engine.rerun.changes import parse_changes
    from toolchart.engine.rerun.judges import parse_judge
    from toolchart.engine.rerun.report import RerunReport, apply_baseline, read_baseline, write_baseline

    if update_baseline and baseline is None:
        raise SpecError("--update-baseline needs a file", hint="--baseline FILE --update-baseline")
    baseline_results = read_baseline(Path(baseline)) if baseline and not update_baseline else {}
    results: dict[str, RerunResult] = {}
    is_stopped = False
    agent = list_engine_options(spec) if spec is not None else {}
    with open_log(log) as store:
        names = [find_conversation(store, name) for name in conversations] or None
        run = arerun(
            store,
            agent.get("spec"),
            functions=agent.get("functions", ()),
            providers=agent.get("providers"),
            where=parse_conditions(conditions),
            conversations=names,
            changes=parse_changes(changes, parse_variables(variables)),
            judges=[parse_judge(text) for text in judges],
            offline=offline,
            live_tools=live_tools,
            parallel=parallel,
            on_result=lambda result: results.update({result.conversation: result}),
        )
        try:
            report = asyncio.run(run)
        except KeyboardInterrupt:
            if not results:
                raise
            is_stopped = True
            report = RerunReport(results=tuple(results.values()), is_offline=offline)
    if conditions and not report.results:
        raise SpecError(
            f"no conversation meets --where {' --where '.join(conditions)}",
            hint="nothing was compared; toolchart runs lists the conversations with their states",
        )
    report = apply_baseline(report, baseline_results)
    if baseline and update_baseline and not is_stopped:
        write_baseline(Path(baseline), report)
    _print_report(report, "json" if as_json else form, output)
    if is_stopped:
        note = "; the baseline is as it was" if update_baseline else ""
        print_notice(
            f"toolchart: cancelled; the report has the {_count(len(results), 'result')} until now{note}"
        )
        return CANCELLED
    return SUCCESS if report.has_passed or update_baseline else NEGATIVE


def _print_report(report: RerunReport, form: str, output: str | None) -> None:
    from toolchart.engine.rerun.rendering import RENDERERS

    text = RENDERERS[form](report) if form in RENDERERS else _format_table(report)
    if output is None:
        print_text(text)
        return
    try:
        Path(output).write_text(text, "utf-8")
    except OSError as error:
        raise SpecError(f"the report cannot be written: {error.strerror}", file=output) from None
    print_notice(_format_totals(report))


_WAY_ON = """\
what diverged needs an answer that the log does not have:
  a model gives it with --spec FILE and without --offline, a tool with --live-tool NAME"""
"""Below a report without a model."""


def _format_table(report: RerunReport) -> str:
    from toolchart.engine.rerun.rendering import describe_difference

    width = max((len(result.conversation) for result in report.results), default=0)
    room = max(_MIN_REASON_WIDTH, terminal_width() - width - 14)
    lines = [_format_result(result, width, room) for result in report.results]
    lines += [
        f"\n{result.conversation}\n{describe_difference(result)}"
        for result in report.results
        if not result.is_accepted and result.first is not None
    ]
    has_gap = report.is_offline and any(result.status == "diverged" for result in report.results)
    return "\n".join([*lines, "", _format_totals(report), *([_WAY_ON] if has_gap else [])])


def _format_result(result: RerunResult, width: int, room: int) -> str:
    from toolchart.engine.rerun.rendering import summarize_result

    mark = " " if result.is_accepted else "!"
    reason = shorten(summarize_result(result), room)
    known_note = " (known)" if result.is_known and not result.has_passed else ""
    return f"{mark} {result.conversation.ljust(width)}  {result.status:<9}  {reason}{known_note}".rstrip()


def _format_totals(report: RerunReport) -> str:
    totals = report.totals
    counts = ", ".join(f"{count} {status}" for status, count in totals.statuses.items() if count)
    old, new = totals.recorded_usage, totals.rerun_usage
    cost = "" if new.cost is None else f"; cost {old.cost or 0:.6f} recorded, {new.cost:.6f} now"
    seconds = f"; model calls took {totals.recorded_seconds:.3f} s recorded, {totals.rerun_seconds:.3f} s now"
    return (
        f"{_count(totals.conversations, 'conversation')}, {_count(totals.turns, 'turn')}: {counts or 'none'}"
        f"{cost}{'' if report.is_offline else seconds}; {totals.failed} not accepted"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
