"""The snapshot: the state of one conversation as an immutable value.

It is a configuration (the active states of the chart) and a context (messages, calls, counters). Only the
core makes new snapshots. What grows with the conversation is stored in persistent lists, so a step costs
the same at any length.
"""

from __future__ import annotations

from typing import Any

import msgspec

from toolchart.states.events import Failed, Outcome, Ruling, Settings
from toolchart.states.messages import Message, Reply, ToolCall, ToolDefinition, Usage
from toolchart.states.persistent_list import PersistentList


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The active states of a chart and all else, besides the facts, that decides its next step."""

    states: tuple[str, ...]
    """Every active state, ancestors included, in the machine's order. The order has a meaning."""
    history: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What the history states remember."""
    terminated: bool = False
    """Whether a top-level final state was reached. Then every event is illegal."""
    label: str = ""
    """The active leaves, joined by `+`: the name of the state in records and output."""

    def __hash__(self) -> int:
        """By the label, whose hash Python caches, because every step looks up its configuration."""
        return hash(self.label)


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the latest reply, from request to outcome."""

    call: ToolCall
    key: str = ""
    """Tool and arguments as the model sent them; equal keys are the same call."""
    repeat: int = 1
    """How often this tool was requested with these arguments in this turn, including this time."""
    ruling: Ruling | None = None
    reason: str | None = None
    decided_at: str = ""
    """Time of the decision of a person or a policy; empty if none was needed."""
    outcome: Outcome | None = None
    result: dict[str, Any] | None = None
    shown: str | None = None


class TrackedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the turn that has its outcome."""

    tool: str
    params: dict[str, Any] | None
    """The arguments, or None if they could not be parsed."""
    result: dict[str, Any]
    iteration: int
    execution_time_ms: float
    outcome: Outcome
    repeat: int


class SnapshotFields(msgspec.Struct):
    """The fields that a snapshot and its builder share.

    Not keyword-only, unlike the other values: a step copies all fields twice, and by position a copy costs an
    eighth of what it costs by keyword. Everything else names the fields.
    """

    configuration: Configuration | None = None
    """None before the first turn."""
    tools: tuple[ToolDefinition, ...] = ()
    """Every tool that the agent spec defines."""
    messages: PersistentList[Message] = msgspec.field(default_factory=PersistentList[Message])
    """The conversation without its system prompt. Tool messages can be found by call id."""
    digest: str = ""
    """Hash chain over `messages`."""

    system: str | None = None
    turn: int = 0
    settings: Settings | None = None
    offered_tools: tuple[ToolDefinition, ...] = ()
    """The tools that this turn offers."""
    setup_digest: str = ""
    """Hash of system prompt, model, options and offered tools."""
    started_at: str = ""
    now: str = ""
    """`at` of the newest event."""

    iteration: int = 0
    reply: Reply | None = None
    """The latest reply of the turn."""
    replies: int = 0
    """Replies of the turn."""
    calls: tuple[OpenCall, ...] = ()
    """The calls of the latest reply, in its order; empty once they are closed."""
    tracked_calls: PersistentList[TrackedCall] = msgspec.field(default_factory=PersistentList[TrackedCall])
    """The calls of the turn that have their outcome, in order."""
    failure: Failed | None = None
    """The latest failure, until a reply arrives."""
    attempt: int = 0
    """Model calls that failed since the latest reply."""
    tools_sent: bool = False
    """Whether the latest model call offered tools."""
    tool_only_streak: int = 0
    approved: int = 0
    denied: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    cancelled: bool = False
    limit_reached: str | None = None
    """The limit at which the turn ended: `max_iterations` or the name of a budget."""
    ended_by: str | None = None
    """The effect that ended the turn: `answer`, `answer_at_limit` or `answer_with_error`."""
    warnings: tuple[str, ...] = ()
    answer: str | None = None
    """The text that ended the turn."""

    @property
    def state(self) -> str:
        """Label of the current state; empty before the first turn."""
        return self.configuration.label if self.configuration else ""

    @property
    def is_over(self) -> bool:
        """Whether a new turn may start: none did yet, or the last one reached a final state."""
        return self.configuration is None or self.configuration.terminated


class Snapshot(SnapshotFields, frozen=True):  # type: ignore[misc]  # msgspec allows it; the builder is not frozen
    """The state of one conversation between two events. It never changes: a step makes a new one."""


class SnapshotBuilder(SnapshotFields):
    """The working copy of a snapshot during one step.

    The core changes its fields in place, so that a step costs one copy and not one per change. Nothing
    outside the core sees a builder.
    """

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> SnapshotBuilder:
        """A working copy; the snapshot does not change."""
        return cls(*msgspec.structs.astuple(snapshot))

    def build(self) -> Snapshot:
        """The finished snapshot. Later changes of the builder do not reach it."""
        return Snapshot(*msgspec.structs.astuple(self))
