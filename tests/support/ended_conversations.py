"""Fills a database with conversations that have ended, and counts what a supervisor reads there."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec
import psycopg
from postgres_database import await_end_of_sessions

from toolchart.engine.durable.dbos_queue import DbosQueue
from toolchart.engine.durable.executors import ExecutorWatch
from toolchart.engine.durable.performing import find_place
from toolchart.engine.durable.supervisor import Supervisor
from toolchart.engine.log.stores import open_store

_COPIES = (
    "INSERT INTO toolchart_conversations (id) SELECT name FROM unnest(%(names)s::text[]) AS name",
    "INSERT INTO toolchart_records SELECT (copy.number << 32) + (r.id & 4294967295), r.line "
    "FROM toolchart_conversations own, toolchart_conversations copy, toolchart_records r "
    "WHERE own.id = %(source)s AND copy.id = ANY(%(names)s) AND r.id >> 32 = own.number "
    "AND (r.id & 4294967295) < %(records)s",
    "INSERT INTO toolchart_small_values (conversation, kind, key, data, is_listed) "
    "SELECT name, kind, key, data, is_listed FROM toolchart_small_values, unnest(%(names)s::text[]) AS name "
    "WHERE conversation = %(source)s",
    "INSERT INTO dbos.workflow_status SELECT (jsonb_populate_record(w, jsonb_build_object("
    "'workflow_uuid', replace(w.workflow_uuid, %(source)s || '/', copied || '/')))).* "
    "FROM dbos.workflow_status w, unnest(%(names)s::text[]) AS copied "
    "WHERE starts_with(w.workflow_uuid, %(source)s || '/')",
)

_AT_ONCE = 20_000


class Looks(msgspec.Struct, frozen=True):
    """What some looks of a supervisor cost."""

    seconds: float
    queries: int
    rows: int
    """Rows and index entries that the server read for them, system tables aside."""
    found: tuple[str, ...]
    """Ids of the stretches that were started for what it found."""


def add_ended(address: str, source: str, first: int, count: int, *, records: int = 2**31) -> None:
    """Copy a conversation that has ended, with all that the log and the queue keep of it.

    Args:
        source: its id.
        first: number of the first copy.
        records: most records of each copy.
    """
    with psycopg.connect(address, autocommit=True) as db:
        for start in range(first, first + count, _AT_ONCE):
            last = min(start + _AT_ONCE, first + count) - 1
            names = [f"ended{number}" for number in range(start, last + 1)]
            values = {"names": names, "source": source, "records": records}
            for statement in _COPIES:
                db.execute(statement.encode(), values)


async def count_looks(address: str, agent: str, looks: int) -> Looks:
    """Look so many times as a supervisor does that has started what is found."""
    async with _supervise(address, agent) as supervisor:
        await supervisor.look()
        started = set(supervisor._started)  # pyright: ignore[reportPrivateUsage]
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(b"VACUUM ANALYZE")
    before = read_counters(address)
    async with _supervise(address, agent) as supervisor:
        supervisor._started = started  # pyright: ignore[reportPrivateUsage]
        with _count_queries() as queries:
            start_s = time.perf_counter()
            for _ in range(looks):
                await supervisor.look()
            seconds = time.perf_counter() - start_s
    return Looks(seconds, len(queries), read_counters(address) - before, tuple(sorted(started)))


@asynccontextmanager
async def _supervise(address: str, agent: str) -> AsyncIterator[Supervisor]:
    """A supervisor with connections of its own."""
    with closing(open_store(address)) as store, closing(DbosQueue(address, agent)) as queue:
        yield Supervisor(store, queue, ExecutorWatch(queue.find_absent), partial(find_place, store))


def read_counters(address: str) -> int:
    """Rows and index entries that were read in this database so far.

    A session of the server tells what it has read at the latest when it ends.
    """
    await_end_of_sessions(address)
    with psycopg.connect(address, autocommit=True) as db:
        row = db.execute(
            "SELECT (SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables) "
            "+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)"
        ).fetchone()
    assert row is not None, "it has one row"
    return int(row[0])


@contextmanager
def _count_queries() -> Iterator[list[int]]:
    """A list that gets an entry for each statement that this process sends within the block."""
    queries: list[int] = []
    execute = psycopg.Cursor.execute

    def count(cursor: Any, *words: Any, **options: Any) -> Any:
        queries.append(1)
        return execute(cursor, *words, **options)

    with patch.object(psycopg.Cursor, "execute", count):
        yield queries
