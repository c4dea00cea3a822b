"""Files that the JSONL store keeps open: what other processes do to them is seen, and no lock is shared."""

from __future__ import annotations

import multiprocessing
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from toolchart.engine.log.leases import name_worker
from toolchart.engine.log.stores import jsonl
from toolchart.engine.log.stores.jsonl import JsonlStore
from toolchart.engine.log.stores.jsonl_files import lock_folder
from toolchart.states.errors import LeaseHeld, LeaseLost, LogBusy, LogConflict
from toolchart.states.ports import Lease, RecordBatch

WORKER, OTHER = name_worker(1), name_worker(2)


def append(
    store: JsonlStore, seq: int, name: str = "c", lease: Lease | None = None, *, wait: bool = True
) -> Any:
    """Append one line; the fault."""
    batch = RecordBatch(name, seq, [b'{"seq":%d,"at":"2026"}' % seq], lease)
    return store.append_many([batch], wait=wait)[0]


def count_lines(store: JsonlStore, name: str = "c") -> int:
    """How many lines a reader finds."""
    return len(list(store.read_lines(name)))


def test_a_conversation_that_another_store_deleted_is_not_written_on(tmp_path: Path) -> None:
    """Whoever has the files of a conversation open finds that they are deleted: the next record is refused
    and nothing is written into a file without a name; a new conversation with this id begins anew."""
    store, other = JsonlStore(tmp_path), JsonlStore(tmp_path)
    assert append(store, 0) is None
    assert append(store, 1) is None
    other.delete("c")
    assert isinstance(append(store, 2), LogConflict)
    assert append(other, 0) is None
    assert append(store, 1) is None
    assert [count_lines(store), count_lines(other)] == [2, 2]


