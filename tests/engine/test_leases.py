"""Leases and inboxes in every store: one worker holds a conversation, whoever lost it appends nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from postgres_database import create_database
from written_logs import write_conversation

from toolchart.engine.log.leases import describe_worker, is_dead, name_worker
from toolchart.engine.log.reading.summaries import find_workers
from toolchart.engine.log.retention import list_conversation_ages
from toolchart.engine.log.stores import open_store, open_store_for_reading
from toolchart.states.errors import LeaseHeld, LeaseLost
from toolchart.states.ports import Lease, RecordBatch, Store

KINDS = ("memory", "sqlite", "postgres")
LONG_S = 3600.0
"""A lease that does not expire in a test."""
ALIVE, OTHER = name_worker(1), name_worker(2)
DEAD = ALIVE.replace(":", ":9").replace("/", "9999/")
"""A worker of this machine whose process does not exist."""


@pytest.fixture
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """A function that opens this test's log in a kind of store, the same one each time."""
    opened: list[Store] = []
    addresses = {"memory": "memory", "sqlite": str(tmp_path / "log.db")}

    def open_it(kind: str, *, for_reading: bool = False) -> Any:
        if kind == "memory" and opened:
            return opened[0]
        if kind == "postgres" and kind not in addresses:
            addresses[kind] = create_database(request.getfixturevalue("postgres"), tmp_path)
        opener = open_store_for_reading if for_reading else open_store
        opened.append(opener(addresses[kind]))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


def append(store: Any, seq: int, lease: Lease | None, name: str = "c", **more: Any) -> Any:
    """Append one line under a lease; the fault."""
    line = b'{"seq":%d,"hash":"%064d"}' % (seq, seq)
    return store.append_many([RecordBatch(name, seq, [line], lease, **more)])[0]


@pytest.mark.parametrize("kind", KINDS)
def test_one_worker_holds_a_conversation(kind: str, open_log: Callable[[str], Any]) -> None:
    """A second worker is refused with who works and since when, until the lease is released or expires; and
    every lease has a greater token than the one before."""
    first, second = open_log(kind), open_log(kind)
    lease = first.acquire_lease("c", ALIVE, LONG_S)
    with pytest.raises(LeaseHeld, match="is worked on by") as held:
        second.acquire_lease("c", OTHER, LONG_S)
    assert abs(held.value.since - time.time()) < 600
    assert [entry.worker for entry in second.list_leases()] == [ALIVE]
    assert list(first.renew_leases([lease], LONG_S)) == [True]
    assert first.release_lease(lease, is_open=False)
    next_lease = second.acquire_lease("c", OTHER, 0.0)
    assert next_lease.token > lease.token
    assert first.acquire_lease("c", ALIVE, LONG_S).token > next_lease.token, "the one before has expired"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])
def test_a_log_that_is_open_for_reading_shows_its_workers(kind: str, open_log: Callable[..., Any]) -> None:
    """A log that is open for reading alone tells who works on which conversation;
    and so do the ages of its conversations."""
    store = open_log(kind)
    write_conversation(store, name="held")
    write_conversation(store, name="free")
    store.acquire_lease("held", ALIVE, LONG_S)
    reader = open_log(kind, for_reading=True)
    assert find_workers(reader)["held"]["worker"] == describe_worker(ALIVE)
    ages = {age.conversation: age.is_held for age in list_conversation_ages(reader)}
    assert ages == {"held": True, "free": False}


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_worker_loses_its_lease_at_once(kind: str, open_log: Callable[[str], Any]) -> None:
    """The lease of a process of this machine that has ended is taken before it expires."""
    store = open_log(kind)
    assert is_dead(DEAD)
    assert not is_dead(ALIVE)
    store.acquire_lease("c", DEAD, 3600)
    assert store.list_leases() == []
    assert store.acquire_lease("c", ALIVE, LONG_S).worker == ALIVE


