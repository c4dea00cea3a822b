"""Toolchart runs LLM tool loops as declared state machines.

    from toolchart import Engine, load_spec

    Engine(load_spec("quickstart")).run("What is 17 * (23 + 4)?")

The names below are loaded when they are first used, so that `import toolchart` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Engine": "toolchart.engine",
    "TurnResult": "toolchart.engine",
    "step": "toolchart.engine",
    "load_spec": "toolchart.specs",
    "tool": "toolchart.tools",
    "ToolchartError": "toolchart.states.errors",
    "SpecError": "toolchart.states.errors",
    "IllegalEvent": "toolchart.states.errors",
    "ProviderError": "toolchart.states.errors",
    "ReplayMismatch": "toolchart.states.errors",
    "LogConflict": "toolchart.states.errors",
    "LogDamaged": "toolchart.states.errors",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from toolchart.engine import Engine as Engine
    from toolchart.engine import TurnResult as TurnResult
    from toolchart.engine import step as step
    from toolchart.specs import load_spec as load_spec
    from toolchart.tools import tool as tool


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'toolchart' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
