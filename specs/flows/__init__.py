"""Flows that ship: each file is an agent with its chart, its effects and a rehearsed model."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def list_shipped_flows() -> tuple[str, ...]:
    """The names of the flows that come with Toolchart."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def read_flow_text(name: str) -> str:
    """The YAML text of a shipped flow."""
    return (_FOLDER / f"{name}.yaml").read_text("utf-8")
