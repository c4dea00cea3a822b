"""How much a client may ask for: requests a second, and turns and readers at the same time."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toolchart.app.server.answers import Refusal

STOPPING_S = 2.0
"""Seconds after which a client should ask again where the server stops: another one answers then."""


class RequestRates:
    """A bucket for each client: it holds `burst` requests and fills with `per_s` a second.

    Args:
        clients: those that are remembered; the one that was seen longest ago is forgotten first.
    """

    def __init__(
        self, per_s: float, burst: int, clients: int, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._clients = clients
        self._per_s = per_s
        self._burst = burst
        self._now = now
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count_request(self, client: str) -> None:
        """Count one request.

        Raises:
            Refusal: 429; the client asks too often.
        """
        now = self._now()
        level, since = self._buckets.pop(client, (float(self._burst), now))
        level = min(float(self._burst), level + (now - since) * self._per_s)
        is_allowed = level >= 1.0
        self._buckets[client] = (level - 1.0 if is_allowed else level, now)
        if len(self._buckets) > self._clients:
            self._buckets.popitem(last=False)
        if not is_allowed:
            raise refuse_for_now("too many requests", (1.0 - level) / self._per_s)


class Slots:
    """Things that only so many may do at the same time; nobody waits here.

    Args:
        what: for the message: `turns`.
    """

    def __init__(self, what: str, count: int, retry_after_s: float = 1.0) -> None:
        self._what = what
        self._count = count
        self._retry_after_s = retry_after_s
        self.free = count
        """How many more may begin now."""
        self.is_closed = False
        """Whether the server stops, so that nothing more begins."""

    @property
    def in_use(self) -> int:
        """How many are in use now."""
        return self._count - self.free

    @property
    def is_idle(self) -> bool:
        """Whether nobody holds one."""
        return not self.in_use

    def close(self) -> None:
        """Let nothing more begin; what has begun gives its slot back as always."""
        self.is_closed = True

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold one slot within the block.

        Raises:
            Refusal: 429; all are in use. 503; the server stops. Nothing was begun.
        """
        self.take()
        try:
            yield
        finally:
            self.give_back()

    def take(self) -> None:
        """Take one slot until `give_back`.

        Raises:
            Refusal: 429; all are in use. 503; the server stops. Nothing was begun.
        """
        if self.is_closed:
            message = f"the server is stopping and begins no more {self._what}"
            raise refuse_for_now(message, STOPPING_S, status=503)
        if self.free <= 0:
            raise refuse_for_now(f"too many {self._what} run now", self._retry_after_s)
        self.free -= 1

    def give_back(self) -> None:
        """Give a slot back."""
        self.free += 1


def refuse_for_now(message: str, seconds: float, status: int = 429) -> Refusal:
    """The refusal of a request that may be sent again later."""
    retry_after = max(1, math.ceil(seconds))
    return Refusal(
        status,
        f"{message}; try again in {retry_after} s",
        headers={"Retry-After": str(retry_after)},
        details={"retryAfter": retry_after},
    )
