"""Runs conversations and keeps their log: the engine and its driver, the log, replay, exports.

The exports are imported when they are first used, so that a module of this package loads without the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.engine.runtime.engine import Engine as Engine
    from toolchart.engine.runtime.result import Turn as Turn
    from toolchart.states.core.step import Step as Step
    from toolchart.states.core.step import begin as begin
    from toolchart.states.core.step import step as step

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    __all__, __getattr__, __dir__ = make_late_names(
        globals(),
        {
            "toolchart.engine.runtime.engine": ("Engine",),
            "toolchart.engine.runtime.result": ("Turn",),
            "toolchart.states.core.step": ("begin", "step", "Step"),
        },
    )
