"""Histories of workers on one store: under every fault they are linearizable, and faulty stores are found."""

from __future__ import annotations

import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spin_models
from effort import choose_count
from msgspec.structs import replace
from postgres_database import create_database
from store_histories import START, Operation, Rules, find_order
from store_simulator import KINDS, BrokenHistory, Simulator, run_served_history

from toolchart.engine.log.stores import base, jsonl, jsonl_files, open_store, sqlite
from toolchart.engine.log.stores.base import StoreBase, ValueCheck
from toolchart.engine.log.stores.jsonl import JsonlStore
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.states.errors import LogBusy, LogUnavailable, StorageFailure
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
    return True


def _skip(*_: Any, **__: Any) -> None:
    """A faulty store: it leaves out a step."""


_commit_jsonl, _commit_sqlite = JsonlStore.commit, SqliteStore.commit


def _commit_jsonl_unsynced(self: JsonlStore, changes: Any, **options: Any) -> Any:
    return _commit_jsonl(self, changes, **options | {"sync": False})


def _commit_sqlite_unsynced(self: SqliteStore, changes: Any, **options: Any) -> Any:
    return _commit_sqlite(self, changes, **options | {"sync": False})


FAULTS: dict[str, tuple[str, Any, str, Any]] = {
    "append ignores the token": ("memory", StoreBase, "_build_change", _append_under_any_token),
    "renewal compares nothing": ("memory", StoreBase, "renew_leases", _renew_without_comparing),
    "token comes again after a release": ("memory", base, "build_next_lease", _give_token_again),
    "a JSONL record is acknowledged before it is synced": (
        "jsonl",
        JsonlStore,
        "commit",
        _commit_jsonl_unsynced,
    ),
    "a SQLite record is acknowledged before it is synced": (
        "sqlite",
        SqliteStore,
        "commit",
        _commit_sqlite_unsynced,
    ),
    "names of files are not synced": ("jsonl", JsonlStore, "_sync_names", _skip),
    "a JSONL store compares no values": ("jsonl", ValueCheck, "fits", _never_fits),
    "lines of one change do not say that more follow": (
        "jsonl",
        jsonl,
        "join_lines",
        lambda lines: b"\n".join(lines) + b"\n",
    ),
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


def test_a_change_of_several_lines_is_there_as_a_whole(tmp_path: Path) -> None:
    """JSONL: wherever the write of a change of several lines is cut, none of them counts, nor what came with
    them; reading, going on and listing see the records before it."""
    first, second = [build_line(0), build_line(1, 30)], [build_line(2), build_line(3, 50), build_line(4)]
    whole = JsonlStore(tmp_path / "whole")
    whole.append("c", 0, first)
    size = (tmp_path / "whole" / "c.jsonl").stat().st_size
    whole.append("c", 2, second)
    data = (tmp_path / "whole" / "c.jsonl").read_bytes()
    assert list(whole.read_lines("c")) == [*first, *second]
    assert list(whole.read_lines("c", 3)) == second[1:]
    assert whole.read_last_line("c") == (4, second[-1])
    for cut in range(0, len(data), 5):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "c.jsonl").write_bytes(data[:cut])
        store = JsonlStore(folder)
        expected = first if cut >= size else []
        assert list(store.read_lines("c")) == expected, cut
        assert store.read_last_line("c") == ((1, first[1]) if expected else None), cut
        assert list(store.list_conversations()) == (["c"] if expected else []), cut
        store.append("c", len(expected), [build_line(len(expected))])
        assert [*store.read_lines("c")][len(expected) :] == [build_line(len(expected))], cut
        store.close()


def test_a_crash_before_the_first_record_is_no_damage(tmp_path: Path) -> None:
    """JSONL: a process that died between the checkpoint of a first record and the record leaves a line that
    does not count: `verify` finds no damage."""
    store = JsonlStore(tmp_path / "log")
    lease = store.acquire_lease("c", WORKER, 60)
    assert store.append_many([RecordBatch("c", 0, [build_line(0)], lease, (0, b"{}"))]) == [None]
    (tmp_path / "log" / "c.jsonl").unlink()
    assert list(JsonlStore(tmp_path / "log").check_storage()) == []


