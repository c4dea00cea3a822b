"""An approval that waits while every worker and the database end and come back."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from durable_workers import make_engine, run_worker, wait_for_state
from paying_agent import read_waiting_calls, wait_until
from postgres_database import create_database, restart_server, run_server

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.events import Decided

pytest.importorskip("dbos", reason="needs the extra `durable`")

from toolchart.engine.durable.dbos_queue import DbosQueue

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[Any]:
    """A PostgreSQL server of this test's own, which it may restart."""
    with run_server() as server:
        yield server


@contextmanager
def work_until_killed(address: str, marks: Path) -> Iterator[None]:
    """Let a worker that supervises work in a process of its own within the block; then it is killed."""
    context = multiprocessing.get_context("spawn")
    has_begun = context.Event()
    options = {"hangs": False, "supervises": True}
    process = context.Process(target=run_worker, args=(address, marks, has_begun), kwargs=options)
    process.start()
    try:
        assert has_begun.wait(300), "the worker has not begun"
        yield
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    finally:
        process.kill()
        process.join()


async def never_pay(arguments: Any) -> str:
    """The engine of the test runs no turn."""
    raise AssertionError("the payment was not made by a worker")


async def test_an_approval_waits_across_a_restart_of_everything(server: Any, tmp_path: Path) -> None:
    """The only worker is killed and the database is restarted while a call waits for its approval. Whoever
    connects then approves it, and a new worker makes the payment, once, and ends the turn; what the queue had
    left of the killed worker ends too."""
    address, marks = create_database(server.get_uri(), tmp_path), tmp_path / "marks"
    marks.touch()
    with work_until_killed(address, marks):
        async with make_engine(address, never_pay, approval=True) as engine:
            queue = DbosQueue(address, "payer")
            await DurableClient(engine, queue).submit("the bill", key="c")
            await wait_for_state(engine, "c", "awaiting_approval")
            queue.close()
    restart_server(server)
    assert marks.read_text() == ""
    async with make_engine(address, never_pay, approval=True) as engine:
        (call,) = read_waiting_calls(engine, "c")
        queue = DbosQueue(address, "payer")
        await DurableClient(engine, queue).decide("c", Decided(call_id=call.id, approved=True, by="anna"))
        with work_until_killed(address, marks):
            await wait_for_state(engine, "c", "finished")
            await wait_until(lambda: queue.count_waiting() == 0)
        queue.close()
        assert marks.read_text() == "the bill\n"
        (outcome,) = verify_store(engine.store)
        assert isinstance(outcome, VerifiedConversation)
        assert list(replay_conversation(engine.store, "c"))
