"""Retention: selects old conversations to delete, so that the remaining log still verifies.

Only whole conversations are deleted. A conversation stays while a fork of it stays, while its turn
is open and can be resumed, and while a worker has it. It and the agents that it runs stay or go together.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.family import find_parent
from toolchart.engine.log.read_records import ReadRecord, parse_line
from toolchart.engine.log.record import FORMAT
from toolchart.engine.log.stores.base import LISTED_AT_ONCE
from toolchart.states.errors import LeaseHeld
from toolchart.states.events import Forked
from toolchart.states.ports import Store


class ConversationAge(msgspec.Struct, frozen=True, kw_only=True):
    """The age of a conversation, and what keeps it from deletion."""

    conversation: str
    newest_at: str
    """Time of its newest record: RFC 3339, UTC."""
    parent: str | None
    """The conversation that it was forked from, or that runs it as a child."""
    is_child: bool = False
    """Whether its parent runs it: then both stay or both go."""
    is_open: bool
    """Whether its turn is open, judged by its newest record alone."""
    is_held: bool = False
    """Whether a worker works on it now."""


def list_conversation_ages(store: Store) -> list[ConversationAge]:
    """The ages of all conversations that have records, the oldest first."""
    held = {lease.conversation for lease in store.list_leases()}
    ages = [_read_conversation_age(store, *ends) for ends in store.read_ends()]
    if held:
        ages = [replace(age, is_held=age.conversation in held) for age in ages]
    return sorted(ages, key=lambda age: age.newest_at)


def _read_conversation_age(
    store: Store, conversation: str, first: bytes, seq: int, newest: bytes
) -> ConversationAge:
    """The age of one conversation, from its first line, and number and line of its newest record."""
    age = _read_age_quickly(conversation, first, newest)
    if age is not None:
        return age
    first = next(iter(store.read_lines(conversation)))
    seq, newest = store.read_last_line(conversation) or (0, first)
    last = parse_line(newest, seq, conversation)
    header = parse_line(first, 0, conversation)
    link = find_parent(header)
    child_of = str(link["conversation"]) if link is not None else None
    return ConversationAge(
        conversation=conversation,
        newest_at=last.at,
        parent=header.event["parent"] if header.event["type"] == Forked.TYPE else child_of,
        is_child=child_of is not None,
        is_open=_is_turn_open(_find_decisive_record(store, conversation, last)),
    )


class _QuickEvent(msgspec.Struct):
    """What an age needs of an event."""

    type: str
    format: int = 0
    parent: Any = None


class _QuickLine(msgspec.Struct):
    """What an age needs of a line of format 2."""

    at: str
    event: _QuickEvent
    asks: tuple[msgspec.Raw, ...] = ()
    late: bool = False
    ended: Any = None


_decode_quickly = msgspec.json.Decoder(_QuickLine).decode


def _read_age_quickly(conversation: str, first: bytes, newest: bytes) -> ConversationAge | None:
    """The age of a conversation of format 2 that begins and ends as most do; None for any other."""
    try:
        header, last = _decode_quickly(first), _decode_quickly(newest)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    parent = header.event.parent
    is_usual = header.event.type == "configured" and header.event.format == FORMAT
    if not is_usual or last.late or last.event.type in _QUIET_EVENTS:
        return None
    child_of = str(parent["conversation"]) if isinstance(parent, dict) else None
    begins = last.event.type == "configured"
    return ConversationAge(
        conversation=conversation,
        newest_at=last.at,
        parent=child_of,
        is_child=child_of is not None,
        is_open=bool(last.asks) if begins else last.ended is None,
    )


_QUIET_EVENTS = ("continued", "migrated")
"""Events that open and end no turn."""


def _find_decisive_record(store: Store, conversation: str, last: ReadRecord) -> ReadRecord:
    """The newest record that says whether a turn is open: not a late answer or a quiet one."""
    if not (last.is_late or last.event_type in _QUIET_EVENTS):
        return last
    lines = enumerate(store.read_lines(conversation))
    records = (parse_line(line, seq, conversation) for seq, line in lines)
    decisive_records = (
        record for record in records if not (record.is_late or record.event_type in _QUIET_EVENTS)
    )
    return deque(decisive_records, maxlen=1)[0]


def _is_turn_open(last: ReadRecord) -> bool:
    """Whether the newest record leaves an effect open or waits for a decision."""
    if last.event["type"] in ("configured", "forked"):
        return bool(last.asks)
    return not last.ends_turn


OPEN_TURN = "a turn is open"
HELD = "somebody works on it"


def find_kept(
    conversations: Iterable[ConversationAge], now: datetime, *, older_than: timedelta | None, keep: int | None
) -> dict[str, str]:
    """The conversations that stay, each with the reason in a few words.

    Args:
        older_than: only conversations whose newest record is older may be deleted.
        keep: number of newest conversations that always stay.
    """
    ages = sorted(conversations, key=lambda age: age.newest_at)
    newest = {age.conversation for age in ages[-keep:]} if keep else set()
    keep_reasons: dict[str, str] = {}
    for age in ages:
        if age.conversation in newest:
            keep_reasons[age.conversation] = "among the newest"
        elif older_than is not None and now - datetime.fromisoformat(age.newest_at) <= older_than:
            keep_reasons[age.conversation] = "not old enough"
        elif age.is_held:
            keep_reasons[age.conversation] = HELD
        elif age.is_open:
            keep_reasons[age.conversation] = OPEN_TURN
    parents = {age.conversation: age.parent for age in ages}
    children = defaultdict(list)
    for age in ages:
        if age.is_child:
            children[age.parent].append(age.conversation)
    # A kept conversation keeps what it was forked from or works for, and that keeps all of its children.
    reached = list(keep_reasons)
    while reached:
        name = reached.pop()
        parent = parents.get(name)
        relatives = [(child, "its parent is kept") for child in children[name]]
        if parent in parents:
            relatives.append((parent, "a fork or child of it is kept"))
        for relative, reason in relatives:
            if relative not in keep_reasons:
                keep_reasons[relative] = reason
                reached.append(relative)
    return keep_reasons


# -- deleting --------------------------------------------------------------------------------------


def delete_conversations(store: Store, names: Sequence[str]) -> Iterator[str]:
    """Delete conversations, many in each commit; yields each when it is gone.

    One that a worker has taken meanwhile stays, and is not yielded.
    """
    for start in range(0, len(names), LISTED_AT_ONCE):
        page = names[start : start + LISTED_AT_ONCE]
        try:
            store.delete_many(page)
        except LeaseHeld:
            yield from _delete_one_by_one(store, page)
        else:
            yield from page


def _delete_one_by_one(store: Store, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        try:
            store.delete(name)
        except LeaseHeld:
            continue
        yield name
