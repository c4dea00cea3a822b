"""Listing: what is done with a listing of conversations, for all stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolchart.states.errors import LeaseHeld
from toolchart.states.ports import Store

LISTED_AT_ONCE = 100
"""Conversations that are listed, or deleted, at once."""


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
