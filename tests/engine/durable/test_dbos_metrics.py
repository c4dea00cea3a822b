"""Metrics of a worker on DBOS and of its queue, collected in process and scraped over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from durable_workers import make_engine, wait_for_state, work
from msgspec.structs import replace
from paying_agent import wait_until
from postgres_database import create_database

from toolchart.app.cli.commands.fleet.worker import command as worker_command
from toolchart.app.cli.commands.turns.serve import make_queue_reader
from toolchart.states.errors import SpecError

pytest.importorskip("dbos", reason="needs the extra `durable`")
pytest.importorskip("opentelemetry.exporter.prometheus", reason="needs the extra `metrics`")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.dbos_queue import DbosQueue
from toolchart.engine.durable.fleet.queue_figures import read_queue_figures
from toolchart.engine.durable.stretches import Stretch


@pytest.fixture
def address(postgres: str, tmp_path: Path) -> str:
    """The address of a database for the log and the queue of one test."""
    return create_database(postgres, tmp_path)


async def pay(arguments: Any) -> str:
    """A tool."""
    return "paid"


def collect(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    """The points of each metric: attributes, and the value, or the count of a histogram."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: [
            (dict(point.attributes or {}), getattr(point, "value", getattr(point, "count", None)))
            for point in metric.data.data_points
        ]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


@pytest.mark.slow
async def test_metrics_say_what_the_worker_did_and_what_its_queue_holds(address: str) -> None:
    """Stretches count by their outcome. Entries count by state, priority and version, with the age of the
    oldest that waits, those of other agents not, in the metrics of a server too."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    agent = {"gen_ai.agent.name": "payer"}
    async with make_engine(address, pay, approval=True) as engine:
        async with work(engine, address, meter_provider=provider):
            queue = DbosQueue(address, "payer")
            client = DurableClient(engine, queue)
            await client.submit("bill", key="a")
            await wait_for_state(engine, "a", "awaiting_approval")
            await wait_until(lambda: queue.count_waiting() == 0)
        for number, priority in enumerate((1, 2, 2)):
            stretch = await client.begin_turn("bill", key=f"b{number}", priority=priority)
        await queue.start(replace(stretch, key="later", due="2999-01-01T00:00:00Z"))
        served = make_queue_reader(address, engine.spec)()
        other = DbosQueue(address, "other")
        await other.start(Stretch(conversation="x", key="x", version="none"))
        points = collect(reader)
        queue.close()
        other.close()
    waits = {**agent, "toolchart.stretch.outcome": "waits"}
    assert points["toolchart.worker.stretch.duration"] == [(waits, 1)]
    lengths = {
        (point["toolchart.queue.state"], point["toolchart.queue.priority"]): value
        for point, value in points["toolchart.queue.length"]
    }
    assert lengths == {("waiting", 1): 1, ("waiting", 2): 2, ("delayed", 2): 1}
    assert {(row.state, row.priority): row.count for row in served} == lengths
    versions = {point["toolchart.version"] for point, _ in points["toolchart.queue.length"]}
    assert versions == {stretch.version}
    ((_, oldest_s),) = points["toolchart.queue.oldest"]
    assert oldest_s > 0
    for name in ("toolchart.queue.overdue", "toolchart.worker.running", "toolchart.worker.lost_leases"):
        assert points[name] == [(agent, 0)]


def test_metrics_without_a_database_are_those_of_the_worker() -> None:
    """A queue that cannot be read has no figures, and is no error for whoever collects."""
    from toolchart.engine.durable.fleet.metrics import FleetMetrics

    reader = InMemoryMetricReader()
    gone = "postgresql://nobody@127.0.0.1:1/none"
    metrics = FleetMetrics(
        MeterProvider(metric_readers=[reader]), "payer", lambda: read_queue_figures(gone, "q"), lambda: 3
    )
    metrics.note_handed_on(2)
    with metrics.measure_stretch():
        points = collect(reader)
    agent = {"gen_ai.agent.name": "payer"}
    assert points.get("toolchart.queue.length", []) == []
    assert points["toolchart.worker.running"] == [(agent, 1)]
    assert points["toolchart.worker.lost_leases"] == [(agent, 3)]
    assert points["toolchart.worker.handed_on"] == [(agent, 2)]


@pytest.mark.slow
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals need it")
def test_the_command_serves_metrics_for_prometheus(address: str) -> None:
    """`worker --metrics` prints where; the page has the metrics of worker, queue and turns."""
    printed, pages = io.StringIO(), list[str]()

    def scrape_and_stop() -> None:
        try:
            asyncio.run(wait_until(lambda: "works on" in printed.getvalue()))
            (url,) = re.findall(r"metrics at (http://127.0.0.1:\d+/metrics)", printed.getvalue())
            pages.append(httpx.get(url, trust_env=False, timeout=60).text)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with contextlib.redirect_stderr(printed):
        helper = threading.Thread(target=scrape_and_stop)
        helper.start()
        words = ["quickstart", "--dsn", address, "--metrics", "127.0.0.1:0", "--grace", "0"]
        code = worker_command.main(words, standalone_mode=False)
        helper.join()
    assert code == 0, printed.getvalue()
    (page,) = pages
    for name in ("toolchart_worker_running", "toolchart_queue_oldest_seconds", "toolchart_queue_overdue"):
        assert f'\n{name}{{gen_ai_agent_name="quickstart"' in page


@pytest.mark.parametrize(
    ("place", "problem"),
    [("9464", "HOST:PORT"), ("127.0.0.1:x", "HOST:PORT"), ("127.0.0.1:99999", "HOST:PORT")],
)
def test_metrics_need_an_address(place: str, problem: str) -> None:
    """What is no address is refused before anything begins."""
    words = ["quickstart", "--dsn", "postgresql://nobody@127.0.0.1:1/none", "--metrics", place]
    with pytest.raises((click.UsageError, SpecError), match=problem):
        worker_command.main(words, standalone_mode=False)
