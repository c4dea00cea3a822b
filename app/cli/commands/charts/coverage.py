"""`toolchart coverage`: measure which states and transitions of a chart were visited."""

from __future__ import annotations

import sys

import click

from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.charts import resolve_chart, suggest_chart
from toolchart.app.cli.parameters.options import NameChoice, json_option, log_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import print_text
from toolchart.states.chart.loading import Chart
from toolchart.states.diagram import draw, list_text_formats
from toolchart.states.errors import SpecError
from toolchart.testing.coverage import Coverage, measure_coverage


@click.command(short_help="Measure which states and transitions of a chart were visited.")
@click.argument("chart")
@click.argument("conversations", nargs=-1)
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 1 if the coverage is below this.",
)
@click.option(
    "--draw",
    "form",
    type=NameChoice(list_text_formats()),
    help="Draw the chart with the number of visits instead.",
)
@json_option
@log_option
def command(
    chart: str,
    conversations: tuple[str, ...],
    fail_under: float | None,
    form: str | None,
    as_json: bool,
    log: str | None,
) -> int:
    """Measure which states and transitions of CHART the CONVERSATIONS visited; by default all of the log.

    CHART is a chart or an agent, by its shipped name or file. Conversations that ran another chart,
    or another version of it, are skipped and counted. Rows that CHART inherits and that can never be taken in
    it are named apart and do not count, so that tests can reach 100 %.

    \b
    Example:  toolchart coverage tool_loop
              toolchart coverage my_chart.yaml --log tests.db --fail-under 90
              toolchart coverage full --draw mermaid
    """
    coverage = _measure_conversations(_require_chart(chart), conversations, log)
    if as_json:
        print_json(coverage.to_dict())
    elif form:
        sys.stdout.write(str(draw(coverage.chart, form, coverage.overlay)))
    else:
        print_text(str(coverage))
    if fail_under is not None and coverage.percent < fail_under:
        click.echo(f"toolchart: {coverage.percent:g} % is below {fail_under:g} %", err=True)
        return 1
    return 0


def _require_chart(name: str) -> Chart:
    chart = resolve_chart(name)
    if chart is None:
        raise SpecError(f"{name!r} is not a chart, an agent or a file", hint=suggest_chart(name))
    return chart


def _measure_conversations(chart: Chart, conversations: tuple[str, ...], log: str | None) -> Coverage:
    with open_log_for_reading(log) as store:
        names = [find_conversation(store, prefix) for prefix in conversations] or list(
            store.list_conversations()
        )
        lines = (store.read_lines(name) for name in track_progress(names, "replaying", len(names)))
        return measure_coverage(chart, lines, parents=store.read_lines)
