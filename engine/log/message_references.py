"""What a record says beyond its transition: the new messages, the ids of calls, and the end of the turn.

With it a reader needs no core: it knows what the model heard and said, whatever rules were in force. The text
of a message stands once, in the event that brought it. `engine/log/reading/transcript.py` reads the
references back, and lists their forms.
"""

from __future__ import annotations

from typing import Any

import msgspec

from toolchart.states.core.encoding import encode
from toolchart.states.core.step import Step
from toolchart.states.events import AgentFinished, AgentRested, Event, Replied, ToolFinished, TurnStarted
from toolchart.states.flows.results import build_agent_message
from toolchart.states.messages import Message
from toolchart.states.snapshot import Snapshot, TurnError


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
    before, after = new_step.before, new_step.snapshot
    configuration = after.configuration
    if before is None or configuration is None or not (configuration.terminated or after.ended_by):
        return None  # most steps, at the smallest cost
    if not after.is_over or (before.is_over and not isinstance(new_step.event, TurnStarted)):
        return None
    return RecordedEnd(by=after.ended_by or "", limit=after.limit_reached or "", error=after.error)


def list_message_references(new_step: Step) -> list[Any]:
    """References to the messages that a step added, in order."""
    before, event, messages = new_step.before, new_step.event, new_step.snapshot.messages
    if before is None or event is None or messages is before.messages:
        return []
    count = len(before.messages)
    if len(messages) == count + 1:
        if type(event) is Replied and not before.calls and _is_message(before, event):
            return ["reply"]  # most replies
        if type(event) is ToolFinished and event.call_id and len(before.calls) == 1:
            return [{"result": event.call_id}]  # the only call of a reply
    references: list[Any] = []
    if isinstance(event, TurnStarted):
        # Results of calls that the turn before left open, the history, the inbox and the message come first.
        while before.calls and messages[count].role == "tool":
            references.append(encode(messages[count]))
            count += 1
        references += ["history"] if event.history else []
        references += ["inbox"] * len(before.inbox) + ["message"]
        count += len(event.history) + len(before.inbox) + 1
    finished_ids = _list_finished_ids(before, event)
    for index in range(count, len(messages)):
        reference = _refer_to_message(messages[index], event, finished_ids, before)
        if reference == "reply" and "reply" in references:
            # A reply brings one message. A second one with the same words is the core's own.
            reference = encode(messages[index])
        references.append(reference)
    return references


def _list_finished_ids(before: Snapshot, event: Event) -> list[str]:
    """Ids of the open calls whose result came with an event."""
    ids = [open_call.call.id for open_call in before.calls if open_call.outcome is not None]
    return [*ids, event.call_id] if isinstance(event, ToolFinished) else ids


def _is_message(before: Snapshot, event: Replied) -> bool:
    """Whether a reply is a message of the conversation, and not a result."""
    for effect in before.open_effects:
        if effect.id == event.effect:
            return not effect.result
    return True


def _refer_to_message(message: Message, event: Event, finished_ids: list[str], before: Snapshot) -> Any:
    if message.role == "user":
        return "inbox"
    if message.role == "tool" and message.tool_call_id in finished_ids:
        return {"result": message.tool_call_id}
    if message.role == "assistant" and isinstance(event, Replied) and message.content == event.reply.content:
        return "reply" if _is_message(before, event) else encode(message)
    if isinstance(event, AgentFinished | AgentRested) and message == build_agent_message(event.content):
        return "agent"
    return encode(message)


def list_given_call_ids(new_step: Step) -> list[str]:
    """The ids of a reply's calls; empty where they are those of the reply."""
    event = new_step.event
    if type(event) is not Replied or not event.reply.tool_calls or new_step.is_late:
        return []
    ids = [call.id for call in event.reply.tool_calls]
    if ids == [open_call.call.id for open_call in new_step.snapshot.calls]:
        return []  # most replies: their calls are open now
    if new_step.before is not None and not _is_message(new_step.before, event):
        return []
    messages, index = new_step.snapshot.messages, -1
    while not messages[index].tool_calls:  # the core may have written more, at a limit for instance
        index -= 1
    given_ids = [call.id for call in messages[index].tool_calls]
    return [] if given_ids == ids else given_ids
