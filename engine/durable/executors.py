"""Which executors live: each holds a lock in its sessions, which the server drops with the connections.

A killed process loses its connections at once, whatever its clock said, so nobody waits for a heartbeat to
expire. A restart of the server drops all locks: executors take them again with their next connection, within
a second, so an executor counts as dead only where its lock stayed free for a while. If one is taken for dead
all the same, nothing breaks: the leases of the log decide who may append.

The lock is shared, so each connection of an executor holds it, those of its queue among them: no connection
is there for the lock alone. Nobody else takes it. Who wants to know reads which locks the server has, all in
one query, so any number of supervisors may look at any time.
"""

from __future__ import annotations

import os
import platform
import secrets
import time
from collections.abc import Callable, Iterable, Sequence

DEAD_AFTER_S = 3.0
"""Seconds for which the lock of an executor must be free."""

SHOW_PRESENCE = "SELECT pg_advisory_lock_shared(hashtextextended(%s, 0))"
"""Holds the lock of an executor until the session ends: with `build_key`."""

# Where a lock has one key, the server shows its halves as numbers without a sign, and 1 beside them.
# Source: PostgreSQL documentation, view `pg_locks`.
FIND_ABSENT = """
SELECT key FROM (SELECT key, hashtextextended(key, 0) AS hash FROM unnest(CAST(%s AS text[])) AS key) AS names
WHERE NOT EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND classid = ((hash >> 32) & 4294967295)::oid AND objid = (hash & 4294967295)::oid
)
"""
"""Those of some keys whose lock nobody holds."""


def name_executor() -> str:
    """A new name for this process as an executor, which no other one ever has."""
    return f"{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"


def build_key(executor: str) -> str:
    """The key of an executor's lock."""
    return f"toolchart executor {executor}"


def build_workers_key(queue: str, version: str = "") -> str:
    """The key of the lock that all workers of a queue hold, or those of one version."""
    return f"toolchart workers {queue} {version}"


class ExecutorWatch:
    """Finds executors that have died.

    Args:
        find_absent: returns those of some executors whose lock nobody holds now; blocking.
    """

    def __init__(self, find_absent: Callable[[Sequence[str]], Sequence[str]]) -> None:
        self._find_absent = find_absent
        self._free_since: dict[str, float] = {}

    def list_dead(self, executors: Iterable[str]) -> list[str]:
        """Those executors whose lock has been free for a while; blocking.

        Raises:
            DurableHostUnavailable: the database cannot be reached.
        """
        names = list(executors)
        free = self._find_absent(names) if names else []
        now = time.monotonic()
        # One that has its lock again is forgotten here, so its time begins anew.
        self._free_since = {name: self._free_since.get(name, now) for name in free}
        return [name for name, since in self._free_since.items() if now - since >= DEAD_AFTER_S]
