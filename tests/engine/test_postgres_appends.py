"""Appends to PostgreSQL in one or two messages: what another process did meanwhile counts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from postgres_database import create_database

from toolchart.engine.log.leases import name_worker
from toolchart.engine.log.stores.postgres import PostgresStore
from toolchart.states.errors import LeaseLost, LogConflict, ToolchartError
from toolchart.states.ports import Lease, RecordBatch

psycopg = pytest.importorskip("psycopg", reason="needs the extra `postgres`")

TAKE_OVER = "UPDATE toolchart_small_values SET data = '2 another' WHERE conversation = 'c' AND kind = 'lease'"
APPEND = (
    "INSERT INTO toolchart_records SELECT (number << 32) + 1, 'x' FROM toolchart_conversations WHERE id = 'c'"
)
IS_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


def make_batches(leases: Sequence[Lease], first_seq: int) -> list[RecordBatch]:
    """A line for the conversation of each lease."""
    return [RecordBatch(lease.conversation, first_seq, [b"{}"], lease) for lease in leases]


@pytest.mark.parametrize("names", [("c",), ("c", "d")], ids=["alone", "group"])
@pytest.mark.parametrize(
    ("statements", "fault"), [((TAKE_OVER,), LeaseLost), ((APPEND,), LogConflict)], ids=["lease", "record"]
)
def test_an_append_that_waited_for_another_process_is_refused(
    postgres: str, tmp_path: Path, names: tuple[str, ...], statements: tuple[str, ...], fault: Any
) -> None:
    """Where the lease was taken over, or the next record was written, in a transaction that ends while the
    append waits for it, the append is refused with the reason; the others of its group are written."""
    address = create_database(postgres, tmp_path)
    store = PostgresStore(address)
    leases = [store.acquire_lease(name, name_worker(1), 30.0) for name in names]
    assert list(store.append_many(make_batches(leases, 0))) == [None] * len(names)
    faults: list[ToolchartError | None] = []
    with psycopg.connect(address) as other, psycopg.connect(address, autocommit=True) as watcher:
        for statement in statements:
            other.execute(statement)
        thread = threading.Thread(target=lambda: faults.extend(store.append_many(make_batches(leases, 1))))
        thread.start()
        while watcher.execute(IS_WAITING).fetchone() == (0,):
            assert thread.is_alive(), faults
        other.commit()
        thread.join()
    assert isinstance(faults[0], fault), faults
    assert faults[1:] == [None] * len(names[1:])
    assert [len(list(store.read_lines(name))) for name in names[1:]] == [2] * len(names[1:])
    store.close()
