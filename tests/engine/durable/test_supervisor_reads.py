"""What a supervisor reads, and how many connections a worker has: by the counters of a real server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from durable_workers import make_engine, wait_for_state, work
from paying_agent import read_waiting_calls, wait_until
from postgres_database import create_database
from worker_names import DEAD

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.log.stores import open_store
from toolchart.states.events import Decided

pytest.importorskip("dbos", reason="needs the extra `durable`")

import psycopg
from ended_conversations import add_ended, count_looks

from toolchart.engine.durable import dbos_worker
from toolchart.engine.durable.dbos_queue import DbosQueue

pytestmark = pytest.mark.slow


@pytest.fixture
def address(postgres: str, tmp_path: Path) -> str:
    """The address of a database for the log and the queue of one test."""
    return create_database(postgres, tmp_path)


async def _pay(arguments: Any) -> str:
    return "paid"


async def test_a_look_costs_what_is_open_and_not_what_has_ended(address: str) -> None:
    """With three conversations open, beside 100, 2,000 and 20,000 that have ended, a supervisor sends as many
    queries and finds the same. The server reads as many rows and index entries beside 2,000 as beside 20,000;
    a table of a few pages it reads as a whole, so beside 100 it may be more."""
    async with make_engine(address, _pay, approval=True) as engine, work(engine, address):
        client = DurableClient(engine, queue := DbosQueue(address, "payer"))
        for name in ("ends", "waits", "left", "unknown"):
            await client.submit("pay", key=name)
            await wait_for_state(engine, name, "awaiting_approval")
        (call,) = read_waiting_calls(engine, "ends")
        await client.decide("ends", Decided(approved=True, call_id=call.id))
        await wait_for_state(engine, "ends", "finished")
        await wait_until(lambda: queue.count_waiting() == 0)
        queue.close()
    store = open_store(address)
    lines = list(store.read_lines("unknown"))
    store.delete("unknown")
    store.append("unknown", 0, lines)
    store.acquire_lease("left", DEAD, 60.0)
    store.close()
    add_ended(address, "ends", 0, 100)
    hundred = await count_looks(address, "payer", 11)
    add_ended(address, "ends", 100, 1_900)
    few = await count_looks(address, "payer", 11)
    add_ended(address, "ends", 2_000, 18_000)
    many = await count_looks(address, "payer", 11)
    assert [name.partition("/")[0] for name in few.found] == ["left", "unknown"]
    assert (many.queries, many.rows, many.found) == (few.queries, few.rows, few.found)
    assert (hundred.queries, hundred.found) == (few.queries, few.found)
    assert hundred.rows >= few.rows


async def test_an_idle_worker_has_three_connections(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that also supervises has worked, and rests: two connections for its queue, one that reads the
    log. While it works there is one more, which appends."""
    monkeypatch.setattr(dbos_worker, "_IDLE_AFTER_S", 0.5)
    async with make_engine(address, _pay) as engine, work(engine, address, supervises=True):
        client = DurableClient(engine, queue := DbosQueue(address, "payer"))
        for number in range(30):
            await client.submit("pay", key=str(number))
        most = 0
        while queue.count_waiting():
            most = max(most, _count_connections(address))
            await asyncio.sleep(0.01)
        queue.close()
        assert most <= 4 + 5  # those of the queue that submits are five at most
        until = time.monotonic() + 60
        while (count := _count_connections(address)) > 3:
            assert time.monotonic() < until, count
            await asyncio.sleep(0.1)


def _count_connections(address: str) -> int:
    """How many others are connected to a database."""
    with psycopg.connect(address, autocommit=True) as db:
        row = db.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
    return int(row[0])
