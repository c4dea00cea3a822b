"""Diagrams of a chart: one neutral model, one small renderer a file.

The library's own renderers are not used for drawing: they humanise the names of events and states, so a
diagram could not be searched for the words of the chart, and their Mermaid cannot style what was visited.
"""

from __future__ import annotations

from collections.abc import Callable

from toolchart.states.chart.document import Chart
from toolchart.states.diagram import dot, mermaid, scxml
from toolchart.states.diagram import markdown_table as table
from toolchart.states.diagram import terminal as box
from toolchart.states.diagram.model import Diagram, Overlay, diagram_of
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest

__all__ = ["FORMATS", "IMAGE_FORMATS", "TEXT_FORMATS", "Diagram", "Overlay", "diagram_of", "draw"]

TEXT_FORMATS: dict[str, Callable[[Diagram], str]] = {
    "text": box.render,
    "ascii": box.render_ascii,
    "mermaid": mermaid.render,
    "dot": dot.render,
    "table": table.render,
    "scxml": scxml.render,
    "yaml": lambda diagram: diagram.chart.text(),
}
"""Formats that need nothing installed."""

IMAGE_FORMATS = ("svg", "png")
"""Formats that Graphviz makes."""

FORMATS: tuple[str, ...] = (*TEXT_FORMATS, *IMAGE_FORMATS)


def draw(chart: Chart, form: str, overlay: Overlay | None = None) -> str | bytes:
    """A chart in a format; with an overlay, what a conversation made of it is shown too.

    Raises:
        SpecError: an unknown format, or an image where Graphviz is not installed.
    """
    diagram = diagram_of(chart, overlay)
    if form in TEXT_FORMATS:
        return TEXT_FORMATS[form](diagram)
    if form in IMAGE_FORMATS:
        from toolchart.states.diagram.graphviz_image import render

        return render(dot.render(diagram), form)
    raise SpecError(f"there is no diagram format {form!r}", hint=nearest(form, FORMATS))
