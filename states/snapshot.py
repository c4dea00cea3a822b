"""The snapshot: the state of one conversation as an immutable value.

It is a configuration (the active states of the chart) and a context (messages, calls, counters). Only the
core makes new snapshots. What grows with the conversation is stored in persistent lists, so a step costs
the same at any length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolchart.states.events import Failed, Outcome, Ruling, Settings
from toolchart.states.messages import Message, Reply, ToolCall, ToolDefinition, Usage
from toolchart.states.persistent_list import PersistentList
from toolchart.states.quick import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
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


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
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


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedCall:
    """One call of the turn that has its outcome."""

    tool: str
    params: dict[str, Any] | None
    """The arguments, or None if they could not be parsed."""
    result: dict[str, Any]
    iteration: int
    execution_time_ms: float
    outcome: Outcome
    repeat: int


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of one conversation between two events.

    Unlike the other values it has no slots: a step makes several snapshots, and copying a `__dict__` costs a
    tenth of `dataclasses.replace` with this many fields.
    """

    configuration: Configuration | None = None
    """None before the first turn."""
    tools: tuple[ToolDefinition, ...] = ()
    """Every tool that the agent spec defines."""
    messages: PersistentList[Message] = field(default_factory=PersistentList)
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
    tracked_calls: PersistentList[TrackedCall] = field(default_factory=PersistentList)
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
    usage: Usage = field(default_factory=Usage)
    cancelled: bool = False
    limit_reached: str | None = None
    """The limit at which the turn ended: `max_iterations` or the name of a budget."""
    ended_by: str | None = None
    """The effect that ended the turn: `answer`, `answer_at_limit` or `answer_with_error`."""
    warnings: tuple[str, ...] = ()
    answer: str | None = None
    """The text that ended the turn."""

    def evolve(self, **changes: Any) -> Snapshot:
        """A copy with these fields changed; this snapshot does not change."""
        fields = self.__dict__.copy()
        fields.update(changes)
        copy = object.__new__(Snapshot)
        object.__setattr__(copy, "__dict__", fields)
        return copy

    def draft(self, now: str = "") -> SnapshotBuilder:
        """A working copy for one step, which `evolve` changes in place; this snapshot does not change.

        Args:
            now: `at` of the event of the step.
        """
        fields = self.__dict__.copy()
        if now:
            fields["now"] = now
        draft = object.__new__(SnapshotBuilder)
        object.__setattr__(draft, "__dict__", fields)
        return draft

    @property
    def state(self) -> str:
        """Label of the current state; empty before the first turn."""
        return self.configuration.label if self.configuration else ""

    @property
    def is_over(self) -> bool:
        """Whether a new turn may start: none did yet, or the last one reached a final state."""
        return self.configuration is None or self.configuration.terminated


class SnapshotBuilder(Snapshot):
    """The working copy of a snapshot during one step: one copy per step instead of one per change."""

    def evolve(self, **changes: Any) -> SnapshotBuilder:
        """This builder, with these fields changed in place."""
        self.__dict__.update(changes)
        return self

    def done(self) -> Snapshot:
        """The finished snapshot; the builder must not be used afterwards."""
        object.__setattr__(self, "__class__", Snapshot)
        return self
