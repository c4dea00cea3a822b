"""PNG images: the SVG picture, drawn in pixels by resvg in a worker."""

from __future__ import annotations

import base64

from toolchart.states.diagram.model import Diagram
from toolchart.states.diagram.picture import svg
from toolchart.states.diagram.picture.native import run_native

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
    return base64.b64decode(run_native("render_png", {"image": image.decode(), "zoom": _ZOOM}))
