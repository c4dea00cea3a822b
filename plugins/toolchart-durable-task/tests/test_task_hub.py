"""Workers on Durable Task, with the backend in memory that its SDK brings; the equality of all hosts."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from durable_scripts import (
    FLOWS,
    Script,
    check_log,
    list_scripts,
    read_comparable_log,
    repeated_replies,
    run_all_in_process,
    run_all_on_host,
)
from effort import IS_LONG
from paying_agent import make_engine, read_waiting_calls, wait_until

from toolchart.engine import Engine
from toolchart.engine.durable.client import DurableClient
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided

pytest.importorskip("durabletask", reason="needs durabletask")

from durabletask.client import TaskHubGrpcClient
from durabletask.testing import create_test_backend
from durabletask.worker import TaskHubGrpcWorker

from toolchart_durable_task import TaskHub, TaskHubWorker


@pytest.fixture
def scheduler() -> Iterator[str]:
    """The address of a scheduler in memory, of one test: a worker may end before it has reported its work,
    and the next test's worker would get it."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family) as holder:  # it never listens; nobody else can take the port while it is open
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # the server sets it too
        holder.bind(("", 0))
        port = holder.getsockname()[1]
        backend = create_test_backend(port=port)
        yield f"localhost:{port}"
        backend.stop()


@contextlib.asynccontextmanager
async def work(engine: Engine, scheduler: str) -> AsyncIterator[DurableClient]:
    """Let a worker work within the block; what hands messages over to it."""
    with contextlib.closing(TaskHubGrpcClient(host_address=scheduler)) as client:
        async with TaskHubWorker(engine, TaskHubGrpcWorker(host_address=scheduler)).run(60.0):
            yield DurableClient(engine, TaskHub(client))


def has_state(engine: Engine, conversation: str, state: str) -> bool:
    """Whether the log has a conversation in a state."""
    try:
        return engine.describe_turn(conversation).state == state
    except SpecError:  # it has not begun
        return False


async def test_a_task_hub_runs_what_others_hand_over(scheduler: str) -> None:
    """A turn waits for an approval across the end of its worker. The decision that is handed over afterwards
    is carried out by the next worker; a key that is used twice runs one turn. The log replays."""
    store, payments = MemoryStore(), []

    def pay(arguments: Any) -> str:
        payments.append(arguments["text"])
        return "paid"

    async with make_engine(store, pay, approval=True) as engine, work(engine, scheduler) as client:
        for _ in range(2):
            await client.submit("the bill", key="hub")
        await wait_until(lambda: has_state(engine, "hub", "awaiting_approval"))
    async with make_engine(store, pay, approval=True) as engine:
        (call,) = read_waiting_calls(engine, "hub")
        async with work(engine, scheduler) as client:
            await client.decide("hub", Decided(call_id=call.id, approved=True))
            await wait_until(lambda: has_state(engine, "hub", "finished"))
    types = [step.record.event["type"] for step in replay_conversation(store, "hub")]
    assert (payments, types.count("turn_started")) == (["the bill"], 1)
    assert list(replay_conversation(store, "hub"))


async def test_azures_client_and_worker_run_a_conversation(scheduler: str) -> None:
    """Issue 18: the page's recipe for Azure's scheduler, with client and worker of its package, runs a
    conversation; the scheduler in memory stands for Azure's, as its emulator does."""
    pytest.importorskip("durabletask.azuremanaged", reason="needs `durabletask.azuremanaged`")
    page = (Path(__file__).resolve().parents[1] / "README.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (code,) = [block for block in blocks if "azuremanaged" in block]
    recipe: dict[str, Any] = {"__name__": "azure_recipe"}
    exec(compile(code, "README.md", "exec"), recipe)  # noqa: S102  our own text
    assert recipe["AZURE"].keys() == recipe["EMULATOR"].keys()
    stop, payments = asyncio.Event(), []

    def pay(arguments: Any) -> str:
        payments.append(arguments["text"])
        return "paid"

    async with make_engine(MemoryStore(), pay) as engine:
        work_in_azure = recipe["work_in_azure"](engine, scheduler, "default", stop, **recipe["EMULATOR"])
        async with asyncio.TaskGroup() as group:
            group.create_task(work_in_azure)
            await wait_until(lambda: has_state(engine, "invoice-17", "finished"))
            stop.set()
    assert payments == ["Check invoice 17."]


SHORT = ("tool", "approval", "denial", "cancellation", "timer", "map_reduce", "triage")
SCRIPTS = [script for script in list_scripts(FLOWS) if IS_LONG or script.name in SHORT]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_a_task_hub_writes_the_log_that_the_engine_writes(scheduler: str, script: Script) -> None:
    """What people do in a conversation gives the same records through Durable Task as with the engine alone,
    times and hashes apart. Both logs verify and replay."""
    alone, shared = MemoryStore(), MemoryStore()
    with repeated_replies():
        await run_all_in_process(script, alone)
        async with script.make_engine(shared) as engine, work(engine, scheduler) as client:
            await run_all_on_host(engine, client, script)
    assert read_comparable_log(shared) == read_comparable_log(alone)
    for store in (alone, shared):
        check_log(store)
