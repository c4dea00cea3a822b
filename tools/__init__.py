"""Tools: definitions, registry, manager, approval, execution, sources, builtins and validation suites."""

from __future__ import annotations

from toolchart.tools.sources.python import tool

__all__ = ["tool"]
