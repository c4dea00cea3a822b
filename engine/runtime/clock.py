"""Time and chance, which come into the core with events and from nowhere else."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time and chance come from outside, so that tests can give their own."""

    def now(self) -> str:
        """RFC 3339, UTC, milliseconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def jitter(self) -> float:
        """A random number in [0, 1)."""
        ...


class SystemClock:
    """The machine's clock."""

    def __init__(self) -> None:
        self._ms, self._told = 0, ""

    def now(self) -> str:
        """The present moment; several steps of one millisecond share its text."""
        ms = time.time_ns() // 1_000_000
        if ms != self._ms:
            moment = datetime.fromtimestamp(ms / 1000, UTC)
            self._told = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self._ms = ms
        return self._told

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking."""
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        """Chance from the operating system's seed; it goes into the log with its event."""
        import random

        return round(random.random(), 6)
