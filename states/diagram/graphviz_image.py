"""SVG and PNG images of a chart, made by the `dot` program of Graphviz."""

from __future__ import annotations

import shutil
import subprocess

from toolchart.states.diagram import dot
from toolchart.states.diagram.model import Diagram
from toolchart.states.errors import SpecError

_TIMEOUT_S = 60


def render_svg(diagram: Diagram) -> bytes:
    """The chart as an SVG image; see `render_image` for the errors."""
    return render_image(dot.render(diagram), "svg")


def render_png(diagram: Diagram) -> bytes:
    """The chart as a PNG image; see `render_image` for the errors."""
    return render_image(dot.render(diagram), "png")


def render_image(source: str, image_format: str) -> bytes:
    """The image of a DOT text.

    Raises:
        SpecError: Graphviz is not installed, or it failed; the hint names an alternative.
    """
    dot_path = shutil.which("dot")
    if dot_path is None:
        raise SpecError(
            f"{image_format} needs Graphviz, whose `dot` is not on the path",
            hint="install it (Debian: apt-get install graphviz; macOS: brew install graphviz), "
            "or draw --format mermaid",
        )
    try:
        process = subprocess.run(
            [dot_path, f"-T{image_format}"], input=source.encode(), capture_output=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecError(f"Graphviz could not draw it: {error}") from None
    if process.returncode:
        raise SpecError(f"Graphviz could not draw it: {process.stderr.decode(errors='replace').strip()}")
    return process.stdout
