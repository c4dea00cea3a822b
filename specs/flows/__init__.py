"""Flows that ship: each file is an agent with its chart, its effects and a rehearsed model."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def list_shipped_flows() -> tuple[str, ...]:
    """The names of the flows that come with Toolchart."""
    file_names = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in file_names if name.endswith(".yaml")))


def read_flow_text(name: str) -> str:
    """The YAML text of a shipped flow."""
    return files(__name__).joinpath(f"{name}.yaml").read_text("utf-8")
