"""`toolchart migrate`: whether an open conversation may go on with a changed chart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log, print_json
from toolchart.app.cli.parameters.charts import resolve_chart, suggest_chart
from toolchart.app.cli.parameters.options import (
    durability_option,
    format_command,
    json_option,
    list_engine_options,
    log_option,
)
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import escape_controls
from toolchart.states.chart.document import Chart
from toolchart.states.core.encoding import encode
from toolchart.states.errors import SpecError
from toolchart.states.proofs.findings import CHANGES, format_facts

if TYPE_CHECKING:
    from toolchart.states.proofs.migration import MigrationReport


def _read_renamed(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The names that `--rename` gives, by the old ones.

    Raises:
        BadParameter: a value is not of the form OLD=NEW, or a state gets two names.
    """
    renamed: dict[str, str] = {}
    for value in values:
        old, separator, new = value.partition("=")
        if not separator or not old or not new:
            raise click.BadParameter(f"{value!r} is not of the form OLD=NEW, such as executing=working")
        if old in renamed and renamed[old] != new:
            raise click.BadParameter(f"the state {old!r} gets two names: {renamed[old]!r} and {new!r}")
        renamed[old] = new
    return renamed


@click.command(short_help="Move an open conversation to a changed chart.")
@click.argument("conversation")
@click.option("--spec", metavar="SPEC", help="Agent with the new chart.")
@click.option("--chart", metavar="CHART", help="The new chart alone: decides, and records nothing.")
@click.option(
    "--rename",
    "renamed",
    multiple=True,
    metavar="OLD=NEW",
    callback=_read_renamed,
    help="The new chart calls this state otherwise. Repeatable.",
)
@click.option(
    "--apply", "is_recorded", is_flag=True, help="Record the migration, if it is proved to be safe."
)
@json_option
@durability_option
@log_option
def command(
    conversation: str,
    spec: str | None,
    chart: str | None,
    renamed: dict[str, str],
    is_recorded: bool,
    as_json: bool,
    durability: str | None,
    log: str | None,
) -> int:
    """Decide whether the open CONVERSATION may go on with the chart of another spec.

    It may if the chart has the states in which the conversation stands, still answers what is open there in
    the same form, finds the results that its guards read, and, explored from there, has no fault and a bound.
    Otherwise prints what stands in the way, with the facts under which it happens, and exits with 1. With
    --apply an approved migration is recorded; `resume` and the next message then follow the new chart.
    Nothing is performed.

    CHART is a shipped chart, or a file with a chart or an agent. Without the agent its tools count as such
    that need approval, and each turn needs a bound.

    \b
    Example:  toolchart migrate 5f0c --spec agent.yaml
              toolchart migrate 5f0c --spec agent.yaml --apply
              toolchart migrate 5f0c --chart chart.yaml
              toolchart migrate 5f0c --spec agent.yaml --rename executing=working
    """
    from toolchart.engine.runtime.migration import Engine, decide_migration, migrate_conversation

    _require_one_option(spec, chart, is_recorded)
    with open_log(log) as store:
        name = find_conversation(store, conversation)
        if spec is None:
            report = decide_migration(store, name, _load_chart(str(chart)), renamed)
        else:
            with Engine(**list_engine_options(spec), log=log, durability=durability) as engine:
                report = asyncio.run(
                    migrate_conversation(engine, name, is_recorded=is_recorded, renamed=renamed)
                )
    if as_json:
        print_json(_encode_report(report, is_recorded))
    else:
        _print_report(report, name, spec, is_recorded, renamed)
    return SUCCESS if report is None or report.is_approved else NEGATIVE


def _require_one_option(spec: str | None, chart: str | None, is_recorded: bool) -> None:
    """Check that the new chart is named once, by an agent where it is to be recorded.

    Raises:
        UsageError: it is not.
    """
    if (spec is None) == (chart is None):
        raise click.UsageError("Name the new chart: either --spec with an agent, or --chart.")
    if is_recorded and spec is None:
        raise click.UsageError("--apply records the agent too: name it with --spec.")


def _load_chart(name: str) -> Chart:
    """The chart that `--chart` names.

    Raises:
        SpecError: there is none, or it breaks a rule.
    """
    chart = resolve_chart(name)
    if chart is None:
        raise SpecError(
            f"there is no chart {name!r}",
            path="--chart",
            hint=f"a file, or one that ships: {suggest_chart(name)}",
        )
    return chart


def _encode_report(report: MigrationReport | None, is_recorded: bool) -> dict[str, Any]:
    if report is None:
        return {"needed": False}
    return {
        "needed": True,
        "approved": report.is_approved,
        "recorded": report.is_approved and is_recorded,
        "chart": report.chart,
        "state": report.state,
        "findings": [encode(finding) for finding in report.findings],
        "worst_case": encode(report.worst) if report.worst is not None else None,
    }


def _print_report(
    report: MigrationReport | None, name: str, spec: str | None, is_recorded: bool, renamed: Mapping[str, str]
) -> None:
    if report is None:
        echo("nothing to migrate: the chart is the same, or the next turn takes it anyway")
        return
    for finding in report.findings:
        facts = f" [{format_facts(finding.counterexample)}]" if finding.counterexample else ""
        line = f"line {finding.line}: " if finding.line else ""
        echo(escape_controls(f"{line}{finding.kind}: {finding.message}{facts}"))
        if change := finding.change or CHANGES.get(finding.kind):
            echo(escape_controls(f"    change: {change}"))
    if not report.is_approved:
        echo(escape_controls(f"refused: {name} keeps its chart"))
    elif is_recorded:
        echo(escape_controls(f"migrated: {name} goes on in {report.state!r} of {report.chart}"))
    else:
        names = [word for old, new in renamed.items() for word in ("--rename", f"{old}={new}")]
        again = format_command("migrate", name, "--spec", spec or "AGENT", *names, "--apply")
        echo(escape_controls(f"approved: {name} may go on in {report.state!r} of {report.chart}\n  {again}"))
