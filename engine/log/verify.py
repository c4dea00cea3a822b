"""Verify: is this log what was written?

The chain is checked byte by byte, then the form of every record and event, then that each record is
where it belongs. What a log *means* is replay's question, not this one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

from toolchart.engine.log.record import hash_of
from toolchart.engine.log.record_order import Order
from toolchart.engine.log.replay import Lines, read_chain
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Configured, Forked
from toolchart.states.ports import Store


@runtime_checkable
class Checked(Protocol):
    """A store that can find damage which reading by key does not meet."""

    def check(self) -> None:
        """Walk the store's own form.

        Raises:
            LogDamaged: names the first record that is not where it belongs.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One conversation that verifies."""

    conversation: str
    records: int
    head: str
    """Hash of the newest record."""


def verify_lines(
    lines: Iterable[bytes], conversation: str, *, parents: Lines | None = None
) -> Verified:
    """Check one conversation.

    Args:
        parents: where a fork's parent is looked up; without it the link is not followed.

    Raises:
        LogDamaged: names the first record that is not what was written.
    """
    count, head = 0, ""
    order = Order(conversation)
    for record in read_chain(lines, conversation):
        event = record.decoded()
        order.follow(record)
        if isinstance(event, (Configured, Forked)):
            if isinstance(event, Forked) and parents is not None:
                _check_link(event, conversation, parents)
            if event.conversation != conversation:
                raise LogDamaged(
                    f"it belongs to conversation {event.conversation!r}",
                    conversation=conversation,
                    seq=record.seq,
                )
        count, head = record.seq + 1, record.hash
    if not count:
        raise LogDamaged("it has no records", conversation=conversation, seq=0)
    return Verified(conversation=conversation, records=count, head=head)


def _check_link(event: Forked, conversation: str, parents: Lines) -> None:
    """The record that a fork goes on from is there, and is the one that it was."""
    line = next(islice(parents(event.parent), event.seq, None), None)
    if line is None or hash_of(line) != event.head:
        raise LogDamaged(
            f"record {event.seq} of conversation {event.parent!r}, from which it goes on, is not there",
            conversation=conversation,
            seq=0,
        )


def verify_store(
    store: Store, conversations: Iterable[str] | None = None
) -> Iterator[Verified | LogDamaged]:
    """Every conversation, or the given ones, each verified or with its damage.

    A store that can look at its own ground (`check`) does so too: what a reader by key does not meet
    is damage all the same.
    """
    hidden: LogDamaged | None = None
    if isinstance(store, Checked):
        try:
            store.check()
        except LogDamaged as damage:
            hidden = damage
    for conversation in store.conversations() if conversations is None else conversations:
        try:
            verified = verify_lines(store.read(conversation), conversation, parents=store.read)
            if hidden is not None and hidden.conversation == conversation:
                raise hidden
            yield verified
        except LogDamaged as damage:
            yield damage
    if hidden is not None and hidden.conversation is None:
        yield hidden