def test_nobody_takes_the_lease_of_a_conversation_that_is_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that takes the lease between the look at it and the deletion keeps its conversation; while the
    files are deleted nobody can take it; afterwards nothing is left."""
    store, other = JsonlStore(tmp_path), JsonlStore(tmp_path)
    assert append(store, 0) is None
    commit, leases = store.commit, []

    def take_before(changes: Any, **options: Any) -> Any:
        if not leases:
            leases.append(other.acquire_lease("c", OTHER, 3600, wait=False))
        return commit(changes, **options)

    monkeypatch.setattr(store, "commit", take_before)
    with pytest.raises(LeaseHeld):
        store.delete("c")
    assert count_lines(other) == 1
    assert other.release_lease(leases[0], is_open=False)
    delete, tries = store._delete, []

    def take_meanwhile(conversation: str) -> None:
        with pytest.raises(LogBusy) as refused:
            other.acquire_lease("c", OTHER, 3600, wait=False)
        tries.append(refused.type)
        delete(conversation)

    monkeypatch.setattr(store, "_delete", take_meanwhile)
    store.delete("c")
    assert tries == [LogBusy]
    assert list(tmp_path.iterdir()) == []
    assert other.acquire_lease("c", OTHER, 3600, wait=False).worker == OTHER


def test_a_lease_that_another_worker_has_taken_is_seen(tmp_path: Path) -> None:
    """A store that has the file of a lease open reads it anew at each append, also after the conversation was
    deleted and begun again by somebody else."""
    store, other = JsonlStore(tmp_path), JsonlStore(tmp_path)
    lease = store.acquire_lease("c", WORKER, 0.0)
    assert append(store, 0, lease=lease) is None
    newer = other.acquire_lease("c", OTHER, 0.0)
    assert isinstance(append(store, 1, lease=lease), LeaseLost)
    assert append(other, 1, lease=newer) is None
    other.delete("c")
    newest = other.acquire_lease("c", OTHER, 3600)
    assert append(other, 0, lease=newest) is None
    assert isinstance(append(store, 1, lease=lease), LeaseLost)


def test_no_lock_outlives_an_append(tmp_path: Path) -> None:
    """After an append, and after one that was refused, another store appends without waiting; while an append
    of another store is under way, one that must not wait is refused with LogBusy and writes nothing."""
    store, other = JsonlStore(tmp_path), JsonlStore(tmp_path)
    assert append(store, 0) is None
    assert append(other, 1, wait=False) is None
    assert isinstance(append(store, 7), LogConflict)
    assert append(other, 2, wait=False) is None
    with lock_folder(other.folder, wait=False), pytest.raises(LogBusy):
        append(store, 3, wait=False)
    assert append(store, 3, wait=False) is None
    assert count_lines(store) == 4


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_was_forked_in_an_append_keeps_no_lock(tmp_path: Path) -> None:
    """Where a process forks while it has the lock, the lock ends with its append, though the child lives."""
    store, reading, writing = JsonlStore(tmp_path), *os.pipe()
    with lock_folder(tmp_path, wait=True):
        child = os.fork()
        if not child:
            os.read(reading, 1)
            os._exit(0)
    assert append(store, 0, wait=False) is None
    os.write(writing, b".")
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)


def _append_in_child(store: JsonlStore, go: Any) -> None:
    go.wait()
    for seq in range(50):
        append(store, seq, f"child{seq}")
        while isinstance(append(store, count_lines(store)), LogConflict):
            pass
    os._exit(0)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_locks_of_its_own(tmp_path: Path) -> None:
    """Parent and child append to one conversation at the same time with a store that was opened before the
    fork: no record is lost and none is written twice."""
    store = JsonlStore(tmp_path, durable=False)
    append(store, 0)
    context = multiprocessing.get_context("fork")
    go = context.Event()
    child = context.Process(target=_append_in_child, args=(store, go))
    child.start()
    go.set()
    for _ in range(50):
        while isinstance(append(store, count_lines(store)), LogConflict):
            pass
    child.join()
    assert child.exitcode == 0
    lines = list(store.read_lines("c"))
    assert lines == [b'{"seq":%d,"at":"2026"}' % seq for seq in range(101)]


def count_open_files(folder: Path) -> int:
    """How many files of a folder this process has open."""
    names = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    return sum(name.startswith(f"{folder.resolve()}/") for name in names)


def test_the_number_of_open_files_is_bounded(tmp_path: Path) -> None:
    """With more conversations than the store keeps open it opens the others again, and closes all at the
    end."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    store = JsonlStore(tmp_path, durable=False)
    store._kept_files.most = 10
    for seq in range(2):
        batches = [RecordBatch(f"c{n}", seq, [b'{"seq":%d,"at":"2026"}' % seq]) for n in range(40)]
        assert store.append_many(batches) == [None] * 40
        assert count_open_files(tmp_path) <= 10 < soft
    assert {count_lines(store, f"c{n}") for n in range(40)} == {2}
    store.close()
    assert count_open_files(tmp_path) == 0


def test_going_on_costs_the_same_for_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 7: a checkpoint is written without reading earlier ones, also in a store opened again, and
    the newest records and checkpoints are found from the end of their files."""
    store, parsed = JsonlStore(tmp_path, durable=False), 0
    decode_line = jsonl._decode_line

    def count(stored: bytes) -> Any:
        nonlocal parsed
        parsed += 1
        return decode_line(stored)

    monkeypatch.setattr(jsonl, "_decode_line", count)
    for number in range(300):
        line = b'{"seq":%d,"pad":"%s","hash":"%064d"}' % (number, b"x" * 500, number)
        store.append_many([RecordBatch("c", number, [line], checkpoint=(number, b"checkpoint" * 50))])
    assert parsed == 0
    store.close()
    store = JsonlStore(tmp_path, durable=False)
    monkeypatch.setattr(jsonl, "find_line", None)  # counts lines from the beginning of the file
    assert store.read_last_line("c") == (299, line)
    assert next(store.read_checkpoints("c")) == (299, b"checkpoint" * 50)
    assert [record[:10] for record in store.read_lines("c", 298)] == [b'{"seq":298', b'{"seq":299']
    line = line.replace(b"299", b"300")
    store.append_many([RecordBatch("c", 300, [line], checkpoint=(300, b"newest"))])
    assert next(store.read_checkpoints("c")) == (300, b"newest")
    assert parsed <= 4
