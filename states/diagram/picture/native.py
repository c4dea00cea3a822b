"""The native libraries of pictures, each call in a bounded worker.

A library that aborts, hangs or eats memory ends its own process; the caller gets a `SpecError`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from toolchart.states.errors import SpecError, format_install
from toolchart.workers.host import is_bounded
from toolchart.workers.pool import BoundExceeded, Work, WorkFailed, run_bounded

_MEMORY_MB = 2048
_MAX_ANSWER_BYTES = 64_000_000
_TIMEOUT_S = 30.0
_LATER_HINT = "draw it as `mermaid`, `dot` or `text`"


def run_native(function: str, arguments: Mapping[str, Any], *, timeout_s: float = _TIMEOUT_S) -> Any:
    """The answer of a function of this module that runs in a worker, as JSON data.

    Args:
        function: `compute_layers` or `render_png`.
        arguments: by parameter name.
        timeout_s: seconds before the worker is killed.

    Raises:
        SpecError: the library is not installed, it aborted, or it needed too long or too much memory.
    """
    if is_bounded():
        return _run_here(function, arguments)
    work = Work(
        module=__name__,
        function=function,
        arguments=arguments,
        preload=(__name__,),
        memory_mb=_MEMORY_MB,
        max_answer_bytes=_MAX_ANSWER_BYTES,
    )
    try:
        return run_bounded(work, timeout_s=timeout_s)
    except BoundExceeded as error:
        raise SpecError(_describe_limit(error, timeout_s), hint=_LATER_HINT) from None
    except WorkFailed as failure:
        raise _build_error(failure) from None
    except (OSError, RuntimeError) as error:
        raise SpecError(f"the process that draws cannot be started: {error}", hint=_LATER_HINT) from None


def _run_here(function: str, arguments: Mapping[str, Any]) -> Any:
    """The answer of a function in a process that is a bounded worker itself."""
    try:
        return globals()[function](**arguments)
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
            f"pictures need a package that is not installed: {failure.text.rpartition(' ')[2]}",
            hint=f"{format_install('pictures')}, or {_LATER_HINT}",
        )
    return SpecError(f"the picture cannot be drawn: {str(failure)[:200]}", hint=_LATER_HINT)


# -- in the worker -------------------------------------------------------------------------------


def compute_layers(graphs: list[list[tuple[int, int]]]) -> list[Any]:
    """Per graph its components, each with vertices `[id, x, y]` and edges; long edges get extra vertices."""
    from fast_sugiyama import from_edges

    return [
        [
            {"vertices": [[vertex, x, y] for vertex, (x, y) in positions], "edges": list(parts or ())}
            for positions, _, _, parts in from_edges(edges, vertex_spacing=1, dummy_vertices=True)
        ]
        for edges in graphs
    ]


def render_png(image: str, zoom: int) -> str:
    """An SVG image as PNG, in Base64."""
    import resvg_py

    return base64.b64encode(bytes(resvg_py.svg_to_bytes(svg_string=image, zoom=zoom))).decode()
