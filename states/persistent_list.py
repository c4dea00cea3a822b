"""A persistent (immutable) list with an append in constant time.

A snapshot holds every message of its conversation. Copying a tuple for each new message would make an
iteration more expensive as the conversation grows. So snapshots share one growing list, and each sees its
own prefix of it. An append to the newest view extends the shared list. An append to an older view (a fork)
copies it. The items of a view never change.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

Item = TypeVar("Item")

# One lock for all lists. It is held for two list operations, and creating a lock per list would cost more
# than waiting for this one.
_append_lock = threading.Lock()


class PersistentList(Sequence[Item], Generic[Item]):
    """A persistent list with O(1) append and O(1) lookup of the newest item of a key."""

    __slots__ = ("_earlier_index", "_item_keys", "_items", "_keys", "_length")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items: list[Item] = list(items)
        self._item_keys: list[str | None] = [None] * len(self._items)
        """The key of each item."""
        self._keys: dict[str, int] = {}
        """Index of the newest item of each key."""
        self._earlier_index: dict[int, int] = {}
        """Index of an item to the index of the previous item of the same key."""
        self._length = len(self._items)

    def append(self, item: Item, key: str | None = None) -> PersistentList[Item]:
        """A list with one more item, which `find_newest(key)` finds; this list does not change."""
        with _append_lock:
            source_list = self if len(self._items) == self._length else self._copy()
            source_list._items.append(item)
            source_list._item_keys.append(key)
            if key is not None:
                earlier_index = source_list._keys.get(key)
                if earlier_index is not None:
                    source_list._earlier_index[self._length] = earlier_index
                source_list._keys[key] = self._length
        extended_list: PersistentList[Item] = PersistentList.__new__(PersistentList)
        extended_list._items, extended_list._keys, extended_list._earlier_index = (
            source_list._items,
            source_list._keys,
            source_list._earlier_index,
        )
        extended_list._item_keys = source_list._item_keys
        extended_list._length = self._length + 1
        return extended_list

    def find_newest(self, key: str) -> Item | None:
        """The last item of this list that was appended with `key`, or None."""
        index = self._find_newest_index(key)
        return None if index is None else self._items[index]

    def list_keyed_items(self, start: int = 0) -> list[tuple[str | None, Item]]:
        """The items from an index on, each with its key."""
        indexes = range(start, self._length)
        return [(self._item_keys[index], self._items[index]) for index in indexes]

    def _find_newest_index(self, key: str) -> int | None:
        index = self._keys.get(key)
        while index is not None and index >= self._length:  # appended by a newer view
            index = self._earlier_index.get(index)
        return index

    def _copy(self) -> PersistentList[Item]:
        new_list: PersistentList[Item] = PersistentList(self._items[: self._length])
        new_list._item_keys = self._item_keys[: self._length]
        for key in self._keys:
            index = self._find_newest_index(key)
            if index is not None:
                new_list._keys[key] = index
        new_list._earlier_index = {
            index: earlier_index
            for index, earlier_index in self._earlier_index.items()
            if index < self._length
        }
        return new_list

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        items = self._items
        return (items[index] for index in range(self._length))

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self._items[index] for index in range(*index.indices(self._length))]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._items[index]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, PersistentList) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"PersistentList({list(self)!r})"
