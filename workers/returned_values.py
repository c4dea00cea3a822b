"""What a function returned, read to its end: an iterator becomes the list of its items, within limits.

Imports only the standard library, since every host of bounded work loads it.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from typing import Any, TypeGuard, cast

MAX_ITEMS = 100_000
"""Items of iterators that are read for one result."""

MAX_SIZE = 16_000_000
"""Characters of the texts in these items."""

MAX_AWAITS = 10
"""Awaitables, each of which gives the next one, that are awaited for one result."""

_ITEMS_AT_ONCE = 64
"""Items of a plain iterator that are read on an event loop before other tasks get their turn."""


class UnusableResult(ValueError):
    """What a function returned cannot be kept as plain data; the text is written for the model."""


class ItemBudget:
    """Counts the items that iterators and repeated parts give for one result, and the size of their texts."""

    def __init__(self) -> None:
        self._items = 0
        self._size = 0

    def count(self, item: Any) -> None:
        """Count one more item.

        Raises:
            UnusableResult: it is one too many, or too much.
        """
        self._size += _measure(item, set())
        self._add(1)
        if self._size > MAX_SIZE:
            raise UnusableResult(
                f"the items of the result have more than {MAX_SIZE} characters; return fewer at a time"
            )

    def count_again(self, value: Any) -> None:
        """Count a value that the result has had before, and its own items.

        Raises:
            UnusableResult: it is one too many.
        """
        self._add(1 + len(value) if isinstance(value, (list, tuple, dict, set, frozenset)) else 1)

    def _add(self, count: int) -> None:
        self._items += count
        if self._items > MAX_ITEMS:
            raise UnusableResult(
                f"the result was read up to {MAX_ITEMS} items and has more, or no end; return fewer at a time"
            )


def is_iterator(value: Any) -> TypeGuard[Iterator[Any]]:
    """Whether a value gives items and is nothing but that: a generator, `map`, `zip`; no open file."""
    return isinstance(value, Iterator) and not hasattr(value, "read")


def must_be_awaited(value: Any) -> bool:
    """Whether only an event loop can give what a value stands for: awaitables, async iterators, futures."""
    return inspect.isawaitable(value) or _is_async_iterable(value) or _is_thread_future(value)


def _is_async_iterable(value: Any) -> TypeGuard[AsyncIterable[Any]]:
    return isinstance(value, AsyncIterable) and not hasattr(value, "read")


def _is_thread_future(value: Any) -> bool:
    futures = sys.modules.get("concurrent.futures")  # without it there is none
    return futures is not None and isinstance(value, futures.Future)


def read_value(value: Any, is_late: Callable[[], bool] | None = None) -> Any:
    """What a function returned, where nothing has to be awaited: the items of an iterator, else the value.

    Raises:
        UnusableResult: it gives too many items, or too much.
        BaseException: the one that the function returned, as if it had raised it.
    """
    if isinstance(value, BaseException):
        raise value
    return read_items(value, is_late=is_late) if is_iterator(value) else value


def read_items(
    source: Iterator[Any], budget: ItemBudget | None = None, is_late: Callable[[], bool] | None = None
) -> Any:
    """Read an iterator to its end, and close it where it is a generator.

    Args:
        budget: None: one of its own.
        is_late: whether nobody waits for the items any more; asked after each one.

    Returns:
        The list of its items. Where a generator also returned a value: that value if it gave no items, else
        `{"items": [...], "returned": value}`.

    Raises:
        UnusableResult: it gives too many items, or too much.
    """
    budget, items = budget or ItemBudget(), []
    try:
        while True:
            try:
                item = next(source)
            except StopIteration as end:
                return _join(items, end.value)
            budget.count(item)
            items.append(item)
            if is_late is not None and is_late():
                return None
    finally:
        close_unused(source)


async def await_value(value: Any) -> Any:
    """Await what a function returned until it is a value: awaitables, futures, and iterators of both kinds.

    Raises:
        UnusableResult: it gives too many items, too much, or one awaitable after the other.
        BaseException: the one that the function returned, as if it had raised it.
    """
    import asyncio

    for _ in range(MAX_AWAITS):
        if _is_thread_future(value):
            value = asyncio.wrap_future(value)
        if inspect.isawaitable(value):
            value = await cast(Awaitable[Any], value)
        elif _is_async_iterable(value):
            return await _read_async_items(value)
        elif is_iterator(value):
            return await _read_items_beside_others(value)
        else:
            return read_value(value)
    close_unused(value)
    raise UnusableResult("the result is an awaitable that gives an awaitable, and so on")


async def _read_async_items(source: AsyncIterable[Any]) -> list[Any]:
    import asyncio

    budget, items = ItemBudget(), []
    iterator = aiter(source)
    try:
        async for item in iterator:
            budget.count(item)
            items.append(item)
            # One that never waits would keep the event loop, and its timeout, for itself.
            if len(items) % _ITEMS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return items
    finally:
        if inspect.isasyncgen(iterator):
            await iterator.aclose()


async def _read_items_beside_others(source: Iterator[Any]) -> Any:
    """As `read_items`, on an event loop: its timeout and a cancellation come between the items."""
    import asyncio

    budget, items = ItemBudget(), []
    try:
        while True:
            try:
                item = next(source)
            except StopIteration as end:
                return _join(items, end.value)
            budget.count(item)
            items.append(item)
            if len(items) % _ITEMS_AT_ONCE == 0:
                await asyncio.sleep(0)
    finally:
        close_unused(source)


def close_unused(value: Any) -> None:
    """Close a generator or coroutine that is read no further; what its own cleaning up raises is dropped."""
    if inspect.isgenerator(value) or inspect.iscoroutine(value):
        with contextlib.suppress(Exception):
            value.close()


def _join(items: list[Any], returned: Any) -> Any:
    if returned is None:
        return items
    return {"items": items, "returned": returned} if items else returned


def _measure(item: Any, seen: set[int], depth: int = 0) -> int:
    """About how many characters an item has as a text, each of its parts once; it consumes nothing."""
    if isinstance(item, (str, bytes, bytearray)):
        return len(item)
    if depth < 8 and id(item) not in seen:
        seen.add(id(item))
        if isinstance(item, dict):
            return sum(
                _measure(key, seen, depth + 1) + _measure(part, seen, depth + 1) for key, part in item.items()
            )
        if isinstance(item, (list, tuple, set, frozenset)):
            return sum(_measure(part, seen, depth + 1) for part in item)
        attributes = getattr(item, "__dict__", None)
        if isinstance(attributes, dict) and not isinstance(item, type):
            return _measure(attributes, seen, depth + 1)
    return 8
