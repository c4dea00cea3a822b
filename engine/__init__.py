"""Runs conversations and keeps their log: the engine and its driver, the log, replay, exports.

The step function of the pure core loads with this package. `Engine`, which needs specs, tools and
providers, loads when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolchart.states.core.step import Step, begin, step

if TYPE_CHECKING:
    from toolchart.engine.runtime.engine import Engine
    from toolchart.engine.runtime.result import TurnResult

__all__ = ["Engine", "Step", "TurnResult", "begin", "step"]


def __getattr__(name: str) -> Any:
    if name == "Engine":
        from toolchart.engine.runtime.engine import Engine

        return Engine
    if name == "TurnResult":
        from toolchart.engine.runtime.result import TurnResult

        return TurnResult
    raise AttributeError(f"module 'toolchart.engine' has no attribute {name!r}")
