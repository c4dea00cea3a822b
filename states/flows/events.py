"""Events that answer the effects of flows: functions, people, counts and child conversations."""

from __future__ import annotations

from typing import Any, ClassVar

from toolchart.states.events import Answering
from toolchart.states.messages import Usage


class Returned(Answering, frozen=True, kw_only=True, tag="returned"):
    """A function returned."""

    TYPE: ClassVar[str] = "returned"
    value: Any = None
    """What it returned, as JSON data."""


class Answered(Answering, frozen=True, kw_only=True, tag="answered"):
    """A person answered a question."""

    TYPE: ClassVar[str] = "answered"
    content: dict[str, Any]
    """The fields of the form; they fit its schema."""
    by: str | None = None
    """Who answered."""


class Counted(Answering, frozen=True, kw_only=True, tag="counted"):
    """The tokens of the conversation were counted."""

    TYPE: ClassVar[str] = "counted"
    tokens: int
    """What the next request takes, without messages that are added after it."""
    messages: int
    """How many messages of the conversation were counted, from the first one on."""
    source: str
    """Who counted: `host` or `estimate`."""
    problem: str = ""
    """Why the host did not count, where it was asked."""


class AgentAnswering(Answering, frozen=True, kw_only=True):
    """The base of events that tell how a child conversation went."""

    item: int = 0
    """Index of the item that the child works on; 0 where there is one child."""
    conversation: str
    """Id of the child conversation."""
    head: str
    """Hash of the newest record of the child, so that a change of its log is detected."""
    usage: Usage | None = None
    """What the child used, its own children included, since the event before."""


class AgentFinished(AgentAnswering, frozen=True, kw_only=True, tag="agent_finished"):
    """The turn of a child conversation ended with an answer."""

    TYPE: ClassVar[str] = "agent_finished"
    content: str = ""
    """The child's answer."""
    output: dict[str, Any] | None = None
    """What the answer says under the output schema of the effect."""
    limit_reached: str | None = None
    """The limit that ended the child's turn."""


class AgentFailed(AgentAnswering, frozen=True, kw_only=True, tag="agent_failed"):
    """The turn of a child conversation ended in error, or could not begin."""

    TYPE: ClassVar[str] = "agent_failed"
    head: str = ""
    """Hash of the newest record of the child; empty where it has none."""
    kind: str
    """One of `FAILURE_KINDS`, or another kind of `TurnError`."""
    message: str


class AgentRested(AgentAnswering, frozen=True, kw_only=True, tag="agent_rested"):
    """A child conversation waits for the next message of the user."""

    TYPE: ClassVar[str] = "agent_rested"
    content: str = ""
    """What the child said to the user."""
