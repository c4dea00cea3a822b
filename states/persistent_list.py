"""An immutable sequence whose append costs the same at any length.

A snapshot holds every message of its conversation. Copying a tuple for each new message would make
an iteration dearer the longer the conversation grows, so snapshots share one growing list and each
sees its own prefix: appending to the newest view extends the list, appending to an older one (a
fork) copies it. Nothing that a view has shown ever changes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

Item = TypeVar("Item")

# One lock for all trails: it is held for two list operations, and a lock per trail would cost more
# to make than this one costs to wait for.
_tip = threading.Lock()


class Trail(Sequence[Item], Generic[Item]):
    """A persistent sequence with O(1) append and O(1) lookup of the newest item of a key."""

    __slots__ = ("_before", "_items", "_keys", "_length")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items: list[Item] = list(items)
        self._keys: dict[str, int] = {}
        """The newest place of each key."""
        self._before: dict[int, int] = {}
        """The place of the same key before this one, where there is one."""
        self._length = len(self._items)

    def append(self, item: Item, key: str | None = None) -> Trail[Item]:
        """A trail with one more item, findable by `key`; this one stays as it is."""
        with _tip:
            base = self if len(self._items) == self._length else self._copy()
            base._items.append(item)
            if key is not None:
                earlier = base._keys.get(key)
                if earlier is not None:
                    base._before[self._length] = earlier
                base._keys[key] = self._length
        grown: Trail[Item] = Trail.__new__(Trail)
        grown._items, grown._keys, grown._before = base._items, base._keys, base._before
        grown._length = self._length + 1
        return grown

    def newest(self, key: str) -> Item | None:
        """The last item of this view that was appended under `key`, or None."""
        place = self._newest(key)
        return None if place is None else self._items[place]

    def _newest(self, key: str) -> int | None:
        place = self._keys.get(key)
        while place is not None and place >= self._length:  # another view has grown since
            place = self._before.get(place)
        return place

    def _copy(self) -> Trail[Item]:
        twin: Trail[Item] = Trail(self._items[: self._length])
        for key in self._keys:
            place = self._newest(key)
            if place is not None:
                twin._keys[key] = place
        twin._before = {
            place: earlier for place, earlier in self._before.items() if place < self._length
        }
        return twin

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
            return [self._items[place] for place in range(*index.indices(self._length))]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._items[index]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Trail) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Trail({list(self)!r})"
