"""A clock that stands still until a test turns it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from toolchart.states.flows.times import parse_duration


class TurnableClock:
    """A clock that stands still until a test turns it, for charts with timers.

        clock = TurnableClock("2027-01-04T09:00:00Z")
        engine = Engine(spec, clock=clock)
        result = engine.run("publish it", conversation="c")      # waits for an editor until result.due
        clock.advance("24h")
        result = engine.conversation("c").resume()               # the deadline has passed

    A turn that only waits for time waits until another task turns the clock, unless `skips` is set.

    Args:
        start: the time that it shows at first, RFC 3339; without an offset it is UTC.
        skips: whether a wait turns the clock itself and returns at once.
    """

    def __init__(self, start: str = "2027-01-04T09:00:00Z", *, skips: bool = False) -> None:
        moment = datetime.fromisoformat(start)
        self._moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        self._skips = skips
        self._sleepers: list[tuple[datetime, asyncio.Future[None]]] = []
        self._has_sleepers = asyncio.Event()

    def now(self) -> str:
        """The time that it shows: RFC 3339, UTC, milliseconds."""
        return self._moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been turned by so many seconds."""
        if self._skips:
            self.advance(seconds)
        if self._skips or seconds <= 0:
            await asyncio.sleep(0)
            return
        wakened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sleeper = (self._moment + timedelta(seconds=seconds), wakened)
        self._sleepers.append(sleeper)
        self._has_sleepers.set()
        try:
            await wakened
        finally:
            self._sleepers.remove(sleeper)
            if not self._sleepers:
                self._has_sleepers.clear()

    async def wait_for_sleep(self) -> None:
        """Wait until somebody waits for this clock, so that turning it has an effect."""
        await self._has_sleepers.wait()

    def jitter(self) -> float:
        """Always 0, so that waits before a retry have their full length."""
        return 0.0

    def advance(self, time: float | str) -> None:
        """Turn the clock forward, and wake whoever has waited long enough.

        Args:
            time: seconds, or a duration as charts write it: `90s`, `24h`.

        Raises:
            ValueError: it is no duration.
        """
        seconds = parse_duration(time)
        if seconds is None:
            raise ValueError(f"{time!r} is no duration: pass seconds, or a text such as '24h'")
        self._moment += timedelta(seconds=seconds)
        for due, wakened in sorted(self._sleepers, key=lambda sleeper: sleeper[0]):
            if due <= self._moment and not wakened.done():
                wakened.get_loop().call_soon_threadsafe(_wake, wakened)

    @property
    def sleeper_count(self) -> int:
        """How many waits are under way."""
        return len(self._sleepers)


def _wake(wakened: asyncio.Future[None]) -> None:
    if not wakened.done():
        wakened.set_result(None)
