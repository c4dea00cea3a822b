"""Agent specs: their data models, their loader, the shipped charts and the example agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolchart.specs.loader import load_spec
    from toolchart.specs.models import AgentSpec

__all__ = ["AgentSpec", "load_spec"]


def __getattr__(name: str) -> Any:
    # Imported on first use: whoever needs only the charts should not load pydantic.
    if name == "load_spec":
        from toolchart.specs.loader import load_spec

        return load_spec
    if name == "AgentSpec":
        from toolchart.specs.models import AgentSpec

        return AgentSpec
    raise AttributeError(f"module 'toolchart.specs' has no attribute {name!r}")
