"""The child process of pictures: runs one job of a native library and prints its answer.

`process.py` starts this file as a script. The layout library aborts the whole process where it finds a bug of
its own; here that ends this process and no other. It imports nothing of Toolchart.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Read one request as JSON from standard input, do the job, write the answer."""
    request = json.load(sys.stdin.buffer)
    _set_limits(request["cpu_s"], request["memory"])
    sys.path[:] = request["path"]
    answer = _JOBS[request["job"]](request["data"])
    sys.stdout.buffer.write(answer)


def _set_limits(cpu_s: int, memory: int) -> None:
    try:
        import resource
    except ImportError:  # this system has no such limits; the timeout still holds
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _compute_layers(graphs: list[list[tuple[int, int]]]) -> bytes:
    """Per graph its components, each with vertices `[id, x, y]` and edges; long edges get extra vertices."""
    from fast_sugiyama import from_edges

    answers: list[Any] = []
    for edges in graphs:
        layouts = from_edges([(a, b) for a, b in edges], vertex_spacing=1, dummy_vertices=True)
        answers.append(
            [
                {"vertices": [[vertex, x, y] for vertex, (x, y) in positions], "edges": list(parts or ())}
                for positions, _, _, parts in layouts
            ]
        )
    return json.dumps(answers).encode()


def _render_png(data: dict[str, Any]) -> bytes:
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=data["svg"], zoom=data["zoom"]))


_JOBS: dict[str, Callable[[Any], bytes]] = {"layers": _compute_layers, "png": _render_png}


if __name__ == "__main__":
    main()
