"""Ends a model call at its deadline, whatever the host does meanwhile.

The timeouts of HTTP clients count from the last byte, so a host that sends a comment every second is waited
for without end. The deadline here counts from the start of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from toolchart.states.errors import ProviderError

Value = TypeVar("Value")


async def await_in_time(work: Coroutine[Any, Any, Value], timeout_s: float | None) -> Value:
    """The result of a call.

    Args:
        timeout_s: seconds from now; None for no limit.

    Raises:
        ProviderError: `timeout`; the work was cancelled.
    """
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise _build_timeout_error(timeout_s) from None


async def iterate_in_time(
    items: AsyncGenerator[Value, None], timeout_s: float | None
) -> AsyncGenerator[Value, None]:
    """The items of a stream, up to the deadline. Only the wait for an item is cancelled, never its reader.

    Args:
        timeout_s: seconds from now for all items; None for no limit.

    Raises:
        ProviderError: `timeout`; the stream was closed.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    async with aclosing(items):
        while True:
            # Items that are there at once do not wait, so nothing would end a flood of them.
            if deadline is not None and loop.time() >= deadline:
                raise _build_timeout_error(timeout_s)
            limit = asyncio.timeout_at(deadline)
            try:
                async with limit:
                    item = await anext(items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not limit.expired():
                    raise
                raise _build_timeout_error(timeout_s) from None
            yield item


def _build_timeout_error(timeout_s: float | None) -> ProviderError:
    message = f"the model host did not finish its answer within {timeout_s:g} s (timeout_s)"
    return ProviderError(kind="timeout", message=message, retryable=True)
