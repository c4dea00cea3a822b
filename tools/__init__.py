"""Tools: definitions, registry, manager, approval, execution, sources, builtins and validation suites.

The exports are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.tools.definition import Tool, ToolFailure
    from toolchart.tools.sources.python import tool

__all__ = ["tool", "Tool", "ToolFailure"]

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    _NAMES = {
        "toolchart.tools.sources.python": ("tool",),
        "toolchart.tools.definition": ("Tool", "ToolFailure"),
    }
    __getattr__, __dir__ = make_late_names(globals(), _NAMES)
