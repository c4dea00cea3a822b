"""A test case for tool calling: what the model is asked, the offered tools, and the right calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolchart.states.messages import ToolDefinition


class ExpectedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One right call, with all accepted values of its arguments."""

    name: str
    arguments: Mapping[str, list[Any]] = msgspec.field(default_factory=dict)
    """Accepted values of each argument; `""` among them means that it may be left out."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a model and how its calls are judged."""

    id: str
    category: str
    messages: tuple[tuple[str, str], ...]
    """Role and content."""
    tools: tuple[ToolDefinition, ...]
    calls: tuple[ExpectedCall, ...] = ()
    """The right calls, in any order; empty if it is right to make no call."""
    any_call: bool = False
    """Whether any call is right, whatever its tool and arguments."""
    failing: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Error text by tool: the first calls fail with it, and the calls of the next reply are judged."""