@pytest.mark.parametrize("kind", KINDS)
def test_the_token_decides_and_not_the_name_of_the_worker(kind: str, open_log: Callable[[str], Any]) -> None:
    """A worker that took its own lease again appends under the newer one alone: what it began under the older
    one, and may not know of, is refused; and the same token in another name is refused too."""
    first, second = open_log(kind), open_log(kind)
    old = first.acquire_lease("c", ALIVE, 0.0)
    assert append(first, 0, old) is None
    new = second.acquire_lease("c", ALIVE, LONG_S)
    assert (new.worker, new.token > old.token) == (old.worker, True)
    assert isinstance(append(first, 1, old), LeaseLost)
    assert list(first.renew_leases([old], LONG_S)) == [False]
    assert isinstance(append(first, 1, replace(new, worker=OTHER)), LeaseLost)
    assert first.release_lease(old, is_open=False), "the newer lease stays"
    assert append(second, 1, new) is None


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_lost_the_lease_appends_nothing(kind: str, open_log: Callable[[str], Any]) -> None:
    """DESIGN 7.6: an append under an older token is refused, also for a child; one without a lease is refused
    while a worker holds the conversation; and a group tells each batch apart."""
    first, second = open_log(kind), open_log(kind)
    lost = first.acquire_lease("c", ALIVE, 0.0)
    assert append(first, 0, lost) is None, "nobody has taken it"
    lease = second.acquire_lease("c", OTHER, LONG_S)
    assert isinstance(append(first, 1, lost), LeaseLost)
    assert isinstance(append(first, 0, lost, "c.1"), LeaseLost)
    assert isinstance(append(first, 1, None), LeaseHeld)
    assert list(first.renew_leases([lost], LONG_S)) == [False]
    assert first.release_lease(lost, is_open=False), "the lease of the other one stays"
    batches = [RecordBatch(name, seq, [b"{}"], lease) for name, seq in (("c", 1), ("c.1", 0), ("c.1", 9))]
    faults = second.append_many(batches)
    assert [type(fault).__name__ for fault in faults] == ["NoneType", "NoneType", "LogConflict"]
    with pytest.raises(LeaseHeld):
        first.delete("c")
    assert [len(list(first.read_lines(name))) for name in ("c", "c.1")] == [2, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_in_an_inbox_is_taken_once(kind: str, open_log: Callable[[str], Any]) -> None:
    """An entry is kept once for each key, stays until a record was appended with it, keeps the holder from
    giving the conversation back, and survives a holder that died before its record."""
    first, second = open_log(kind), open_log(kind)
    lease = first.acquire_lease("c", ALIVE, LONG_S)
    assert append(first, 0, lease) is None
    assert second.post("c", "one", b"yes")
    assert not second.post("c", "one", b"again")
    assert second.post("c", "two", b"no")
    entries = first.read_inbox(["c", "d"])
    assert [(entry.key, entry.data) for entry in entries] == [("one", b"yes"), ("two", b"no")]
    assert not first.release_lease(lease, is_open=False)
    assert append(first, 7, lease, taken=[entries[0].key]) is not None, "a batch that is refused"
    assert len(first.read_inbox(["c"])) == 2
    assert append(first, 1, lease, taken=[entries[0].key]) is None
    assert [entry.key for entry in second.read_inbox(["c"])] == ["two"]
    second.drop_entries("c", [entries[1].key])
    assert first.read_inbox(["c"]) == []
    assert not second.post("c", "one", b"yes"), "its key stays known"
    assert first.release_lease(lease, is_open=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_store_knows_what_is_unfinished(kind: str, open_log: Callable[[str], Any]) -> None:
    """`list_unfinished` names conversations of dead workers, with timers that are due, with entries, and
    those that no worker ever held; it leaves out ended, held and waiting ones, and children."""
    store = open_log(kind)

    def leave(name: str, worker: str = ALIVE, **rest: Any) -> Lease:
        lease = store.acquire_lease(name, worker, LONG_S)
        assert append(store, 0, lease, name) is None
        if rest:
            store.release_lease(lease, **rest)
        return lease

    held = leave("held")
    assert append(store, 0, held, "held.1") is None
    leave("dead", DEAD)
    leave("ended", is_open=False)
    leave("due", is_open=True, due=time.time() - 1)
    leave("later", is_open=True, due=time.time() + 3600)
    leave("waiting", is_open=True)
    leave("answered", is_open=True)
    store.post("answered", "key", b"yes")
    store.append("unknown", 0, [b"{}"])
    assert sorted(store.list_unfinished()) == ["answered", "dead", "due", "unknown"]
