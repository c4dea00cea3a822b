"""What a tool is: its definition for the model, what it does, and how it may be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from toolchart.states.messages import ToolDefinition
from toolchart.tools.sources.services import Search

Runner = Callable[..., Any]
"""Takes the validated arguments as one mapping (and a `CallContext` where the tool says
`needs_context`); gives any JSON value; sync or async."""

Way = Literal["inline", "async", "thread", "process"]
"""How the executor runs it: on the loop (quick and bounded), awaited, in a thread, or in a process
of its own that can be ended from outside."""

Risk = Literal["low", "medium", "high"]


class ToolFailure(Exception):
    """A tool's own refusal, in words for the model: bad input, nothing found, not possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool, ready to run."""

    definition: ToolDefinition
    run: Runner
    way: Way = "inline"
    kind: str = "builtin"
    """`mock`, `builtin`, `internal`, `python`, `http` or `mcp`."""
    timeout_s: float = 30.0
    """Seconds for one run. An inline tool is not interrupted: it bounds its own input."""
    idempotent: bool = False
    """Running it twice does no harm, so that a resumed turn may run it again."""
    requires_approval: bool = False
    risk: Risk = "low"
    needs_context: bool = False
    """Whether `run` takes the `CallContext` as a second argument."""
    parallel: bool = True
    """Whether it may run while other calls of the conversation run."""
    repeatable: bool = False
    """Whether asking the same again and again is its nature (polling)."""
    cacheable: bool = False
    """Whether the same arguments may be answered from an earlier run."""
    cache_ttl_s: float | None = None
    """How long an answer stays good; None: for the rest of the turn."""
    max_result_size: int | None = None
    """Characters of its result that the model is shown; None: the spec's `output` limits."""
    listing: bool = False
    """Whether its results are listings, for which the output budget is larger."""
    search: Search | None = None
    """The search behind it, which `{{rag_context}}` of a prompt asks too."""
    function: Callable[..., Any] | None = None
    """The plain function behind `run`, by which a process of its own finds it."""
    memory_mb: int = 512
    """Address space of a process of its own."""
    alias: str | None = None
    """The name that the spec or the server uses, where providers would refuse it."""
    rewrites: tuple[str, ...] = ()
    """What an importer changed in the schema, for people."""

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return self.definition.name
