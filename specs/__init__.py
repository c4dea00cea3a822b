"""Agent specs: their data models, their loader, the shipped charts and the example agents.

The exports are imported when they are first used: whoever needs only the charts should not load pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.specs.charts import load_chart as load_chart
    from toolchart.specs.loader import load_spec as load_spec
    from toolchart.specs.models import AgentSpec as AgentSpec

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    __all__, __getattr__, __dir__ = make_late_names(
        globals(),
        {
            "toolchart.specs.loader": ("load_spec",),
            "toolchart.specs.models": ("AgentSpec",),
            "toolchart.specs.charts": ("load_chart",),
        },
    )
