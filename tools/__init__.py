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
    import importlib

    _NAMES = {
        "toolchart.tools.sources.python": ("tool",),
        "toolchart.tools.definition": ("Tool", "ToolFailure"),
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
