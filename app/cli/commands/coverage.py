"""`toolchart coverage`: what the conversations of a log have visited of a chart."""

from __future__ import annotations

import sys

import click

from toolchart.app.cli.log_access import find, json_option, log_option, opened, print_json
from toolchart.app.cli.parameters.charts import chart_meant, known_charts
from toolchart.app.cli.terminal.progress import watched
from toolchart.states.chart.loading import Chart
from toolchart.states.diagram import TEXT_FORMATS, draw
from toolchart.states.errors import SpecError
from toolchart.testing.coverage import Coverage, measure_coverage


@click.command(short_help="Say what conversations have visited of a chart.")
@click.argument("chart")
@click.argument("conversations", nargs=-1)
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 1 when less was visited.",
)
@click.option(
    "--draw",
    "form",
    type=click.Choice(list(TEXT_FORMATS)),
    help="Draw the chart with its visits instead.",
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
    """Say which states and transitions of CHART the CONVERSATIONS of a log visited, or all of them.

    CHART is a chart or an agent, by its shipped name or file. Conversations that ran another chart,
    or another version of it, are left out and counted.

    \b
    Example:  toolchart coverage tool_loop
              toolchart coverage my_chart.yaml --log tests.db --fail-under 90
              toolchart coverage full --draw mermaid
    """
    found = _covered(_chart(chart), conversations, log)
    if as_json:
        print_json(found.to_dict())
    elif form:
        sys.stdout.write(str(draw(found.chart, form, found.overlay)))
    else:
        click.echo(str(found))
    if fail_under is not None and found.percent < fail_under:
        click.echo(f"toolchart: {found.percent:g} % is less than {fail_under:g} %", err=True)
        return 1
    return 0


def _chart(what: str) -> Chart:
    chart = chart_meant(what)
    if chart is None:
        raise SpecError(
            f"{what!r} is no chart, no agent and no file",
            hint=f"charts and agents: {known_charts()}",
        )
    return chart


def _covered(chart: Chart, conversations: tuple[str, ...], log: str | None) -> Coverage:
    with opened(log) as store:
        names = [find(store, one) for one in conversations] or list(store.conversations())
        lines = (store.read(name) for name in watched(names, "replaying", len(names)))
        return measure_coverage(chart, lines, parents=store.read)
