"""Tools: definitions, registry, executor, manager and the builtins."""

from __future__ import annotations

from toolchart.tools.sources.python import tool

__all__ = ["tool"]
