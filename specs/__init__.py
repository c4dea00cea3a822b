"""Agent specs: their data models, their loader, the shipped charts and the example agents.

The exports are imported when they are first used: whoever needs only the charts should not load pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.specs.charts import load_chart
    from toolchart.specs.loader import load_spec
    from toolchart.specs.models import AgentSpec

__all__ = ["load_spec", "AgentSpec", "load_chart"]

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    import importlib

    _NAMES = {
        "toolchart.specs.loader": ("load_spec",),
        "toolchart.specs.models": ("AgentSpec",),
        "toolchart.specs.charts": ("load_chart",),
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
