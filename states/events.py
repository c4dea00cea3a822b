"""Events: the facts, in the past tense, that move a conversation.

A closed union. Each event is a frozen value with a `TYPE` tag; the driver makes it, the log keeps
it, the core takes it. Times come in with events (`at`), because the core never reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from toolchart.states.messages import Message, Reply, ToolDefinition
from toolchart.states.quick import quick

FAILURE_KINDS = (
    "auth",
    "not_found",
    "bad_request",
    "context_length",
    "rate_limited",
    "quota",
    "overloaded",
    "server",
    "timeout",
    "connection",
    "tools_unsupported",
    "content_filter",
    "bad_response",
    "cancelled",
)
"""Classes of a failed model call."""

Outcome = Literal[
    "succeeded", "failed", "denied", "timed_out", "cancelled", "skipped", "interrupted"
]
"""How one tool call ended."""

Ruling = Literal["run", "denied", "invalid", "needs_approval"]
"""What the review says about one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Numbers that bound a turn; they come in with the turn, so a log is self-contained."""

    max_iterations: int = 5
    """Model replies with tool calls before the turn ends at its limit."""
    max_tool_only_streak: int = 3
    """Replies in a row that call tools and say nothing."""
    max_repeats: int = 2
    """Runs of the same tool with the same arguments."""
    max_attempts: int = 3
    """Tries of one model call."""
    first_wait_s: float = 0.5
    """Seconds before the second try; doubled with every further one, up to a quarter less by jitter."""
    max_wait_s: float = 60.0
    """Seconds of one wait at most; a host that asks for more is not asked again."""
    max_tokens: int | None = None
    """Tokens of all replies of the turn."""
    max_cost: float | None = None
    """Money, in the currency of the price table."""
    max_seconds: float | None = None
    """Wall clock of the turn."""
    max_tool_calls: int | None = None
    """Tool calls of the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a turn runs with, resolved from the agent spec."""

    service: str
    """Name of the `llms` entry."""
    provider: str
    """Adapter name: `openai`, `ollama`, `gemini`, `scripted`, ..."""
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    """Sampling options, in the spelling of `Request.options`."""
    tools: tuple[str, ...] = ()
    """Names of the tools offered; empty means the standard flow without tools."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What every event has."""

    TYPE: ClassVar[str]
    at: str = ""
    """When it happened: RFC 3339, UTC, milliseconds. The record's `at`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured(Event):
    """Record 0 of a log, and again before a turn whose chart, spec or tools differ."""

    TYPE: ClassVar[str] = "configured"
    format: int
    """Version of the log's form."""
    conversation: str
    chart: str
    """The resolved chart as plain native YAML text. Text, because a record's keys are sorted and the
    order of states in a chart has a meaning."""
    spec: dict[str, Any]
    """The agent spec, secrets as references."""
    tools: tuple[ToolDefinition, ...] = ()
    """Every tool that the spec defines, as a model is told of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked(Event):
    """Record 0 of a conversation that goes on from another one's record, sharing what came before.

    Chart, spec, tools and messages are those in force there; what is given here goes before.
    """

    TYPE: ClassVar[str] = "forked"
    format: int
    """Version of the log's form."""
    conversation: str
    parent: str
    """The conversation that it comes from."""
    seq: int
    """The newest record that both share."""
    head: str
    """Hash of that record: what is shared cannot be changed without showing."""
    asks: tuple[str, ...] = ()
    """Names of the effects that nothing had answered there: they are asked for again."""
    settings: Settings | None = None
    """Of the open turn, where they were changed."""
    system: str | None = None
    """System prompt, where it was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(Event):
    """A user message opens a turn; the chart starts afresh in its initial state."""

    TYPE: ClassVar[str] = "turn_started"
    message: str
    """The user's message."""
    system: str | None = None
    """The system prompt with its variables filled in; None keeps the one in force."""
    history: tuple[Message, ...] = ()
    """Earlier messages brought along from elsewhere, before the user's message."""
    settings: Settings
    warnings: tuple[str, ...] = ()


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Replied(Event):
    """The model answered, whole."""

    TYPE: ClassVar[str] = "replied"
    reply: Reply
    deltas: tuple[dict[str, Any], ...] = ()
    """How it grew, where the agent asks for that to be kept: the deltas, each with its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """The model call failed."""

    TYPE: ClassVar[str] = "failed"
    kind: str
    """One of `FAILURE_KINDS`."""
    message: str
    status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    jitter: float = 0.0
    """A random number in [0, 1) for the back-off; it comes in, since the core draws none."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the review says about one call."""

    call_id: str
    ruling: Ruling
    reason: str | None = None
    """Why a call is not run, in words for the model."""
    arguments: dict[str, Any] | None = None
    """The arguments that it is to run with, where the review put something right."""
    notes: tuple[str, ...] = ()
    """What was put right, one by one."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed(Event):
    """Every call of the reply was looked at: one verdict each, in the reply's order."""

    TYPE: ClassVar[str] = "reviewed"
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(Event):
    """A person or a policy decided one call that needed approval."""

    TYPE: ClassVar[str] = "decided"
    call_id: str
    approved: bool
    reason: str | None = None
    """Words for the model when the call is rejected."""
    arguments: dict[str, Any] | None = None
    """Changed arguments, where the approval changed them."""
    by: str | None = None
    """Who decided."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished(Event):
    """One call ended; exactly one such event per requested call."""

    TYPE: ClassVar[str] = "tool_finished"
    call_id: str
    outcome: Outcome
    result: dict[str, Any]
    """`{success, result | error, tool_name, execution_time_ms}`, whole."""
    shown: str | None = None
    """What the model is shown where that differs from the result as JSON (a cut output)."""
    notes: tuple[str, ...] = ()
    """What was done to the call or its output (repaired, cached, cut)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited(Event):
    """A wait is over."""

    TYPE: ClassVar[str] = "waited"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Event):
    """Somebody stopped the turn."""

    TYPE: ClassVar[str] = "cancelled"
    reason: str | None = None


MachineEvent = Replied | Failed | Reviewed | Decided | ToolFinished | Waited | Cancelled
"""Events that charts have transitions for."""

AnyEvent = Configured | Forked | TurnStarted | MachineEvent

EVENTS: dict[str, type[AnyEvent]] = {
    kind.TYPE: kind
    for kind in (
        Configured,
        Forked,
        TurnStarted,
        Replied,
        Failed,
        Reviewed,
        Decided,
        ToolFinished,
        Waited,
        Cancelled,
    )
}
"""Every event by its tag."""

CHART_EVENTS: tuple[str, ...] = tuple(
    tag for tag in EVENTS if tag not in (Configured.TYPE, TurnStarted.TYPE)
)
"""The events that a chart may name."""
