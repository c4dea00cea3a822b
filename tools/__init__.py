"""Tools: definitions, registry, executor, manager and the builtins."""

from __future__ import annotations

from toolchart.tools.function import tool

__all__ = ["tool"]
