"""PNG images: the SVG picture, drawn in pixels by resvg in a bounded worker.

A library that aborts, hangs or eats memory ends its own process; the caller gets a `SpecError`.
"""

from __future__ import annotations

import base64

from toolchart.states.diagram.model import Diagram
from toolchart.states.diagram.picture import svg
from toolchart.states.diagram.picture.style import STYLE, make_flat_style
from toolchart.states.errors import SpecError, format_install
from toolchart.workers.host import is_bounded
from toolchart.workers.pool import BoundExceeded, Work, WorkFailed, run_bounded

_ZOOM = 2
_MEMORY_MB = 2048
_MAX_ANSWER_BYTES = 64_000_000
_TIMEOUT_S = 30.0
_LATER_HINT = "draw it as `svg`, `mermaid` or `text`"


def render(diagram: Diagram) -> bytes:
    """The chart as a PNG image in its light colours, two pixels per pixel of the SVG.

    Raises:
        SpecError: a package is not installed, or a library failed.
    """
    return rasterize_svg(svg.render(diagram))


def rasterize_svg(image: bytes, *, timeout_s: float = _TIMEOUT_S) -> bytes:
    """The PNG image of an SVG image of ours.

    Args:
        image: the picture.
        timeout_s: seconds before the worker is killed.

    Raises:
        SpecError: the package that makes it is not installed, it failed or aborted, or it needed too long or
            too much memory.
    """
    # The library knows no custom properties.
    text = image.decode().replace(STYLE, make_flat_style())
    arguments = {"image": text, "zoom": _ZOOM}
    if is_bounded():
        return base64.b64decode(_render_here(**arguments))
    work = Work(
        module=__name__,
        function=render_png.__name__,
        arguments=arguments,
        preload=(__name__,),
        memory_mb=_MEMORY_MB,
        max_answer_bytes=_MAX_ANSWER_BYTES,
    )
    try:
        return base64.b64decode(run_bounded(work, timeout_s=timeout_s))
    except BoundExceeded as error:
        raise SpecError(_describe_limit(error, timeout_s), hint=_LATER_HINT) from None
    except WorkFailed as failure:
        raise _build_error(failure) from None
    except (OSError, RuntimeError) as error:
        raise SpecError(f"the process that draws cannot be started: {error}", hint=_LATER_HINT) from None


def _render_here(image: str, zoom: int) -> str:
    """The image, in a process that is a bounded worker itself."""
    try:
        return render_png(image, zoom)
    except Exception as error:  # the library may fail in any way
        raise _build_error(WorkFailed(type(error).__name__, str(error))) from None


def _describe_limit(error: BoundExceeded, timeout_s: float) -> str:
    if error.limit == "time":
        return f"the picture was not ready after {timeout_s:g} s"
    if error.limit == "exit":
        code = error.code
        reason = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}"
        return f"the picture cannot be drawn: the process that draws ended {reason}"
    return f"the picture cannot be drawn: it needs too much {error.limit}"


def _build_error(failure: WorkFailed) -> SpecError:
    if failure.kind == ModuleNotFoundError.__name__:
        return SpecError(
            f"PNG needs a package that is not installed: {failure.text.rpartition(' ')[2]}",
            hint=f"{format_install('pictures')}, or {_LATER_HINT}",
        )
    return SpecError(f"the picture cannot be drawn: {str(failure)[:200]}", hint=_LATER_HINT)


# -- in the worker -------------------------------------------------------------------------------


def render_png(image: str, zoom: int) -> str:
    """An SVG image as PNG, in Base64."""
    import resvg_py

    return base64.b64encode(bytes(resvg_py.svg_to_bytes(svg_string=image, zoom=zoom))).decode()
