"""Which executors live: each holds a lock of its session, which the server drops with the connection.

A killed process loses its connection at once, whatever its clock said, so nobody waits for a heartbeat to
expire. A restart of the server drops all locks: executors take them again within seconds, so an executor
counts as dead only where its lock stayed free for a while. If one is taken for dead all the same, nothing
breaks: the leases of the log decide who may append.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import secrets
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import psycopg

log = logging.getLogger("toolchart.engine")

DEAD_AFTER_S = 3.0
"""Seconds for which the lock of an executor must be free."""

_LOOK_S = 1.0

_LOCK = "SELECT pg_advisory_lock(hashtextextended(%s, 0))"
# Shared, and given back with its statement: several supervisors that look at the same moment do not take
# each other for the executor.
_IS_FREE = "SELECT pg_try_advisory_xact_lock_shared(hashtextextended(%s, 0))"


def name_executor() -> str:
    """A new name for this process as an executor, which no other one ever has."""
    return f"{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"


@contextlib.asynccontextmanager
async def hold_presence(address: str, executor: str) -> AsyncIterator[None]:
    """Show within the block that an executor lives.

    Args:
        address: `postgresql://...`.
    """
    has_begun = asyncio.Event()
    task = asyncio.create_task(_keep_lock(address, executor, has_begun))
    try:
        await has_begun.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _keep_lock(address: str, executor: str, has_begun: asyncio.Event) -> None:
    """Hold the lock of an executor; take it again where the connection broke."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
                await connection.execute(_LOCK, (_build_key(executor),))
                has_begun.set()
                while True:
                    await asyncio.sleep(_LOOK_S)
                    await connection.execute("SELECT 1")
        except psycopg.Error as error:
            log.info("executor %s: its connection broke: %s", executor, error)
            has_begun.set()
            await asyncio.sleep(_LOOK_S)


class ExecutorWatch:
    """Finds executors that have died.

    Args:
        address: `postgresql://...`.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._free_since: dict[str, float] = {}

    def list_dead(self, executors: Iterable[str]) -> list[str]:
        """Those executors whose lock has been free for a while; blocking.

        Raises:
            psycopg.Error: the server cannot be reached.
        """
        with psycopg.connect(self._address, autocommit=True) as connection:
            free = [name for name in executors if _is_free(connection, name)]
        now = time.monotonic()
        # One that has its lock again is forgotten here, so its time begins anew.
        self._free_since = {name: self._free_since.get(name, now) for name in free}
        return [name for name, since in self._free_since.items() if now - since >= DEAD_AFTER_S]


def _is_free(connection: Any, executor: str) -> bool:
    row = connection.execute(_IS_FREE, (_build_key(executor),)).fetchone()
    return bool(row and row[0])


def _build_key(executor: str) -> str:
    return f"toolchart executor {executor}"
