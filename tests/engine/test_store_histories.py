"""Histories of workers on one store: under every fault they are linearizable, and faulty stores are found."""

from __future__ import annotations

import itertools
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spin_models
from effort import choose_count
from msgspec.structs import replace
from postgres_database import create_database
from store_histories import START, Operation, Rules, find_order
from store_simulator import KINDS, BrokenHistory, Simulator, run_served_history

from toolchart.engine.log.stores import base, open_store, sqlite
from toolchart.engine.log.stores.base import StoreBase, ValueCheck
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.states.errors import LogBusy
from toolchart.states.ports import Lease, RecordBatch

SEEDS = choose_count(short=200, long=20_000)
WORKER, OTHER = "one:1", "other:2"


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """Switch off log messages: the simulated failures would fill the output."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_history_is_linearizable() -> None:
    """Appends, leases, inboxes and checkpoints of several workers answer as those of one after the other,
    under clocks that differ and jump, pauses, kills, torn writes, full disks, failed syncs and losses of
    power; what was acknowledged as durable is there afterwards. The seeds include each of these faults, and
    each store."""
    seen: Counter[str] = Counter()
    with Simulator() as simulator:
        for seed in range(SEEDS):
            world = simulator.run(seed)
            seen.update({*world.faults, world.profile.kind})
    assert {*KINDS, "jump", "pause", "kill", "torn", "short", "full", "sync", "power"} <= seen.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_one_history(kind: str) -> None:
    """The same seed gives the same story, whatever ran before."""
    with Simulator((kind,)) as simulator:
        stories = [[simulator.run(seed).story for seed in (3, 4, 5)] for _ in range(2)]
    assert [_drop_places(story) for story in stories[0]] == [_drop_places(story) for story in stories[1]]
    assert all(stories[0])


def _drop_places(story: list[str]) -> list[str]:
    """A story without names of temporary folders."""
    return [line.partition("Unknown(reason='the log ")[0] for line in story]


@pytest.mark.slow
def test_histories_in_postgresql_are_linearizable(postgres: str, tmp_path: Path) -> None:
    """The same holds of workers that use one PostgreSQL server at the same time, by way of a network that
    delays what they say and cuts their connections, before or after it is heard."""
    from psycopg.conninfo import conninfo_to_dict

    faults: set[str] = set()
    for seed in range(choose_count(short=5, long=300)):
        parts = conninfo_to_dict(create_database(postgres, tmp_path / str(seed)))
        port = parts.get("port", 5432)
        server = f"{parts['host']}/.s.PGSQL.{port}" if str(parts["host"]).startswith("/") else int(str(port))
        login = f"{parts.get('user', 'postgres')}:{parts.get('password') or ''}"

        def open_at(port: int, login: str = login, name: object = parts["dbname"]) -> Any:
            return open_store(f"postgresql://{login}@127.0.0.1:{port}/{name}")

        faults |= run_served_history(seed, "postgresql", server, open_at).faults
    assert "cut" in faults


# -- faults of the protocol and of the stores --------------------------------------------------------

_build_change = StoreBase._build_change
_next_lease = base.build_next_lease


def _append_under_any_token(self: StoreBase, batch: RecordBatch) -> Any:
    """A faulty store: an append is made under whatever lease there is."""
    return replace(_build_change(self, batch), check=None)


def _renew_without_comparing(self: StoreBase, leases: Any, seconds: float) -> list[bool]:
    """A faulty store: a lease is prolonged whoever has it by now."""
    renewed = [replace(lease, expires=self.read_time() + seconds) for lease in leases]
    self.commit([replace(base._build_swap(None, lease), check=None) for lease in renewed], sync=False)
    return [True] * len(renewed)


def _give_token_again(lease: Lease | None, *arguments: Any) -> Lease:
    """A faulty store: the lease after one that was given back has its token."""
    given = _next_lease(lease, *arguments)
    return replace(given, token=lease.token) if lease is not None and not lease.worker else given


def _never_fits(self: ValueCheck, data: bytes | None) -> bool:
    """A faulty store: it compares no values."""
    return True


_commit_sqlite = SqliteStore.commit


def _commit_sqlite_unsynced(self: SqliteStore, changes: Any, **options: Any) -> Any:
    return _commit_sqlite(self, changes, **options | {"sync": False})


FAULTS: dict[str, tuple[str, Any, str, Any]] = {
    "append ignores the token": ("memory", StoreBase, "_build_change", _append_under_any_token),
    "renewal compares nothing": ("memory", StoreBase, "renew_leases", _renew_without_comparing),
    "token comes again after a release": ("memory", base, "build_next_lease", _give_token_again),
    "a SQLite record is acknowledged before it is synced": (
        "sqlite",
        SqliteStore,
        "commit",
        _commit_sqlite_unsynced,
    ),
    "no value is compared": ("sqlite", ValueCheck, "fits", _never_fits),
}
"""By name: the kind of store, and what is put in the place of what. The first three are those of the
model."""

MOST_SEEDS = 600
"""Seeds after which a fault must have been found."""


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with this fault gives a history that nothing explains, or damage."""
    kind, place, name, faulty = FAULTS[fault]
    if kind not in KINDS:
        pytest.skip("SQLite is built into this Python: its files cannot be reached")
    monkeypatch.setattr(place, name, faulty)
    with pytest.raises(BrokenHistory):
        _run_seeds(kind)


