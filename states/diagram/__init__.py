"""Draw a chart as text or picture: one neutral model (`model.py`), one renderer per file, and their table
(`renderers.py`).

To add a renderer, write a function from `Diagram` to text or bytes, and add a row to the table. Another
package adds a row by an entry point of the group `toolchart.renderers`; see `docs/extending.md`.

The library's own renderers are not used. They change the names of events and states ("Tool finished"), so
a diagram could not be searched for the names in the chart; and their Mermaid cannot style visited states.

The exports are imported when they are first used, so that a text for a terminal loads no diagram.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.states.diagram.model import Diagram, Overlay, build_diagram
    from toolchart.states.diagram.renderers import RENDERERS, RendererDescriptor, draw, list_text_formats

__all__ = [
    "RENDERERS",
    "Diagram",
    "Overlay",
    "RendererDescriptor",
    "build_diagram",
    "draw",
    "list_text_formats",
]

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    import importlib

    _NAMES = {
        "toolchart.states.diagram.model": ("Diagram", "Overlay", "build_diagram"),
        "toolchart.states.diagram.renderers": (
            "RENDERERS",
            "RendererDescriptor",
            "draw",
            "list_text_formats",
        ),
    }
    _HOMES = {name: home for home, names in _NAMES.items() for name in names}

    def __getattr__(name):
        """Import an exported name when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__():
        """The exported names, whether or not they are loaded yet."""
        return sorted({*globals(), *__all__})
