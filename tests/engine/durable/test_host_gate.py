"""Limits of model hosts that hold over several workers: a real PostgreSQL, several gates in this process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from durable_workers import make_engine, wait_for_state, work
from paying_agent import EchoModel
from postgres_database import create_database

pytest.importorskip("dbos", reason="needs the extra `durable`")

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.dbos_queue import DbosQueue
from toolchart.engine.durable.fleet.host_gate import HostGate, build_host_key
from toolchart.providers.transport.limits import CallLimits, Reservation, find_limiter
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Reply, Request

pytestmark = pytest.mark.slow


@pytest.fixture
def address(postgres: str, tmp_path: Path) -> str:
    """The address of a database that the gates share."""
    return create_database(postgres, tmp_path)


@pytest.fixture
async def gates(address: str) -> AsyncIterator[list[HostGate]]:
    """Three gates, as of three workers."""
    made = [HostGate(address) for _ in range(3)]
    yield made
    for gate in made:
        await gate.close()


async def test_calls_of_all_workers_keep_the_limits_of_a_minute(gates: list[HostGate]) -> None:
    """Of calls that three workers reserve at once, no four lie within 60 seconds; those of another host do
    not count. So do tokens."""

    async def reserve(host: str, limits: CallLimits, tokens: int) -> list[float]:
        made = await asyncio.gather(*(gate.reserve(host, limits, tokens) for gate in gates for _ in range(4)))
        assert len({number for number, _, _ in made}) == 12
        return sorted(start_s for _, start_s, _ in made)

    starts = await reserve("a", CallLimits(requests_per_minute=3), 0)
    assert all(late - early >= 60 for early, late in zip(starts, starts[3:], strict=False))
    _, start_s, now_s = await gates[0].reserve("b", CallLimits(requests_per_minute=3), 0)
    assert start_s == now_s
    starts = await reserve("c", CallLimits(tokens_per_minute=100), 50)
    assert all(late - early >= 60 for early, late in zip(starts, starts[2:], strict=False))


async def test_no_more_calls_run_than_the_host_allows(gates: list[HostGate]) -> None:
    """Of many calls of three workers two run at the same time at most, and each runs."""
    running = most = ended = 0

    async def call(gate: HostGate) -> None:
        nonlocal running, most, ended
        async with gate.admit("host", CallLimits(concurrent=2), Reservation(0.0, 0)):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            ended += 1

    async with asyncio.timeout(60):
        await asyncio.gather(*(call(gate) for gate, _ in itertools.product(gates, range(5))))
    assert (running, ended) == (0, 15)
    assert most <= 2


async def test_the_calls_of_a_dead_worker_hold_nobody_up(gates: list[HostGate]) -> None:
    """What a worker held whose connection is gone is free for the others."""
    limits = CallLimits(concurrent=2)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(gates[0].admit("host", limits, Reservation(0.0, 0)))
        await gates[0].close()
        async with asyncio.timeout(60), gates[1].admit("host", limits, Reservation(0.0, 0)):
            pass


async def test_counted_tokens_replace_the_estimate(gates: list[HostGate]) -> None:
    """A call that took fewer tokens than was estimated leaves the rest to others."""
    limits, reservation = CallLimits(tokens_per_minute=100), Reservation(0.0, 90)
    async with gates[0].admit("host", limits, reservation):
        reservation.tokens = 10
    _, start_s, now_s = await gates[1].reserve(build_host_key("host"), limits, 90)
    assert start_s == now_s


async def test_without_the_database_calls_go_on() -> None:
    """Then the limits hold in each worker alone, and no call fails for it."""
    gate = HostGate("postgresql://nobody@127.0.0.1:1/none")
    limits = CallLimits(concurrent=1, requests_per_minute=1)
    for _ in range(2):
        async with gate.admit("host", limits, Reservation(0.0, 0)):
            pass


class LimitedModel(EchoModel):
    """The echo with the limiter that an entry of `llms` gets."""

    def __init__(self) -> None:
        config = LLMConfig(provider="scripted", requests_per_minute=1000, concurrent=4)
        limiter = find_limiter(config, "http://127.0.0.1:1")
        assert limiter is not None
        self.limiter = limiter

    async def complete(self, request: Request) -> Reply:
        """The next reply, when the host may be asked."""
        async with self.limiter.admit(request):
            return await super().complete(request)


async def test_a_worker_shares_the_limits_of_its_hosts(address: str) -> None:
    """Each model call of a worker is in the table that all workers share, without the address of the host."""

    async def pay(arguments: Any) -> str:
        return "paid"

    async with make_engine(address, pay) as engine:
        engine.hosts.providers["model"] = LimitedModel()
        async with work(engine, address):
            queue = DbosQueue(address, "payer")
            await DurableClient(engine, queue).submit("bill", key="a")
            await wait_for_state(engine, "a", "finished")
            queue.close()
    with psycopg.connect(address) as db:
        hosts = db.execute("SELECT host FROM toolchart_host_calls").fetchall()
    assert len(hosts) == 2
    assert "127.0.0.1" not in str(hosts)
