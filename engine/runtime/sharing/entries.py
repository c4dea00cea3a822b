"""Entries of inboxes: events of people for a conversation that another worker holds."""

from __future__ import annotations

import msgspec

from toolchart.states.core.encoding import decode_event, encode_event_json, read_json
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Cancelled, Decided, Event, UserSaid
from toolchart.states.flows.events import Answered
from toolchart.states.ports import InboxEntry

PersonEvent = Decided | Answered | UserSaid | Cancelled
"""What may stand in an inbox."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One event for a conversation or one of its children."""

    conversation: str
    """The conversation that the event is for."""
    event: PersonEvent


def encode_message(message: Message) -> bytes:
    """The bytes of an entry: the event as it stands in a record, and the conversation."""
    event = msgspec.Raw(encode_event_json(message.event))
    return msgspec.json.encode({"conversation": message.conversation, "event": event})


def decode_message(entry: InboxEntry) -> Message:
    """The event of an entry.

    Raises:
        LogDamaged: it is none that a person may send.
        MissingKey: it is encrypted with a key that is not given.
    """
    if entry.fault is not None:
        raise entry.fault
    try:
        data = read_json(entry.data)
        event: Event = decode_event(data["event"], "")
        if isinstance(event, PersonEvent):
            return Message(conversation=str(data["conversation"]), event=event)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise LogDamaged(f"entry {entry.number} of its inbox cannot be read", conversation=entry.conversation)
