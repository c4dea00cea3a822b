"""The snapshot: where a conversation stands. State plus context, immutable, serialisable.

The core makes a new snapshot from an old one and an event; nothing else does. What grows with the
conversation sits in trails, so that a step costs the same at any length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolchart.states.events import Failed, Outcome, Ruling, Settings
from toolchart.states.messages import Message, Reply, ToolCall, ToolDefinition, Usage
from toolchart.states.persistent_list import Trail
from toolchart.states.quick import quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Where a chart stands: everything on which its next step depends, besides the facts."""

    states: tuple[str, ...]
    """Every active state, ancestors included, in the machine's own order, which is semantic."""
    history: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What history states remember."""
    terminated: bool = False
    """Whether a top-level final state was reached; then no event is taken."""
    label: str = ""
    """The active leaves, joined by `+`: the name that people and records use."""

    def __hash__(self) -> int:
        """By the label, whose hash is remembered: every step looks up its configuration."""
        return hash(self.label)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """One call of the latest reply, on its way to an outcome."""

    call: ToolCall
    key: str = ""
    """Tool and arguments as the model gave them: what makes it the same call again."""
    repeat: int = 1
    """How often this tool was asked for with these arguments in this turn, this time included."""
    ruling: Ruling | None = None
    reason: str | None = None
    decided_at: str = ""
    """When a person or a policy decided it: `at` of that event; empty where nobody had to."""
    outcome: Outcome | None = None
    result: dict[str, Any] | None = None
    shown: str | None = None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedCall:
    """One call of the turn that has ended."""

    tool: str
    params: dict[str, Any] | None
    """The arguments, or None where they could not be parsed."""
    result: dict[str, Any]
    iteration: int
    execution_time_ms: float
    outcome: Outcome
    repeat: int


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One conversation at one moment, between two events.

    Not slotted, unlike the other values: a step makes several snapshots, and copying a `__dict__`
    costs a tenth of what `dataclasses.replace` does on so many fields.
    """

    configuration: Configuration | None = None
    """None before the first turn."""
    tools: tuple[ToolDefinition, ...] = ()
    """Every tool that the agent spec defines."""
    messages: Trail[Message] = field(default_factory=Trail)
    """The conversation without its system prompt; tool messages are findable by call id."""
    digest: str = ""
    """Rolling fingerprint of `messages`."""

    system: str | None = None
    turn: int = 0
    settings: Settings | None = None
    offered: tuple[ToolDefinition, ...] = ()
    """The tools that this turn offers."""
    setup_digest: str = ""
    """Fingerprint of system prompt, model, options and offered tools."""
    started_at: str = ""
    now: str = ""
    """`at` of the newest event."""

    iteration: int = 0
    reply: Reply | None = None
    """The latest reply of the turn."""
    replies: int = 0
    """Replies of the turn."""
    calls: tuple[OpenCall, ...] = ()
    """The calls of the latest reply, in its order."""
    tracked: Trail[TrackedCall] = field(default_factory=Trail)
    """The calls of the turn that have ended, in order."""
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
        """A snapshot that differs in these fields; this one stays as it is."""
        fields = self.__dict__.copy()
        fields.update(changes)
        twin = object.__new__(Snapshot)
        object.__setattr__(twin, "__dict__", fields)
        return twin

    def draft(self, now: str = "") -> Draft:
        """A copy that `evolve` changes in place, for the length of one step; this one stays as it is.

        Args:
            now: `at` of the event that the step is about.
        """
        fields = self.__dict__.copy()
        if now:
            fields["now"] = now
        draft = object.__new__(Draft)
        object.__setattr__(draft, "__dict__", fields)
        return draft

    @property
    def state(self) -> str:
        """Label of the current state; empty before the first turn."""
        return self.configuration.label if self.configuration else ""

    @property
    def over(self) -> bool:
        """Whether a new turn may start: none did yet, or the last one reached a final state."""
        return self.configuration is None or self.configuration.terminated


class Draft(Snapshot):
    """A snapshot in the making: one copy a step instead of one a change. Nobody else has it yet."""

    def evolve(self, **changes: Any) -> Draft:
        """This draft, changed."""
        self.__dict__.update(changes)
        return self

    def done(self) -> Snapshot:
        """The snapshot that the draft has become."""
        object.__setattr__(self, "__class__", Snapshot)
        return self
