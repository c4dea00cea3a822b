"""What a record says beyond its transition: the new messages and the end of the turn.

With it a reader needs no core: it knows what the model heard and said, whatever rules were in force. The text
of a message stands once, in the event that brought it, and the step says which event that is.
`engine/log/reading/transcript.py` reads the references back, and lists their forms.
"""

from __future__ import annotations

from typing import Any

import msgspec

from toolchart.states.core.encoding import encode
from toolchart.states.core.step import Step
from toolchart.states.events import AgentFinished, AgentRested, Event
from toolchart.states.flows.results import build_agent_message
from toolchart.states.messages import Message
from toolchart.states.snapshot import TurnError


class RecordedEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a turn ended."""

    by: str = ""
    """The effect that ended it, or the core's reason; empty where the chart terminated without an answer."""
    limit: str = ""
    """The limit that was reached."""
    error: TurnError | None = None
    """Why it ended in error."""


def describe_turn_end(new_step: Step) -> RecordedEnd | None:
    """How the turn ended in this step; None where it did not."""
    if not new_step.ends_turn:
        return None
    after = new_step.snapshot
    return RecordedEnd(by=after.ended_by or "", limit=after.limit_reached or "", error=after.error)


def list_message_references(new_step: Step) -> list[Any]:
    """References to the messages that a step added, in order; what the core wrote stands there in full."""
    references = []
    for source in new_step.messages:
        if type(source) is Message:
            source = _refer_to_words(source, new_step.event)
        references.append(source)
    return references


def _refer_to_words(message: Message, event: Event | None) -> Any:
    """A message of the core in full; by its event where a chart answers with what an agent has just said."""
    if isinstance(event, AgentFinished | AgentRested) and message == build_agent_message(event.content):
        return "agent"
    return encode(message)
