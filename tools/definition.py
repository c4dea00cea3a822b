"""What a tool is: its definition for the model, what it does, and how it may be run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolchart.states.messages import ToolDefinition

Runner = Callable[[Mapping[str, Any]], Any] | Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Takes the validated arguments, gives any JSON value; sync or async."""

Way = Literal["inline", "async", "thread"]
"""How the executor runs it: on the loop (quick and bounded), awaited, or in a thread."""


class ToolFailure(Exception):
    """A tool's own refusal, in words for the model: bad input, nothing found, not possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool, ready to run."""

    definition: ToolDefinition
    run: Runner
    way: Way = "inline"
    kind: str = "builtin"
    """`mock`, `builtin` or `python`."""
    timeout_s: float = 30.0
    idempotent: bool = False
    requires_approval: bool = False
    risk: str = "low"

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return self.definition.name
