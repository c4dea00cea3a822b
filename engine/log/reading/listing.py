"""Listing: finds conversations by the beginnings of their ids and reads them page by page.

A store with the methods of `IndexedStore` finds them by its indexes, so that a list costs what it shows. Any
other store is read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from toolchart.states.errors import LeaseHeld
from toolchart.states.ports import Store

Item = TypeVar("Item")

_PAGE_SIZE = 100


@runtime_checkable
class IndexedStore(Protocol):
    """A store with indexes over its conversations."""

    def list_page(self, limit: int, before: str | None = None) -> Sequence[str]:
        """The ids of the newest conversations, the newest first.

        Args:
            before: only those that are older than this one.
        """
        ...

    def find_names(self, beginning: str, limit: int) -> Sequence[str]:
        """The ids that begin with a text, sorted."""
        ...

    def delete_many(self, conversations: Sequence[str]) -> None:
        """Delete whole conversations in one transaction."""
        ...


@runtime_checkable
class EndsStore(Protocol):
    """A store that reads the first and last records of all conversations in few queries."""

    def read_ends(self) -> Iterator[tuple[str, bytes, int, bytes]]:
        """Of each conversation: id, first line, number of the newest record, its line.

        Large values may be left out: null stands in their place.
        """
        ...


@runtime_checkable
class RecencyStore(Protocol):
    """A store that knows in which conversations workers were at work last."""

    def list_last_worked_on(self, limit: int) -> Sequence[str]:
        """Ids of conversations, the one whose lease was taken last first; conversations without one are not
        among them."""
        ...


@runtime_checkable
class ShrinkingStore(Protocol):
    """A store whose file keeps the space of deleted conversations until it is told to shrink."""

    def vacuum(self) -> None:
        """Give the space back to the system."""
        ...


@runtime_checkable
class SampledStore(Protocol):
    """A store that finds a few of its conversations quickly."""

    def list_sample(self) -> Sequence[str]:
        """The ids of the `SAMPLE_SIZE` newest conversations, the newest first, and of the oldest one."""
        ...


SAMPLE_SIZE = 3
"""Newest conversations in a sample: so many that one which somebody has planted does not decide."""


def list_sample(store: Store) -> list[str]:
    """A few conversations: the newest, the newest first, and then the oldest one."""
    if isinstance(store, SampledStore):
        return list(dict.fromkeys(store.list_sample()))
    return pick_sample(list(store.list_conversations()))


def pick_sample(items: Sequence[Item]) -> list[Item]:
    """The sample of all items, which come the oldest first."""
    return list(dict.fromkeys([*items[: -SAMPLE_SIZE - 1 : -1], *items[:1]]))


def iterate_newest_first(store: Store, before: str | None = None) -> Iterator[str]:
    """The ids of all conversations, the newest first, read as far as they are asked for.

    Args:
        before: only those that are older than this one; none where it is unknown.
    """
    if not isinstance(store, IndexedStore):
        names = list(store.list_conversations())
        if before is not None:
            names = names[: names.index(before)] if before in names else []
        yield from reversed(names)
        return
    page = store.list_page(_PAGE_SIZE, before)
    while page:
        yield from page
        page = store.list_page(_PAGE_SIZE, page[-1])


def list_recent(store: Store) -> list[str]:
    """The conversations that may have the newest record: the newest hundred, and the hundred that were worked
    on last; all of a store that knows neither."""
    if not isinstance(store, IndexedStore) or not isinstance(store, RecencyStore):
        return list(store.list_conversations())
    return list(dict.fromkeys([*store.list_last_worked_on(_PAGE_SIZE), *store.list_page(_PAGE_SIZE)]))


def find_names(store: Store, beginning: str) -> list[str]:
    """All ids that begin with a text."""
    if isinstance(store, IndexedStore):
        return list(store.find_names(beginning, 2**31 - 1))
    return [name for name in store.list_conversations() if name.startswith(beginning)]


def read_ends(store: Store) -> Iterator[tuple[str, bytes, int, bytes]]:
    """Of each conversation with records: id, first line, number of the newest record, its line."""
    if isinstance(store, EndsStore):
        yield from store.read_ends()
        return
    for name in store.list_conversations():
        newest = store.read_last_line(name)
        first = next(iter(store.read_lines(name)), None)
        if newest is not None and first is not None:
            yield name, first, *newest


def delete_conversations(store: Store, names: Sequence[str]) -> Iterator[str]:
    """Delete conversations, many in each transaction where the store can; yields each when it is gone.

    One that a worker has taken meanwhile stays, and is not yielded.
    """
    for start in range(0, len(names), _PAGE_SIZE):
        page = names[start : start + _PAGE_SIZE]
        if isinstance(store, IndexedStore):
            try:
                store.delete_many(page)
            except LeaseHeld:
                yield from _delete_one_by_one(store, page)
            else:
                yield from page
        else:
            yield from _delete_one_by_one(store, page)


def _delete_one_by_one(store: Store, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        try:
            store.delete(name)
        except LeaseHeld:
            continue
        yield name


def shrink_store(store: Store) -> None:
    """Give the space of deleted conversations back to the system, where the store keeps it for itself."""
    if isinstance(store, ShrinkingStore):
        store.vacuum()
