"""Events: everything that can happen to a conversation, as frozen values with names in the past tense.

The union is closed. Each event has a `TYPE` tag. The driver creates it, the log stores it, and the core
reduces it. Times come in with events (`at`), because the core never reads a clock.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import msgspec

from toolchart.states.messages import Message, Reply, ToolDefinition

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

Outcome = Literal["succeeded", "failed", "denied", "timed_out", "cancelled", "skipped", "interrupted"]
"""How one tool call ended."""

Ruling = Literal["run", "denied", "invalid", "needs_approval"]
"""The result of the review of one call."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers that bound a turn. They are part of `turn_started`, so a log is self-contained."""

    max_iterations: int = 5
    """Model replies with tool calls before the turn ends at its limit."""
    max_tool_only_streak: int = 3
    """Replies in a row that call tools and have no text."""
    max_repeats: int = 2
    """Runs of the same tool with the same arguments."""
    max_attempts: int = 3
    """Tries of one model call."""
    first_wait_s: float = 0.5
    """Seconds before the second try; doubled with every further one, up to a quarter less by jitter."""
    max_wait_s: float = 60.0
    """Longest wait in seconds. If a host asks for a longer one, the call is not retried."""
    max_tokens: int | None = None
    """Tokens of all replies of the turn."""
    max_cost: float | None = None
    """Money, in the currency of the price table."""
    max_seconds: float | None = None
    """Wall clock of the turn."""
    max_tool_calls: int | None = None
    """Tool calls of the turn."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Model, options, tools and limits of a turn, resolved from the agent spec."""

    service: str
    """Name of the `llms` entry."""
    provider: str
    """Adapter name: `openai`, `ollama`, `gemini`, `scripted`, ..."""
    model: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Sampling options, in the spelling of `Request.options`."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the turn offers; empty means a flow without tools."""
    limits: Limits = msgspec.field(default_factory=Limits)


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """The base of all events."""

    TYPE: ClassVar[str]
    at: str = ""
    """When it happened: RFC 3339, UTC, milliseconds. The record's `at`."""


class Configured(Event, frozen=True, kw_only=True, tag="configured"):
    """Record 0 of a log; also recorded before a turn whose chart, spec or tools differ."""

    TYPE: ClassVar[str] = "configured"
    format: int
    """Version of the log format."""
    conversation: str
    chart: str
    """The resolved chart as YAML text. It is text because the keys of a record are sorted, and the order
    of states in a chart has a meaning."""
    spec: dict[str, Any]
    """The agent spec, secrets as references."""
    tools: tuple[ToolDefinition, ...] = ()
    """Every tool that the spec defines, as it is described to a model."""


class Forked(Event, frozen=True, kw_only=True, tag="forked"):
    """Record 0 of a conversation that continues another one from one of its records.

    Chart, spec, tools and messages are those of the parent at that record, unless this event changes them.
    """

    TYPE: ClassVar[str] = "forked"
    format: int
    """Version of the log format."""
    conversation: str
    parent: str
    """Id of the parent conversation."""
    seq: int
    """The newest record that both share."""
    head: str
    """Hash of that record, so that a change of the shared part is detected."""
    asks: tuple[str, ...] = ()
    """Names of the effects that were open there; they are requested again."""
    settings: Settings | None = None
    """Settings of the open turn, if they were changed."""
    system: str | None = None
    """System prompt, if it was changed."""


class TurnStarted(Event, frozen=True, kw_only=True, tag="turn_started"):
    """A user message opens a turn. The chart starts in its initial state."""

    TYPE: ClassVar[str] = "turn_started"
    message: str
    """The user's message."""
    system: str | None = None
    """The system prompt with its variables filled in; None keeps the previous one."""
    history: tuple[Message, ...] = ()
    """Earlier messages from elsewhere, to be put before the user's message."""
    settings: Settings
    warnings: tuple[str, ...] = ()


class Replied(Event, frozen=True, kw_only=True, tag="replied"):
    """The model answered, and its reply is complete."""

    TYPE: ClassVar[str] = "replied"
    reply: Reply
    deltas: tuple[dict[str, Any], ...] = ()
    """The stream deltas, each with its kind, if the agent spec asks to record them."""


class Failed(Event, frozen=True, kw_only=True, tag="failed"):
    """The model call failed."""

    TYPE: ClassVar[str] = "failed"
    kind: str
    """One of `FAILURE_KINDS`."""
    message: str
    status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    jitter: float = 0.0
    """A random number in [0, 1) for the back-off. It comes with the event, because the core draws none."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the review says about one call."""

    call_id: str
    ruling: Ruling
    reason: str | None = None
    """Why a call is not run, as text for the model."""
    arguments: dict[str, Any] | None = None
    """The arguments to run with, if the review repaired them."""
    notes: tuple[str, ...] = ()
    """The repairs, one by one."""


class Reviewed(Event, frozen=True, kw_only=True, tag="reviewed"):
    """Every call of the reply was reviewed: one verdict each, in the order of the reply."""

    TYPE: ClassVar[str] = "reviewed"
    verdicts: tuple[Verdict, ...]


class Decided(Event, frozen=True, kw_only=True, tag="decided"):
    """A person or a policy approved or rejected one call."""

    TYPE: ClassVar[str] = "decided"
    call_id: str
    approved: bool
    reason: str | None = None
    """Text for the model when the call is rejected."""
    arguments: dict[str, Any] | None = None
    """New arguments, if the approval changed them."""
    by: str | None = None
    """Who decided."""


class ToolFinished(Event, frozen=True, kw_only=True, tag="tool_finished"):
    """One call ended; exactly one such event per requested call."""

    TYPE: ClassVar[str] = "tool_finished"
    call_id: str
    outcome: Outcome
    result: dict[str, Any]
    """The complete result: `{success, result | error, tool_name, execution_time_ms}`."""
    shown: str | None = None
    """The text for the model, if it differs from the result as JSON (for instance a shortened output)."""
    notes: tuple[str, ...] = ()
    """Changes to the call or its output, for instance a repair, a cached result or a cut."""


class Waited(Event, frozen=True, kw_only=True, tag="waited"):
    """A wait is over."""

    TYPE: ClassVar[str] = "waited"
    seconds: float = 0.0


class Cancelled(Event, frozen=True, kw_only=True, tag="cancelled"):
    """Somebody stopped the turn."""

    TYPE: ClassVar[str] = "cancelled"
    reason: str | None = None


MachineEvent = Replied | Failed | Reviewed | Decided | ToolFinished | Waited | Cancelled
"""Events that the machine receives: the ones that a chart has transitions for."""

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

CHART_EVENTS: tuple[str, ...] = tuple(kind.TYPE for kind in get_args(MachineEvent))
"""The events that a chart may name: those that the core sends to the machine."""
