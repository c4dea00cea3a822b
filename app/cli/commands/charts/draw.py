"""`toolchart draw`: draw a chart, or the path of a conversation through it, as a diagram."""

from __future__ import annotations

import click

from toolchart.app.cli.log_access import find_conversation, open_log_for_reading
from toolchart.app.cli.parameters.charts import find_chart, load_child_charts
from toolchart.app.cli.parameters.options import NameChoice, format_command, log_option
from toolchart.app.cli.terminal.drawings import find_form, write_drawing
from toolchart.app.cli.terminal.output import get_output
from toolchart.app.cli.terminal.text import is_terminal, print_notice, terminal_width
from toolchart.states.diagram import RENDERERS, draw

_DRAWN_FORMS = ("text", "ascii", "table")
"""Forms whose lines are a picture: broken lines cannot be read."""

_FORMATS_BY_ENDING = {
    ".svg": "svg",
    ".png": "png",
    ".txt": "text",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".md": "table",
    ".yaml": "yaml",
    ".yml": "yaml",
}
"""What a file gets whose name ends so. One without an ending gets SVG."""


@click.command(short_help="Draw a chart, or the path of a conversation through it.")
@click.argument("name", metavar="CHART|AGENT|CONVERSATION")
@click.option(
    "--format",
    "form",
    type=NameChoice(list(RENDERERS)),
    help="Output format. Without it the ending of FILE decides; without FILE a terminal gets text, and "
    "a file or a pipe gets svg. png needs the extra `pictures`.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(),
    metavar="FILE",
    help="Write to this file instead of stdout: .svg, .png, .md (table), .mmd, .dot, .txt or .yaml.",
)
@click.option(
    "--sequence",
    is_flag=True,
    help="Draw who said what to whom in a conversation, as text, ascii, mermaid, svg or png.",
)
@click.option("--unfold", is_flag=True, help="Draw the charts of sub-agents inside the states that run them.")
@log_option
def command(
    name: str, form: str | None, output: str | None, sequence: bool, unfold: bool, log: str | None
) -> int:
    """Draw a chart (a shipped name or a file), the chart of an agent, or a conversation.

    The diagram of a conversation shows the visited path, how often each transition was taken, the time per
    state and the current state. With --sequence it shows the messages between user, chart, model, tools and
    people instead; of a long conversation the pictures leave out the middle, and text has all.

    \b
    Example:  toolchart draw tool_loop
              toolchart draw tool_loop -o tool_loop.svg
              toolchart draw full --format mermaid
              toolchart draw 5f0c > run.svg
              toolchart draw 5f0c --sequence -o talk.svg
              toolchart draw triage --unfold -o triage.svg
    """
    if form is None:
        default = "text" if output is None and is_terminal(get_output()) else "svg"
        form = find_form(output or "", _FORMATS_BY_ENDING, default)
    diagram = _draw_sequence(name, form, log) if sequence else _draw_chart(name, form, log, unfold)
    data = write_drawing(diagram, output or None)
    if not output:
        _explain_width(name, form, data)
    return 0


def _explain_width(name: str, form: str, data: bytes) -> None:
    """Say how to see a diagram whole whose lines the terminal has broken."""
    if form not in _DRAWN_FORMS or not is_terminal(get_output()):
        return
    from rich.cells import cell_len

    width, columns = max(map(cell_len, data.decode().splitlines()), default=0), terminal_width()
    if width > columns:
        command = format_command("draw", name, "--format", form)
        print_notice(
            f"the diagram is {width} columns wide, and this terminal {columns}\n"
            f"  see it whole:  {command} | less -S    or as a picture:  "
            f"{format_command('draw', name, '-o', 'picture.svg')}"
        )


def _draw_chart(name: str, form: str, log: str | None, unfold: bool) -> str | bytes:
    chart, overlay = find_chart(name, log)
    return draw(chart, form, overlay, load_child_charts(name, chart) if unfold else None)


def _draw_sequence(prefix: str, form: str, log: str | None) -> str | bytes:
    from toolchart.engine.exchange.sequence import draw_sequence, read_sequence
    from toolchart.engine.log.read_records import read_conversation

    with open_log_for_reading(log) as store:
        conversation = find_conversation(store, prefix)
        records = read_conversation(store, conversation, include_shared=True)
        return draw_sequence(read_sequence(conversation, records), form)
