"""The pure core, the driver, the log and its stores, and replay."""

from __future__ import annotations

from toolchart.engine.engine import Engine
from toolchart.engine.result import TurnResult
from toolchart.engine.step import Step, begin, step

__all__ = ["Engine", "Step", "TurnResult", "begin", "step"]