def test_a_checkpoint_that_is_not_kept_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSONL: `write_checkpoint` raises where the disk is full, as its promise says."""
    store = JsonlStore(tmp_path / "log")
    store.append("c", 0, [build_line(0)])
    monkeypatch.setattr(jsonl, "write_at", _raise_full)
    with pytest.raises(LogUnavailable, match="No space left"):
        store.write_checkpoint("c", 0, b"{}")


def _raise_full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


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


def _fail_once(calls: list[int]) -> Callable[[int], OSError | None]:
    """A sync that fails the first time."""

    def sync(handle: int) -> OSError | None:
        calls.append(handle)
        return OSError(5, "Input/output error") if len(calls) == 1 else None

    return sync


def test_what_was_not_synced_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSONL: an entry whose sync has failed is not in the inbox afterwards: the next one stands in its
    place, and not behind bytes that the disk may not have. A lease whose sync has failed is written anew by
    the next commit."""
    store = JsonlStore(tmp_path / "log")
    monkeypatch.setattr(jsonl, "_sync_file", _fail_once([]))
    with pytest.raises(LogUnavailable):
        store.post("c", "lost", b"1")
    assert store.post("c", "kept", b"2")
    assert [entry.key for entry in store.read_inbox(["c"])] == ["kept"]
    lease = store.acquire_lease("c", WORKER, 60)
    before = os.stat(tmp_path / "log" / "c.lease").st_ino
    batch = RecordBatch("c", 0, [build_line(0)], lease)
    monkeypatch.setattr(jsonl, "_sync_file", _fail_once([]))
    assert [type(fault) for fault in store.append_many([batch])] == [StorageFailure]
    assert os.stat(tmp_path / "log" / "c.lease").st_ino == before
    assert store.append_many([batch]) == [None]
    assert os.stat(tmp_path / "log" / "c.lease").st_ino != before


def test_an_entry_that_was_read_before_it_was_durable_takes_no_other_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSONL: a worker reads an entry whose sync then fails, so that it is cut off and another entry gets its
    number. The record that the worker makes from the first one takes that one alone: the other one still
    waits, and the key of the first one stays known, so it does not come twice."""
    store, worker = JsonlStore(tmp_path / "log"), JsonlStore(tmp_path / "log")
    lease = worker.acquire_lease("c", WORKER, 60)
    seen: list[Any] = []

    def look_and_fail(handle: int) -> OSError | None:
        if not seen:
            seen.extend(worker.read_inbox(["c"]))
            return OSError(5, "Input/output error")
        return None

    monkeypatch.setattr(jsonl, "_sync_file", look_and_fail)
    with pytest.raises(LogUnavailable):
        store.post("c", "lost", b"1")
    assert [entry.key for entry in seen] == ["lost"], "readers do not wait for the disk"
    assert store.post("c", "kept", b"2")
    taken = [entry.key for entry in seen]
    assert worker.append_many([RecordBatch("c", 0, [build_line(0)], lease, taken=taken)]) == [None]
    assert [entry.key for entry in worker.read_inbox(["c"])] == ["kept"]
    assert not store.post("c", "lost", b"1")


def test_no_line_follows_one_whose_record_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSONL: a dead worker has taken an entry with a record that may not be on the disk. Where it cannot be
    synced, nothing is written behind the line that names it: else that line would count without its record,
    and the entry would be lost."""
    folder = tmp_path / "log"
    dead = JsonlStore(folder)
    lease = dead.acquire_lease("c", WORKER, 60)
    dead.post("c", "key", b"yes")
    assert dead.append_many([RecordBatch("c", 0, [build_line(0)], lease, taken=["key"])]) == [None]
    before = (folder / "c.inbox").read_bytes()
    record = os.stat(folder / "c.jsonl").st_ino

    def fail(handle: int) -> OSError | None:
        return OSError(5, "Input/output error") if os.fstat(handle).st_ino == record else None

    monkeypatch.setattr(jsonl, "_sync_file", fail)
    with pytest.raises(LogUnavailable):
        JsonlStore(folder).post("c", "other", b"no")
    assert (folder / "c.inbox").read_bytes() == before
    monkeypatch.setattr(jsonl, "_sync_file", lambda handle: None)
    monkeypatch.setattr(jsonl, "sync_folder", _raise_full)  # the file of the record may be a new one
    with pytest.raises(LogUnavailable):
        JsonlStore(folder).post("c", "other", b"no")
    assert (folder / "c.inbox").read_bytes() == before


