"""A persistent (immutable) list with an append in constant time.

A snapshot holds every message of its conversation. Copying a tuple for each new message would make an
iteration more expensive as the conversation grows. So snapshots share one growing list, and each sees its
own prefix of it: a persistent list is a reference to the shared items and a length. An append to the newest
view extends the shared items. An append to an older view (a fork) copies them. The items of a view never
change.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

Item = TypeVar("Item")

# One lock for all lists. It is held for two list operations, and creating a lock per list would cost more
# than waiting for this one.
_append_lock = threading.Lock()


class _SharedItems(Generic[Item]):
    """What all views of one list share. It only grows."""

    __slots__ = ("earlier", "items", "keys", "newest")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self.items: list[Item] = list(items)
        self.keys: list[str | None] = [None] * len(self.items)
        """The key of each item."""
        self.newest: dict[str, int] = {}
        """Index of the newest item of each key."""
        self.earlier: dict[int, int] = {}
        """Index of an item to the index of the previous item of the same key."""

    def copy(self, length: int) -> _SharedItems[Item]:
        """The first items with their keys."""
        shared = _SharedItems(self.items[:length])
        shared.keys = self.keys[:length]
        shared.newest = {key: index for index, key in enumerate(shared.keys) if key is not None}
        shared.earlier = {index: earlier for index, earlier in self.earlier.items() if index < length}
        return shared


class PersistentList(Sequence[Item], Generic[Item]):
    """A persistent list with O(1) append and O(1) lookup of the newest item of a key."""

    __slots__ = ("_length", "_shared")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._shared = _SharedItems(items)
        self._length = len(self._shared.items)

    def append(self, item: Item, key: str | None = None) -> PersistentList[Item]:
        """A list with one more item, which `find_newest(key)` finds; this list does not change."""
        extended_list: PersistentList[Item] = PersistentList.__new__(PersistentList)
        shared, length = self._shared, self._length
        with _append_lock:
            if len(shared.items) != length:  # a newer view has appended
                shared = shared.copy(length)
            if key is not None:
                if key in shared.newest:
                    shared.earlier[length] = shared.newest[key]
                shared.newest[key] = length
            shared.keys.append(key)
            shared.items.append(item)
        extended_list._shared, extended_list._length = shared, length + 1
        return extended_list

    def find_newest(self, key: str) -> Item | None:
        """The last item of this list that was appended with `key`, or None."""
        shared = self._shared
        index = shared.newest.get(key)
        while index is not None and index >= self._length:  # appended by a newer view
            index = shared.earlier.get(index)
        return None if index is None else shared.items[index]

    def list_keyed_items(self, start: int = 0) -> list[tuple[str | None, Item]]:
        """The items from an index on, each with its key."""
        shared, end = self._shared, self._length
        return list(zip(shared.keys[start:end], shared.items[start:end], strict=True))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        items = self._shared.items
        return (items[index] for index in range(self._length))

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            items = self._shared.items
            return items[start:stop:step] if step > 0 else [items[i] for i in range(start, stop, step)]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._shared.items[index]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, PersistentList) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"PersistentList({list(self)!r})"
