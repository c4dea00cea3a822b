"""What a supervisor reads beside conversations that have ended: queries, rows and milliseconds of a look.

    python benchmarks/supervisor.py [10000 100000 1000000]

The database is filled from size to size with copies of one conversation that has ended, with what the log and
the queue keep of it, but one record each. Beside them one conversation waits for a person, one was left by a
dead worker, and one was begun by nobody in particular. Then two real workers rest for a while, one after the
other, and one of them supervises: connections, and a second of it transactions, what the server reads for it,
and the processor time of the worker and of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import conftest  # noqa: F401  makes a checkout importable

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import psutil
import psycopg
from durable_workers import make_engine, wait_for_state, work
from ended_conversations import add_ended, count_looks, read_counters
from paying_agent import read_waiting_calls, wait_until
from postgres_database import create_database, run_server
from worker_names import DEAD

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.dbos_queue import DbosQueue
from toolchart.engine.log.stores import open_store
from toolchart.states.events import Decided

LOOKS = 100
"""A multiple of ten: at every tenth look a supervisor looks for messages too."""

REST_S = 20.0


async def _pay(arguments: object) -> str:
    return "paid"


async def prepare(address: str) -> None:
    """One conversation that has ended, and three that have not."""
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


async def rest(address: str, *, supervises: bool) -> str:
    """What a worker costs that has nothing to do: one of another agent, so that what is open stays so."""
    async with (
        make_engine(address, _pay, approval=True, name="idle") as engine,
        work(engine, address, supervises=supervises),
    ):
        await asyncio.sleep(12.0)  # what nobody uses is closed
        connections, first = _read_activity(address)
        begun_s, own_s, server_s = time.perf_counter(), time.process_time(), _read_server_s(address)
        await asyncio.sleep(REST_S)
        own_s, server_s = time.process_time() - own_s, _read_server_s(address) - server_s
        seconds = time.perf_counter() - begun_s
        count = _read_activity(address)[1] - first
    return (
        f"{connections} connections, {count / seconds:.1f} transactions/s, "
        f"processors: {own_s / seconds:.3f}, of the server {server_s / seconds:.3f}"
    )


def _read_server_s(address: str) -> float:
    """Processor seconds of the server so far."""
    with psycopg.connect(address, autocommit=True) as db:
        postmaster = psutil.Process(db.info.backend_pid).parent()
        assert postmaster is not None
        ended = postmaster.cpu_times()
        alive = [process.cpu_times() for process in (postmaster, *postmaster.children())]
    return ended.children_user + ended.children_system + sum(times.user + times.system for times in alive)


def _read_activity(address: str) -> tuple[int, int]:
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("SELECT pg_stat_clear_snapshot()")
        row = db.execute(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND backend_type = 'client backend' AND pid <> pg_backend_pid()), xact_commit + xact_rollback "
            "FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None, "it has one row"
    return int(row[0]), int(row[1])


async def measure(address: str, sizes: list[int]) -> None:
    """Fill the database from size to size, and print a line for each."""
    await prepare(address)
    filled = 0
    print("     ended   ms/look  queries/look  rows/look")
    for size in sizes:
        await asyncio.to_thread(add_ended, address, "ends", filled, size - filled, records=1)
        filled = size
        reads = await count_looks(address, "payer", LOOKS)
        figures = (
            f"{reads.seconds / LOOKS * 1000:9.2f} {reads.queries / LOOKS:13.1f} {reads.rows / LOOKS:10.1f}"
        )
        print(f"{size:10,d} {figures}", flush=True)
        for name, supervises in (("a worker", False), ("a worker that supervises", True)):
            before, start_s = read_counters(address), time.perf_counter()
            activity = await rest(address, supervises=supervises)
            rows = (read_counters(address) - before) / (time.perf_counter() - start_s)
            print(f"{name:>36} at rest: {activity}; {rows:.0f} rows/s", flush=True)


def main() -> None:
    """Measure on a server of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    sizes = sorted(parser.parse_args().sizes)
    with run_server() as server, tempfile.TemporaryDirectory() as folder:
        address = create_database(server.get_uri(), Path(folder))
        asyncio.run(measure(address, sizes))


if __name__ == "__main__":
    main()