def test_a_second_entry_is_refused_for_a_durable_one_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSONL: where an entry stands in the file, a second one with its key is refused once the first one is on
    the disk: its process may have died before it was. Where it cannot be, the second one fails."""
    JsonlStore(tmp_path / "log").post("c", "key", b"1")
    inbox = os.stat(tmp_path / "log" / "c.inbox").st_ino
    steps: list[int] = []
    monkeypatch.setattr(jsonl.os, "fdatasync", lambda handle: steps.append(os.fstat(handle).st_ino))
    assert not JsonlStore(tmp_path / "log").post("c", "key", b"1")
    assert steps == [inbox]

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(jsonl.os, "fdatasync", fail)
    with pytest.raises(LogUnavailable):
        JsonlStore(tmp_path / "log").post("c", "key", b"1")


def test_what_is_cut_off_is_gone_before_it_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSONL: a line of a journal whose record is missing is longer than the one that takes its place. The cut
    is durable before that is written: else a loss of power could leave the end of the long one behind the
    short one."""
    folder = tmp_path / "log"
    store = JsonlStore(folder)
    lease = store.acquire_lease("c", WORKER, 60)
    store.post("c", "key", b"yes")
    assert store.append_many([RecordBatch("c", 0, [build_line(0)], lease, taken=["key"])]) == [None]
    (folder / "c.jsonl").unlink()
    steps: list[tuple[str, int]] = []
    cut, sync, write = os.ftruncate, os.fdatasync, os.pwrite
    inbox = os.stat(folder / "c.inbox").st_ino

    def note(name: str, do: Any) -> Any:
        def call(handle: int, *arguments: Any) -> Any:
            if os.fstat(handle).st_ino == inbox:
                steps.append(name)
            return do(handle, *arguments)

        return call

    monkeypatch.setattr(jsonl_files.os, "ftruncate", note("cut", cut))
    monkeypatch.setattr(jsonl_files.os, "fdatasync", note("sync", sync))
    monkeypatch.setattr(jsonl_files.os, "pwrite", note("write", write))
    assert JsonlStore(folder).post("c", "new", b"")
    assert steps == ["cut", "sync", "write", "sync"]


def test_pages_that_never_came_to_the_disk_are_no_damage(tmp_path: Path) -> None:
    """JSONL: after a failed sync and a loss of power the last change can lack pages, which read as zeros. It
    does not count, whichever of its bytes these are; the same zeros before a line that counts are damage."""
    first, second = [build_line(0)], [build_line(1, 30), build_line(2, 50)]
    whole = JsonlStore(tmp_path / "whole")
    whole.append("c", 0, first)
    size = (tmp_path / "whole" / "c.jsonl").stat().st_size
    whole.append("c", 1, second)
    data = (tmp_path / "whole" / "c.jsonl").read_bytes()
    for start in range(size, len(data) - 1, 7):
        for stop in (start + 1, len(data) - 1):
            torn = data[:start] + bytes(stop - start) + data[stop:]
            folder = tmp_path / f"{start}-{stop}"
            folder.mkdir()
            (folder / "c.jsonl").write_bytes(torn)
            store = JsonlStore(folder)
            assert list(store.read_lines("c")) == first, (start, stop)
            assert store.read_last_line("c") == (0, first[0])
            store.append("c", 1, [build_line(1)])
            assert list(store.read_lines("c")) == [*first, build_line(1)]
            (folder / "c.jsonl").write_bytes(torn + build_line(3) + b"\n")
            assert any(b"\0" in line for line in JsonlStore(folder).read_lines("c"))
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "c.jsonl").write_bytes(bytes(20) + b"}\n")
    (alone / "c.inbox").write_bytes(bytes(20) + b"}\n")
    assert list(JsonlStore(alone).list_conversations()) == []
    assert JsonlStore(alone).read_inbox(["c"]) == []


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


def test_who_goes_on_makes_durable_what_a_dead_worker_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSONL: whoever writes after a line that came with a record of another process waits for that one too,
    and for the names of the files in the folder: that process may have died before it did."""
    folder = tmp_path / "log"
    first = JsonlStore(folder)
    lease = first.acquire_lease("c", WORKER, 60)
    first.post("c", "key", b"yes")
    (entry,) = first.read_inbox(["c"])
    assert first.append_many([RecordBatch("c", 0, [build_line(0)], lease, taken=[entry.key])]) == [None]
    synced: set[int] = set()
    monkeypatch.setattr(jsonl, "_sync_file", lambda handle: synced.add(os.fstat(handle).st_ino))
    monkeypatch.setattr(jsonl, "sync_folder", lambda place: synced.add(os.stat(place).st_ino))
    second = JsonlStore(folder)
    assert second.post("c", "other", b"no")
    files = [folder, folder / "c.jsonl", folder / "c.inbox"]
    assert synced == {os.stat(path).st_ino for path in files}
    synced.clear()
    assert second.post("c", "third", b"no")
    assert synced == {os.stat(folder / "c.inbox").st_ino}, "once is enough"


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