def _run_seeds(kind: str) -> None:
    with Simulator((kind,)) as simulator:
        for seed in range(MOST_SEEDS):
            simulator.run(seed)


def test_the_checker_tells_histories_apart() -> None:
    """A read of a record before its append is begun, and one without it after it has ended, have no order; a
    read while it is under way may see it or not, and so may all after an append of unknown outcome."""

    def append(began: int, ended: int, result: Any = None) -> Operation:
        more = {"records": (1,), "lease": None, "taken": (), "checkpoint": None}
        return Operation("w", "append", "a", {"name": "a", "seq": 0, **more}, began, ended, result)

    def read(began: int, ended: int, *records: int) -> Operation:
        return Operation("w", "read", "a", {"name": "a"}, began, ended, records)

    def is_linearizable(*history: Operation) -> bool:
        return find_order(history, Rules(), START).is_found

    assert is_linearizable(append(1, 2), read(3, 4, 1))
    assert not is_linearizable(append(1, 2), read(3, 4))
    assert not is_linearizable(read(1, 2, 1), append(3, 4))
    assert is_linearizable(append(1, 6), read(2, 3), read(4, 5, 1))
    assert not is_linearizable(append(1, 6), read(2, 3, 1), read(4, 5))


@pytest.mark.slow
@pytest.mark.skipif(spin_models.IS_MISSING, reason=spin_models.REASON)
def test_the_model_of_leases_holds() -> None:
    """In every run of the model each number has one record, an append is made under the newest lease only,
    and nothing acknowledged is lost; with each fault, one of the three is not so."""
    assert spin_models.find_broken_lease_claims() == []
    for fault in spin_models.LEASE_FAULTS:
        assert spin_models.find_broken_lease_claims(fault), fault


def test_the_model_has_the_faults_that_are_simulated() -> None:
    """The three faults of leases have the same names in the simulator and in the model."""
    assert list(spin_models.LEASE_FAULTS)[:3] == list(FAULTS)[:3]


# -- what the simulator has found --------------------------------------------------------------------


def build_line(seq: int, filler: int = 0) -> bytes:
    """A line as the log has them."""
    return b'{"seq":%d,"text":"%b","hash":"%064x"}' % (seq, b"x" * filler, seq)


def test_a_worker_keeps_a_lease_only_that_it_has() -> None:
    """Where another worker takes the lease while one looks into the inbox to give it back, that one is told
    that it need not stay for the entries there."""
    store = MemoryStore()
    lease = store.acquire_lease("c", WORKER, 0.0)
    look = store.list_values
    looks = itertools.count()

    def look_late(*arguments: Any) -> Any:
        if not next(looks):
            store.acquire_lease("c", OTHER, 60)
            store.post("c", "key", b"yes")
        return look(*arguments)

    store.list_values = look_late  # type: ignore[method-assign]
    assert store.release_lease(lease, is_open=True)


