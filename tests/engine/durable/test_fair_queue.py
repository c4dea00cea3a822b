"""Owners share workers fairly, priorities order what one owner waits for, and nobody waits without a word."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from durable_workers import make_engine, work
from effort import choose_count
from paying_agent import wait_until
from postgres_database import create_database

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.fleet.fleet_engine import FleetEngine
from toolchart.engine.durable.performing import list_submitted
from toolchart.engine.durable.stretches import Stretch
from toolchart.states.errors import NotFound, SpecError

pytest.importorskip("dbos", reason="needs the extra `durable`")

from toolchart.engine.durable.dbos_queue import DbosQueue

pytestmark = pytest.mark.slow

MANY, FEW = choose_count(short=60, long=600), 6


@pytest.fixture
def address(postgres: str, tmp_path: Path) -> str:
    """The address of a database for the log and the queue of one test."""
    return create_database(postgres, tmp_path)


class Payments:
    """A tool that takes a while, and the order in which it was called."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def pay(self, arguments: Any) -> str:
        """Pay."""
        self.texts.append(arguments["text"])
        await asyncio.sleep(0.05)
        return "paid"

    async def wait_for(self, prefix: str, count: int) -> float:
        """Return when so many payments with a prefix began; the seconds that took."""
        start_s = time.monotonic()
        await wait_until(lambda: sum(text.startswith(prefix) for text in self.texts) >= count)
        return time.monotonic() - start_s


async def submit(client: DurableClient, owner: str, count: int, **options: Any) -> None:
    """Submit messages of one owner."""
    for number in range(count):
        await client.submit(f"{owner} {number}", options={"owner": owner}, **options)


async def run_few(address: str, *, behind: int, per_owner: int | None) -> tuple[list[str], float]:
    """Let one worker of four places run the few of a small tenant behind those of a large one.

    Returns:
        The payments until the last of the few began, and the seconds that took.
    """
    payments = Payments()
    make = partial(make_engine, address, payments.pay)
    async with make() as engine, make() as outside:
        queue = DbosQueue(address, "payer")
        client = DurableClient(outside, queue)
        await submit(client, "large", behind)
        await submit(client, "small", FEW)
        async with work(engine, address, concurrency=4, per_owner=per_owner):
            seconds = await payments.wait_for("small", FEW)
            texts = list(payments.texts)
            await payments.wait_for("large", behind)
        queue.close()
    return texts, seconds


async def test_a_small_tenant_does_not_wait_for_a_large_one(
    address: str, postgres: str, tmp_path: Path
) -> None:
    """With a limit for each owner the six conversations of a small tenant end while the large one, which came
    first, has had no more than its share; without it they come last."""
    texts, seconds = await run_few(address, behind=MANY, per_owner=2)
    assert sum(text.startswith("large") for text in texts) <= 3 * FEW
    (tmp_path / "other").mkdir()
    other = create_database(postgres, tmp_path / "other")
    last, _ = await run_few(other, behind=20, per_owner=None)
    assert sum(text.startswith("large") for text in last) == 20
    (tmp_path / "alone").mkdir()
    alone, alone_s = await run_few(create_database(postgres, tmp_path / "alone"), behind=0, per_owner=2)
    assert len(alone) == FEW
    print(f"behind {MANY}: {seconds:.2f} s, alone: {alone_s:.2f} s")


async def test_a_priority_orders_what_waits_for_one_owner(address: str) -> None:
    """1 goes first, 5 last, and what has no priority stands in the middle; any other number is refused."""
    payments = Payments()
    make = partial(make_engine, address, payments.pay)
    async with make() as engine, make() as outside:
        queue = DbosQueue(address, "payer")
        client = DurableClient(outside, queue)
        for name, options in (("last", {"priority": 5}), ("usual", {}), ("first", {"priority": 1})):
            await client.submit(name, **options)
        for wrong in (0, 6, -1):
            with pytest.raises(SpecError, match="is no priority"):
                await client.submit("wrong", priority=wrong)
        async with work(engine, address, concurrency=1):
            await payments.wait_for("", 3)
        queue.close()
    assert payments.texts == ["first", "usual", "last"]


async def test_what_no_worker_can_run_is_refused_at_once(address: str) -> None:
    """An owner that is none, somebody else's conversation, and a handler or model that the agent has not, are
    refused when the message is submitted: nothing is left in the log, and nothing in the queue."""
    payments = Payments()
    async with make_engine(address, payments.pay) as engine:
        queue = DbosQueue(address, "payer")
        client = DurableClient(engine, queue)
        async with work(engine, address):
            await client.submit("bill", conversation="hers", options={"owner": "ann"})
            await payments.wait_for("", 1)
            await wait_until(lambda: queue.count_waiting() == 0)
        for wrong in ({"owner": ""}, {"owner": "x" * 9_000}, {"handler": "none"}, {"llm": "none"}):
            with pytest.raises(SpecError):
                await client.submit("wrong", options=wrong)
        with pytest.raises(NotFound):
            await client.submit("wrong", conversation="hers", options={"owner": "bob"})
        assert (list_submitted(engine.store), queue.count_waiting()) == ([], 0)
        queue.close()


async def test_the_queue_says_which_workers_live(address: str) -> None:
    """No worker, workers of another chart, and workers of this one are told apart, soon after one ends."""
    payments = Payments()
    async with make_engine(address, payments.pay) as engine:
        worker_version = ""
        async with work(engine, address):
            queue = DbosQueue(address, "payer")
            stretch = await DurableClient(engine, queue).begin_turn("bill")
            worker_version = stretch.version
            assert queue.find_workers(worker_version) == "ready"
            assert queue.find_workers("another") == "of another chart"
        await wait_until(lambda: queue.find_workers(worker_version) == "none")
        assert isinstance(stretch, Stretch)
        queue.close()


async def test_a_server_without_a_worker_is_not_ready(address: str) -> None:
    """`/readyz` of a server that hands turns over is 503 without a worker of its chart, and says so."""
    from toolchart.app.server.application import build_application
    from toolchart.app.server.site import Site

    payments = Payments()
    async with make_engine(address, payments.pay) as engine:
        queue = DbosQueue(address, "payer")
        spec: Any = engine.spec
        async with FleetEngine(spec, queue, log=address, functions=engine.tools.functions) as served:
            site = Site(served, [], find_workers=served.find_workers)
            transport = httpx.ASGITransport(app=build_application(site))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                absent = await http.get("/readyz")
                assert absent.status_code == 503
                assert absent.json()["status"] == "no worker"
                assert "turns wait until one of this agent's chart begins" in absent.json()["problem"]
                async with work(engine, address):
                    assert (await http.get("/readyz")).status_code == 200
        queue.close()
