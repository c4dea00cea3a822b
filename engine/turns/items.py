"""Items: what may come into a conversation, and how it stands in the inbox of the store.

In: an event of a person, with the conversation that it is for. Out: the bytes of an entry, and back. An entry
lies there while another worker holds the conversation, and that worker takes it (`lease.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.conversation_ids import MAX_ID_LENGTH, SHORTER
from toolchart.engine.log.family import Heading
from toolchart.engine.runtime.parts import NO_HOOKS, TurnHooks, TurnOptions
from toolchart.states.content import add_text
from toolchart.states.core.encoding import decode_event, make_plain_event, read_json
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.events import Answered, Cancelled, Decided, Event, Replied, Resumed, UserSaid
from toolchart.states.ports import InboxEntry

if TYPE_CHECKING:
    from toolchart.tools.sources.attachments import Attachment

PersonEvent = Decided | Answered | UserSaid | Cancelled
"""What may stand in an inbox."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One event for a conversation or one of its children."""

    conversation: str
    """The conversation that the event is for. Who sends it may name a parent of that one."""
    event: PersonEvent | Replied | Resumed
    """Two are for a holder in this process only: `Replied`, a late answer of a host, and `Resumed`, that an
    open turn goes on."""
    entry: str = ""
    """Key of the entry of the inbox that it was; empty where it did not lie there."""
    submission: str = ""
    """Key of the submission that a message was; empty where it was none."""
    key: str = ""
    """Where it is left for another worker: what makes it one with an equal item; empty for what its event
    says."""
    question: str | None = None
    """Of an answer: the name of the question, where its sender names one."""
    options: TurnOptions | None = None
    """Of a message that begins a turn with these options where none is open, and whose sender gets the result
    of the turn as it stands. None: it begins one only under the settings of the turn before."""
    is_complete: bool = False
    """Whether such a message has its attachments; they are read only where it goes to an open turn."""
    heading: Heading | None = None
    """Of such a message: owner and tags that the conversation must have."""
    follows: int | None = None
    """Of such a message: the record right after which its turn begins, or not at all."""
    hooks: TurnHooks = NO_HOOKS
    """What the caller in this process watches."""


def list_taken_keys(item: Item) -> list[str]:
    """Keys of what the store has of an item, to be taken out in the commit that records it."""
    return [key for key in (item.entry, item.submission) if key]


def encode_item(item: Item) -> bytes:
    """The bytes of an entry: the event as it stands in a record, and the conversation.

    Raises:
        ValueError: the event does not have the types of its class.
    """
    _, event_data = make_plain_event(item.event)
    return msgspec.json.encode({"conversation": item.conversation, "event": msgspec.Raw(event_data)})


def decode_entry(entry: InboxEntry) -> Item:
    """The item of an entry.

    Raises:
        LogDamaged: its event is none that a person may send.
    """
    try:
        data = read_json(entry.data)
        event: Event = decode_event(data["event"], "")
        if isinstance(event, PersonEvent):
            return Item(conversation=str(data["conversation"]), event=event, entry=entry.key)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise LogDamaged(f"entry {entry.number} of its inbox cannot be read", conversation=entry.conversation)


def build_key(event: Event, unique: str) -> str:
    """The idempotency key of an event: one decision for a call, one answer to a question."""
    if isinstance(event, Cancelled):
        return f"cancelled/{unique}"
    effect = getattr(event, "effect", 0)
    call = getattr(event, "call_id", "")
    return f"{event.TYPE}/{effect}/{call}" if effect else f"{event.TYPE}/{unique}"


def require_same(entry: InboxEntry, event: Event) -> None:
    """Check that an event which was not kept says what the entry with its key says, which waits.

    Raises:
        TurnChanged, SpecError: it says something else.
    """
    waiting = decode_entry(entry).event
    match waiting, event:
        case UserSaid(), UserSaid():
            from toolchart.engine.turns.keys import build_used_key_error

            difference = f"another message, which waits for conversation {entry.conversation!r}"
            raise build_used_key_error(entry.key.partition("/")[2], difference)
        case Decided(), Decided():
            is_same = (waiting.approved, waiting.arguments) == (event.approved, event.arguments)
            act = "approved" if waiting.approved else "rejected"
            first = f"another decision on call {event.call_id!r} came first: {act} by"
        case Answered(), Answered():
            is_same, first = waiting.content == event.content, "another answer came first: it is by"
        case _:
            return
    if not is_same:
        raise SpecError(
            f"{first} {waiting.by or 'somebody'}, and waits for the worker of {entry.conversation!r}",
            hint="nothing was written; the first one holds",
        )


async def build_user_said(
    message: str, attachments: Sequence[Attachment], author: str = "", key: str = ""
) -> UserSaid:
    """The event of a message to an open turn.

    Raises:
        SpecError: the message is no text, its key is none, or an attachment cannot be read.
    """
    from toolchart.engine.runtime.agent import check_message
    from toolchart.tools.sources.attachments import load_attachments

    check_message(message)
    require_key(key)
    parts = add_text(message, await load_attachments(attachments))
    return UserSaid(message=message, parts=parts, author=author, key=key)


def require_key(key: str) -> None:
    """Check the idempotency key of a message; empty is none.

    Raises:
        SpecError: it is no text, or too long.
    """
    if not isinstance(key, str) or len(key) > MAX_ID_LENGTH:
        raise SpecError(f"the key of a message is a text of at most {MAX_ID_LENGTH} characters", hint=SHORTER)


async def complete_message(item: Item) -> Item:
    """A message with its attachments, as an open turn gets it.

    Raises:
        SpecError: the message is no text, or an attachment cannot be read.
    """
    options = item.options
    if options is None or not isinstance(item.event, UserSaid) or item.is_complete:
        return item
    event = item.event
    said = await build_user_said(event.message, options.get("attachments", ()), event.author, event.key)
    return replace(item, event=said, is_complete=True)
