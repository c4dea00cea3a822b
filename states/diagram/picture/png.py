"""PNG images: the SVG picture, drawn in pixels by resvg in a process of its own."""

from __future__ import annotations

from toolchart.states.diagram.model import Diagram
from toolchart.states.diagram.picture import svg
from toolchart.states.diagram.picture.process import run_job

_ZOOM = 2


def render(diagram: Diagram) -> bytes:
    """The chart as a PNG image, two pixels per pixel of the SVG.

    Raises:
        SpecError: a package is not installed, or a library failed.
    """
    return rasterize_svg(svg.render(diagram))


def rasterize_svg(image: bytes) -> bytes:
    """The PNG image of an SVG image.

    Raises:
        SpecError: the package that makes it is not installed, or it failed.
    """
    return run_job("png", {"svg": image.decode(), "zoom": _ZOOM})
