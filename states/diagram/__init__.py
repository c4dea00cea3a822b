"""Draw a chart as text or picture: one neutral model (`model.py`) and one renderer per file.

The library's own renderers are not used. They change the names of events and states ("Tool finished"), so
a diagram could not be searched for the names in the chart; and their Mermaid cannot style visited states.
"""

from __future__ import annotations

from collections.abc import Callable

from toolchart.states.chart.document import Chart
from toolchart.states.diagram import dot, markdown_table, mermaid, scxml, terminal
from toolchart.states.diagram.graphviz_image import render_image
from toolchart.states.diagram.model import Diagram, Overlay, build_diagram
from toolchart.states.errors import SpecError, suggest_name

__all__ = [
    "FORMATS",
    "IMAGE_FORMATS",
    "TEXT_FORMATS",
    "Diagram",
    "Overlay",
    "build_diagram",
    "draw",
]

TEXT_FORMATS: dict[str, Callable[[Diagram], str]] = {
    "text": terminal.render,
    "ascii": terminal.render_ascii,
    "mermaid": mermaid.render,
    "dot": dot.render,
    "table": markdown_table.render,
    "scxml": scxml.render,
    "yaml": lambda diagram: diagram.chart.to_yaml(),
}
"""Text formats, each with its renderer. They need no further software."""

IMAGE_FORMATS = ("svg", "png")
"""Image formats. They need Graphviz."""

FORMATS: tuple[str, ...] = (*TEXT_FORMATS, *IMAGE_FORMATS)


def draw(chart: Chart, format_name: str, overlay: Overlay | None = None) -> str | bytes:
    """Draw a chart in a format; an overlay adds the path of a conversation.

    Raises:
        SpecError: the format is unknown, or an image is requested and Graphviz is not installed.
    """
    diagram = build_diagram(chart, overlay)
    if format_name in TEXT_FORMATS:
        return TEXT_FORMATS[format_name](diagram)
    if format_name in IMAGE_FORMATS:
        return render_image(dot.render(diagram), format_name)
    raise SpecError(
        f"there is no diagram format {format_name!r}", hint=suggest_name(format_name, FORMATS)
    )
