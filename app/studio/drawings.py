"""Drawings of charts inside pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from toolchart.states.chart.document import Chart
from toolchart.states.diagram import draw
from toolchart.states.errors import ToolchartError

_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
_DECLARATION = re.compile(r"^<\?xml[^>]*\?>\s*")


def draw_for_page(load: Callable[[], Chart]) -> dict[str, Any]:
    """The drawing of a chart as `svg`. Where there can be none it is None, and `no_svg` says why."""
    try:
        return {"svg": prepare_svg(draw(load(), "svg")), "no_svg": ""}
    except ToolchartError as error:
        return {"svg": None, "no_svg": f"The chart cannot be drawn: {error}"}


def prepare_svg(drawing: str | bytes) -> Markup:
    """A drawing of our own renderer for a page: its style is in a file, because pages allow none inside."""
    text = drawing.decode() if isinstance(drawing, bytes) else drawing
    # The renderer escapes every text of the chart, so what it gives is markup.
    return Markup(_STYLE.sub("", _DECLARATION.sub("", text)))
