"""Holds the model calls of a fleet below the limits of their hosts, by way of its PostgreSQL.

A limit of a host is one of its calls, and not of stretches, which hold any number of calls to any hosts. So
no queue can hold it: each worker asks for each call. The time of a call is reserved in a table; a call that
runs holds a lock of the session, which the server drops with the connection of a dead worker.

Where the database is away, the limits hold in each worker only: a turn cannot write its log then anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import LiteralString

import psycopg

from toolchart.providers.transport.limits import WINDOW_S, CallLimits, Reservation, share_limits

log = logging.getLogger("toolchart.engine")

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_NOW = "SELECT extract(epoch FROM clock_timestamp())::double precision"
_FORGET = "DELETE FROM toolchart_host_calls WHERE host = %s AND at_s <= %s"
_READ = "SELECT at_s, tokens FROM toolchart_host_calls WHERE host = %s ORDER BY at_s, number"
_ADD = "INSERT INTO toolchart_host_calls (host, at_s, tokens) VALUES (%s, %s, %s) RETURNING number"
_COUNT = "UPDATE toolchart_host_calls SET tokens = %s WHERE number = %s"
_TAKE = """
SELECT slot FROM unnest(%s::int[]) AS slot
WHERE pg_try_advisory_lock(hashtextextended(%s || slot::text, 0)) LIMIT 1
"""
_GIVE_BACK = "SELECT pg_advisory_unlock(hashtextextended(%s || %s::text, 0))"

_PAUSE_S = 0.1


class HostGate:
    """One worker's way to the limits that it shares; for the event loop in which it is opened.

    Args:
        address: `postgresql://...`, the same for all workers that share their limits.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: psycopg.AsyncConnection | None = None
        self._is_used = asyncio.Lock()
        self._used_at = 0.0
        self._slots: set[tuple[str, int]] = set()
        """What this worker holds: a session gets a lock that it holds a second time."""

    @asynccontextmanager
    async def share(self) -> AsyncIterator[HostGate]:
        """Have all model calls of this process ask the gate within the block."""
        try:
            with share_limits(self):
                yield self
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connection, which gives everything back."""
        if self._connection is not None:
            await self._connection.close()

    async def close_idle(self, seconds: float) -> None:
        """Close the connection where no call has used it for so long, and none runs that holds a slot."""
        async with self._is_used:
            if not self._slots and time.monotonic() - self._used_at >= seconds:
                await self.close()

    @asynccontextmanager
    async def admit(self, host: str, limits: CallLimits, reservation: Reservation) -> AsyncGenerator[None]:
        """See `SharedGate.admit`."""
        key = build_host_key(host)
        slot = await self._wait_for_slot(key, limits.concurrent) if limits.concurrent is not None else None
        try:
            tokens = reservation.tokens
            number = await self._wait_for_time(key, limits, tokens)
            yield
            if number and limits.tokens_per_minute is not None and reservation.tokens != tokens:
                await self._count_tokens(number, reservation.tokens)
        finally:
            if slot is not None:
                await asyncio.shield(self._give_back(key, slot))

    # -- calls in a minute -----------------------------------------------------------------------

    async def reserve(self, host: str, limits: CallLimits, tokens: int) -> tuple[int, float, float]:
        """Reserve the time of one call; returns its number, its time and the present time of the server.

        Args:
            host: by `build_host_key`.

        Raises:
            psycopg.Error: the server cannot be reached.
        """
        async with self._use() as db, db.transaction():
            await db.execute(_LOCK, (f"toolchart host {host}",))
            now_s = await _read_value(db, _NOW)
            await db.execute(_FORGET, (host, now_s - WINDOW_S))
            rows = await (await db.execute(_READ, (host,))).fetchall()
            earlier = [Reservation(at_s, count) for at_s, count in rows]
            newest_s = earlier[-1].time_s if earlier else now_s
            start_s = limits.find_start(earlier, max(now_s, newest_s), tokens)
            number = await _read_value(db, _ADD, (host, start_s, tokens))
        return int(number), start_s, now_s

    async def _wait_for_time(self, host: str, limits: CallLimits, tokens: int) -> int:
        """The number of the reservation, when its time has come; 0 where there is none."""
        if limits.requests_per_minute is None and limits.tokens_per_minute is None:
            return 0
        try:
            number, start_s, now_s = await self.reserve(host, limits, tokens)
        except psycopg.Error as error:
            log.warning("the limits of a model host hold in this worker only now: %s", error)
            return 0
        await asyncio.sleep(start_s - now_s)
        return number

    async def _count_tokens(self, number: int, tokens: int) -> None:
        """Replace the estimate of a call by what its host counted."""
        with contextlib.suppress(psycopg.Error):
            async with self._use() as db:
                await db.execute(_COUNT, (tokens, number))

    # -- calls at the same time ------------------------------------------------------------------

    async def _wait_for_slot(self, host: str, count: int) -> int | None:
        """The slot of a call; None where the server cannot be asked."""
        while True:
            try:
                slot = await self._take_slot(host, count)
            except psycopg.Error as error:
                log.warning("the limits of a model host hold in this worker only now: %s", error)
                return None
            if slot is not None:
                return slot
            await asyncio.sleep(_PAUSE_S * random.uniform(0.5, 1.5))

    async def _take_slot(self, host: str, count: int) -> int | None:
        async with self._use() as db:
            free = [number for number in range(count) if (host, number) not in self._slots]
            row = await (await db.execute(_TAKE, (free, f"toolchart host {host} "))).fetchone()
            if row is None:
                return None
            self._slots.add((host, row[0]))
            return int(row[0])

    async def _give_back(self, host: str, slot: int) -> None:
        with contextlib.suppress(psycopg.Error):
            async with self._use() as db:
                if (host, slot) in self._slots:
                    self._slots.discard((host, slot))
                    await db.execute(_GIVE_BACK, (f"toolchart host {host} ", slot))

    # -- connection ------------------------------------------------------------------------------

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """The connection, for one task at a time; it is made where there is none, or it broke."""
        async with self._is_used:
            if self._connection is None or self._connection.closed:
                self._slots.clear()
                self._connection = await psycopg.AsyncConnection.connect(self._address, autocommit=True)
            try:
                yield self._connection
            finally:
                self._used_at = time.monotonic()


def build_host_key(host: str) -> str:
    """What stands in the table for a host: an address may hold a password."""
    return hashlib.sha256(host.encode()).hexdigest()[:32]


async def _read_value(
    db: psycopg.AsyncConnection, query: LiteralString, values: tuple[object, ...] = ()
) -> float:
    """The one value of the one row of a query."""
    row = await (await db.execute(query, values)).fetchone()
    assert row is not None, "it has one row"
    return float(row[0])
