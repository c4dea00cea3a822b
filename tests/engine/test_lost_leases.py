"""Leases that nobody wants any more are given back, after a cancellation and after an error."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from paying_agent import make_engine, read_waiting_calls, wait_until
from worker_names import ALIVE, DEAD

from toolchart.engine.log import leases
from toolchart.engine.log.group_commit import LeaseKeeper, LogWriter
from toolchart.engine.log.stores import open_store
from toolchart.engine.turns.inbox import HANDED_OVER
from toolchart.states.errors import LogUnavailable
from toolchart.states.events import Decided

LONG_S = 3600.0
"""A lease that does not expire in a test."""


def pay(arguments: Any) -> str:
    """A payment."""
    return "paid"


async def test_a_turn_cancelled_while_its_lease_is_taken_gives_it_back(tmp_path: Path) -> None:
    """A caller that is cancelled while the store is busy with its lease leaves none behind: another worker
    runs the conversation at once, and `recover` finds what it would have found before."""
    path = tmp_path / "log.db"
    first = make_engine(open_store(path), pay, lease_s=LONG_S)
    second = make_engine(open_store(path), pay, lease_s=LONG_S)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    turn = asyncio.ensure_future(first.arun("go", conversation="c"))
    writer: Any = first._log._writer
    await wait_until(lambda: writer.job_count)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    other.execute("ROLLBACK")
    other.close()
    first._log.drain()
    store: Any = second.store
    await wait_until(lambda: not store.list_leases())
    assert await second.arecover() == []
    assert (await second.arun("go", conversation="c")).content == "paid go"
    for engine in (first, second):
        await engine.aclose()
        engine.store.close()


@pytest.mark.parametrize("worker", ["dead", "nobody"])
async def test_a_lease_that_is_given_back_unused_leaves_the_conversation_as_it_was(worker: str) -> None:
    """`recover` goes on with the turn of a dead worker also after somebody took its lease and did not want it
    any more; a turn that waits for a person stays as it was."""
    store: Any = open_store("memory")
    engine = make_engine(store, pay, approval=True)
    await engine.arun("go", conversation="c")
    if worker == "dead":
        store.acquire_lease("c", DEAD, LONG_S)
    lease = store.acquire_lease("c", ALIVE, LONG_S)
    assert store.release_lease(lease, is_open=True, due=lease.due)
    assert list(store.list_unfinished()) == (["c"] if worker == "dead" else [])


async def test_a_lease_that_cannot_be_given_back_is_not_kept() -> None:
    """Where the caller is cancelled while the lease is given back, and giving it back fails then, the engine
    keeps it no longer: it is not renewed for ever, and the engine takes the conversation up again."""
    engine = make_engine(open_store("memory"), pay)
    leases: Any = engine._log.leases
    release, has_begun, may_fail = leases.release, asyncio.Event(), asyncio.Event()

    async def fail_slowly(*_: Any, **__: Any) -> bool:
        has_begun.set()
        await may_fail.wait()
        raise LogUnavailable("the disk is full")

    leases.release = fail_slowly
    turn = asyncio.ensure_future(engine.arun("go", conversation="c"))
    await has_begun.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    may_fail.set()
    await wait_until(lambda: leases.find("c") is None)
    leases.release = release
    assert (await engine.arun("again", conversation="c")).is_over
    await engine.aclose()


def test_a_conversation_goes_on_after_its_event_loop_died_while_it_was_given_back() -> None:
    """A program may close its event loop in the middle of anything. The engine takes the conversation up
    again on the next one, and nobody waits for the dead one."""
    engine = make_engine(open_store("memory"), pay)
    leases: Any = engine._log.leases
    release, has_begun, never = leases.release, asyncio.Event(), asyncio.Event()

    async def hang(*_: Any, **__: Any) -> bool:
        has_begun.set()
        await never.wait()
        return True

    leases.release = hang
    loop = asyncio.new_event_loop()
    turn = loop.create_task(engine.arun("go", conversation="c"))
    loop.run_until_complete(has_begun.wait())
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(turn)
    loop.close()
    leases.release = release
    assert leases.find("c") is not None
    assert engine.run("again", conversation="c").is_over
    engine.close()


async def test_a_decision_is_left_for_a_turn_that_begins_meanwhile() -> None:
    """A decision for a conversation that another worker holds is left in its inbox also where a turn of this
    very engine begins in between: the caller hears that somebody else goes on, and gets no error."""
    store: Any = open_store("memory")
    engine = make_engine(store, pay, approval=True)
    await engine.arun("go", conversation="c")
    (call,) = read_waiting_calls(engine, "c")
    lease = store.acquire_lease("c", ALIVE, LONG_S)
    leases = engine.leases
    post = leases.post

    async def post_and_begin(*arguments: Any) -> None:
        await post(*arguments)
        leases._claimed.add("c")

    leases.post = post_and_begin  # type: ignore[method-assign]
    result = await engine.conversation("c").aresume(Decided(call_id=call.id, approved=True))
    assert HANDED_OVER in result.warnings
    leases._claimed.discard("c")
    assert len(store.read_inbox(["c"])) == 1
    store.renew_leases([lease], 0.0)
    (turn,) = await engine.arecover()
    assert turn.result is not None
    assert turn.result.content == "paid go"
    await engine.aclose()


async def test_a_lease_that_is_given_back_while_it_is_prolonged_is_not_lost() -> None:
    """On a busy machine the answer to a renewal may come before that to the release which went before it: the
    lease is gone because it was given back, and nobody has taken it over."""
    store: Any = open_store("memory")
    writer = LogWriter(store)
    keeper = LeaseKeeper(store, writer, LONG_S)
    losses: list[str] = []
    keeper.on_loss = losses.append
    await keeper.acquire("c")
    held: Any = keeper.find("c")
    blocked = threading.Event()
    waiting = asyncio.ensure_future(writer.submit(blocked.wait))
    release = asyncio.ensure_future(keeper.release("c", is_open=False, due=None))
    await asyncio.sleep(0)
    renewal = asyncio.ensure_future(keeper._renew([held]))
    await asyncio.sleep(0)
    blocked.set()
    await asyncio.gather(waiting, renewal)
    assert await release
    assert losses == []
    writer.drain()


def test_a_process_reads_its_name_once_and_again_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/proc` is read once for all turns of a process; a child of it is another worker."""
    pids: list[int] = []
    monkeypatch.setattr(leases, "_read_start_time", lambda pid: pids.append(pid) or "7")
    leases._name_process.cache_clear()
    names = [leases.name_worker(number) for number in (1, 2, 2)]
    monkeypatch.setattr(os, "getpid", lambda: 4_000_000)
    names.append(leases.name_worker(2))
    leases._name_process.cache_clear()
    assert len(pids) == 2
    assert len(set(names)) == 3
