"""Retention: whole conversations are forgotten, and what remains still verifies.

A conversation is kept while a kept fork goes on from it, and while its turn is open: somebody may still
resume it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from toolchart.engine.log import record as records
from toolchart.engine.log.record import Record
from toolchart.states.events import Forked
from toolchart.states.ports import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Aged:
    """One conversation, as retention sees it."""

    conversation: str
    newest_at: str
    """When its newest record was written."""
    parent: str | None
    """The conversation that it goes on from."""
    open: bool
    """Whether its turn is not over, as far as its newest record tells."""


def aged(store: Store) -> list[Aged]:
    """Every conversation that can be read, the one that was written last at the end."""
    found = [one for name in store.conversations() if (one := _aged(store, name)) is not None]
    return sorted(found, key=lambda one: one.newest_at)


def _aged(store: Store, conversation: str) -> Aged | None:
    newest, first = store.last(conversation), next(iter(store.read(conversation)), None)
    if newest is None or first is None:
        return None
    last = records.parse(newest[1], newest[0], conversation)
    begun = records.parse(first, 0, conversation)
    return Aged(
        conversation=conversation,
        newest_at=last.at,
        parent=begun.event["parent"] if begun.event["type"] == Forked.TYPE else None,
        open=_rests_open(last),
    )


def _rests_open(last: Record) -> bool:
    """Whether the newest record asks for something, or stays where a decision may come."""
    if last.event["type"] in ("configured", "forked"):
        return bool(last.effects)
    return not any(str(effect["type"]).startswith("answer") for effect in last.effects)


def to_prune(
    found: Iterable[Aged], now: datetime, *, older_than: timedelta | None, keep: int | None
) -> list[str]:
    """The conversations that retention lets go.

    Args:
        older_than: age of the newest record from which a conversation may go.
        keep: how many stay whatever their age, the newest first.
    """
    listed = sorted(found, key=lambda one: one.newest_at)
    spared = {one.conversation for one in listed[-keep:]} if keep else set()
    go = {
        one.conversation
        for one in listed
        if one.conversation not in spared
        and not one.open
        and (older_than is None or now - datetime.fromisoformat(one.newest_at) > older_than)
    }
    parents = {one.conversation: one.parent for one in listed}
    for one in listed:
        if one.conversation not in go:
            _spare_past(one.parent, parents, go)
    return [one.conversation for one in listed if one.conversation in go]


def _spare_past(name: str | None, parents: dict[str, str | None], go: set[str]) -> None:
    """What a kept conversation goes on from stays too, however far back."""
    while name is not None:
        go.discard(name)
        name = parents.get(name)
