"""Sections of an agent spec with numbers: the limits of a turn, and how a failed call is tried again."""

from __future__ import annotations

from pydantic import Field

from toolchart.specs.sections.base import Section
from toolchart.states.call_arguments import CALLS_PER_REPLY


class LimitsConfig(Section):
    """The limits of a turn."""

    max_iterations: int | None = Field(default=None, ge=1)
    """Most replies with tool calls, if neither handler nor tools section sets a limit."""
    max_tool_only_streak: int | None = Field(default=None, ge=1)
    """Most replies in a row that call tools and have no text. Not set by itself: many models write none."""
    max_repeats: int = Field(default=2, ge=1)
    """Most replies of a turn that ask for the same tool with the same arguments."""
    max_attempts: int = Field(default=3, ge=1)
    """Most attempts of one model call."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of all replies together."""
    max_cost: float | None = Field(default=None, gt=0)
    """Most money, in the currency of the price table."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Most seconds of wall clock time."""
    max_tool_calls: int | None = Field(default=None, gt=0)
    """Most tool calls."""
    long_result_size: int = Field(default=8000, ge=1)
    """Characters above which the result of a tool is long, for charts that let a model sum it up."""
    max_steps: int = Field(default=100_000, ge=10)
    """Most events of a turn. A backstop that no chart has to read: a turn that reaches it ends in error."""
    max_calls_per_reply: int = Field(default=CALLS_PER_REPLY, ge=1)
    """Most calls of one reply that are carried out, in every chart. Those behind them are refused."""
    unbounded: bool = False
    """States explicitly that the chart may run without a bound."""


class RetryConfig(Section):
    """How a failed model call is tried again, in charts that retry."""

    max_attempts: int | None = Field(default=None, ge=1)
    """Most attempts of one model call; has precedence over `limits`."""
    first_wait_s: float = Field(default=0.5, ge=0)
    """Seconds before the second attempt; doubled before each further one."""
    max_wait_s: float = Field(default=60.0, ge=0)
    """Most seconds of one wait; a host that demands a longer wait is not tried again."""
