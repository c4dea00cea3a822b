"""`toolchart draw`: the machine as a diagram."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from toolchart.app.cli.log_access import find, log_option, opened
from toolchart.app.cli.parameters.charts import chart_meant, known_charts
from toolchart.states.chart.loading import Chart
from toolchart.states.diagram import FORMATS, Overlay, draw
from toolchart.states.errors import SpecError


@click.command(short_help="Draw a chart, or the path of a conversation through it.")
@click.argument("what")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="svg and png need Graphviz; the others nothing.",
)
@click.option(
    "--output", "-o", type=click.Path(), metavar="FILE", help="Write there instead of printing."
)
@log_option
def command(what: str, form: str, output: str | None, log: str | None) -> int:
    """Draw WHAT: a chart (a shipped name or a file), the chart of an agent, or a conversation.

    Of a conversation the visited path is shown, how often each transition was taken, the time per state,
    and where it stands.

    \b
    Example:  toolchart draw tool_loop
              toolchart draw full --format mermaid
              toolchart draw 5f0c --format svg -o run.svg
    """
    chart, overlay = _found(what, log)
    drawn = draw(chart, form, overlay)
    data = drawn.encode() if isinstance(drawn, str) else drawn
    if output:
        try:
            Path(output).write_bytes(data)
        except OSError as error:
            raise SpecError(f"cannot be written: {error.strerror}", file=output) from None
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return 0


def _found(what: str, log: str | None) -> tuple[Chart, Overlay | None]:
    """The chart that is meant, and what a conversation made of it."""
    chart = chart_meant(what)
    if chart is not None:
        return chart, None
    try:
        return _of_conversation(what, log)
    except SpecError as error:
        raise SpecError(
            f"{what!r} is no chart, no agent, no file and no conversation",
            hint=f"{error.hint or ''}; charts and agents: {known_charts()}".strip("; "),
        ) from None


def _of_conversation(what: str, log: str | None) -> tuple[Chart, Overlay]:
    from toolchart.engine.log.replay import replay_of
    from toolchart.engine.log.visited_path import overlay_of

    with opened(log) as store:
        name = find(store, what)
        steps = list(replay_of(store, name, whole=True))
    return steps[-1].machine.chart, overlay_of(steps)