def test_the_write_ahead_log_is_written_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite: after a commit that failed for the disk, the next one first writes `-wal` over itself and
    syncs it; one more does not."""
    store = SqliteStore(tmp_path / "log.db")
    store.append("c", 0, [build_line(0)])
    monkeypatch.setattr(store, "_has_doubtful_wal", True)
    steps = note_steps(monkeypatch)
    store.append("c", 1, [build_line(1)])
    store.append("c", 2, [build_line(2)])
    wal = os.stat(tmp_path / "log.db-wal").st_ino
    assert steps == [("fsync", wal), ("pwrite", wal), ("fsync", wal)], "the first tells what is known"
    assert len(list(store.read_lines("c"))) == 3


def note_steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the SQLite store writes and syncs itself, with the file of each."""
    steps: list[tuple[str, int]] = []

    def note(name: str) -> None:
        do = getattr(os, name)

        def call(handle: int, *arguments: Any) -> Any:
            steps.append((name, os.fstat(handle).st_ino))
            return do(handle, *arguments)

        monkeypatch.setattr(sqlite.os, name, call)

    note("fsync")
    note("pwrite")
    return steps


def test_who_opens_a_log_writes_its_write_ahead_log_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite: the system does not tell who opens a file late that a sync of it has failed. So a process that
    finds a `-wal` writes it over itself before its first commit; one that finds none has nothing to write."""
    first = SqliteStore(tmp_path / "log.db")
    steps = note_steps(monkeypatch)
    first.append("c", 0, [build_line(0)])
    assert steps == []
    second = SqliteStore(tmp_path / "log.db")
    second.append("c", 1, [build_line(1)])
    wal = os.stat(tmp_path / "log.db-wal").st_ino
    assert steps == [("fsync", wal), ("pwrite", wal), ("fsync", wal)]


@pytest.mark.parametrize("is_durable", [True, False])
def test_upkeep_asks_whether_a_sync_has_failed(
    is_durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite: before `-wal` is written back, a descriptor that was open all the time is asked whether a sync
    has failed: then `-wal` is written over itself first. At `normal` too: a file that is half written back is
    mended from `-wal` alone."""
    store = SqliteStore(tmp_path / "log.db", durable=is_durable)
    store.append("c", 0, [build_line(0)])
    wal = os.stat(tmp_path / "log.db-wal").st_ino
    sync, failures = os.fsync, [OSError(5, "Input/output error")]

    def fail_once(handle: int) -> None:
        if os.fstat(handle).st_ino == wal and failures:
            raise failures.pop()
        sync(handle)

    monkeypatch.setattr(sqlite.os, "fsync", fail_once)
    steps = note_steps(monkeypatch)
    store.do_upkeep()
    assert ("pwrite", wal) in steps
    store.do_upkeep()
    assert steps.count(("pwrite", wal)) == 1


def test_the_last_connection_writes_the_log_back(tmp_path: Path) -> None:
    """SQLite: who closes a log last leaves no `-wal`, and all records stand in the file."""
    store = SqliteStore(tmp_path / "log.db")
    store.append("c", 0, [build_line(0)])
    store.close()
    store.close()
    assert not (tmp_path / "log.db-wal").exists()
    assert len(list(SqliteStore(tmp_path / "log.db").read_lines("c"))) == 1


def test_a_lease_is_kept_for_an_entry_also_where_that_has_to_wait() -> None:
    """An entry that comes while a lease is given back keeps its worker, though another writer is at work when
    it takes the lease back: the worker is not told to ask again, when it would have none."""
    store = MemoryStore()
    lease = store.acquire_lease("c", WORKER, 60)
    commit, waits = store.commit, []

    def commit_late(changes: Any, *, wait: bool = True, sync: bool = True) -> Any:
        waits.append(wait)
        if len(waits) == 2 and not wait:
            raise LogBusy("another writer is at work")
        answers = commit(changes, wait=wait, sync=sync)
        if len(waits) == 1:
            waits.append(True)
            store.post("c", "key", b"yes")
            waits[:] = waits[:1]
        return answers

    store.commit = commit_late  # type: ignore[method-assign]
    assert not store.release_lease(lease, is_open=True, wait=False)
    assert store.find_lease("c") == lease
