"""The clock and new ids: the only sources of time and of randomness in the engine.

The pure core reads neither. Their values reach it inside events, so that a replay sees the same values.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time and random numbers; tests pass their own."""

    def now(self) -> str:
        """The present time: RFC 3339, UTC, milliseconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        ...

    def jitter(self) -> float:
        """A random number in [0, 1)."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def __init__(self) -> None:
        self._text_ms, self._text = 0, ""

    def now(self) -> str:
        """The present time; the text is built once for each millisecond."""
        ms = time.time_ns() // 1_000_000
        if ms != self._text_ms:
            moment = datetime.fromtimestamp(ms / 1000, UTC)
            self._text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self._text_ms = ms
        return self._text

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """A random number in [0, 1) with six decimals; the event that carries it is logged."""
        return round(random.random(), 6)


def generate_conversation_id() -> str:
    """A new random conversation id: 12 hexadecimal digits."""
    return secrets.token_hex(6)
