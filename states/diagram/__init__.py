"""Draw a chart as text or picture: one neutral model (`model.py`), one renderer per file, and their table
(`renderers.py`).

To add a renderer, write a function from `Diagram` to text or bytes, and add a row to the table.

The library's own renderers are not used. They change the names of events and states ("Tool finished"), so
a diagram could not be searched for the names in the chart; and their Mermaid cannot style visited states.

The exports are imported when they are first used, so that a text for a terminal loads no diagram.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.states.diagram.model import Diagram as Diagram
    from toolchart.states.diagram.model import Overlay as Overlay
    from toolchart.states.diagram.model import build_diagram as build_diagram
    from toolchart.states.diagram.renderers import RENDERERS as RENDERERS
    from toolchart.states.diagram.renderers import draw as draw

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    __all__, __getattr__, __dir__ = make_late_names(
        globals(),
        {
            "toolchart.states.diagram.model": ("Diagram", "Overlay", "build_diagram"),
            "toolchart.states.diagram.renderers": ("RENDERERS", "draw"),
        },
    )
