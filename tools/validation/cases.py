"""Cases: what a model is asked, which tools it is offered, and which calls are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolchart.states.messages import Message, ToolDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall:
    """One call that is right."""

    name: str
    arguments: Mapping[str, list[Any]] = field(default_factory=dict)
    """Accepted values of each argument; `""` among them: it may be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question to a model."""

    id: str
    category: str
    messages: tuple[tuple[str, str], ...]
    """Role and content."""
    tools: tuple[ToolDefinition, ...]
    calls: tuple[ExpectedCall, ...] = ()
    """The calls that are right, in any order; none: no call at all is right."""
    any_call: bool = False
    """Whether any call at all will do."""
    failing: Mapping[str, str] = field(default_factory=dict)
    """Tools that answer the first call with this error; `calls` are then those after it."""
    before: tuple[Message, ...] = ()
    """What was said before `messages`, calls and their results included."""
    in_steps: bool = False
    """Whether the calls may come one reply after the other, each answered with "done", and others
    beside them; the right ones must be there in their order."""
