"""A worker on Temporal's development server for the length of a block, and looks at what it did."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from durable_workers import make_engine
from killed_process import append_mark
from temporal_histories import fetch_runs
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from toolchart.engine import Engine
from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.temporal_worker import StretchActivity, TemporalHost, TemporalWorker
from toolchart.engine.durable.temporal_workflow import ConversationWorkflow
from toolchart.engine.log.replay import replay_conversation
from toolchart.states.errors import NotFound


@asynccontextmanager
async def work(engine: Engine, server: str, **options: Any) -> AsyncIterator[DurableClient]:
    """Let a worker work within the block; what hands messages over to it."""
    client = await Client.connect(server)
    worker = TemporalWorker(engine, client, **options)
    async with worker.run(5.0):
        yield DurableClient(engine, TemporalHost(client, worker.agent))


async def wait_until(has_happened: Callable[[], bool]) -> None:
    """Return when something has happened; what the server notices by its own clock takes seconds."""
    async with asyncio.timeout(120):
        while not has_happened():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def has_state(engine: Engine, conversation: str, state: str) -> bool:
    """Whether the log has a conversation in a state."""
    try:
        return engine.conversation(conversation).read_turn().state == state
    except NotFound:  # it has not begun
        return False


def list_events(engine: Engine, conversation: str) -> list[Any]:
    """The events of a conversation, the oldest first."""
    return [step.record.event for step in replay_conversation(engine.store, conversation)]


async def replay_runs(client: Client, id_: str) -> list[WorkflowHistory]:
    """Replay each run of a workflow with the workflow as it is now; the histories, the oldest first.

    Raises:
        NondeterminismError: one is not what the workflow does.
    """
    runs = await fetch_runs(client, id_)
    for run in runs:
        await Replayer(workflows=[ConversationWorkflow]).replay_workflow(run)
    return runs


def run_worker_that_dies_before_its_report(address: str, server: str, marks: Path) -> None:
    """Work until a turn is over in the log; the process then kills itself, before Temporal hears of it."""

    async def pay(arguments: Any) -> str:
        return "paid"

    build_report = StretchActivity._build_report

    def die(self: StretchActivity, conversation: str, rest: Any) -> Any:
        assert build_report(self, conversation, rest).is_closed
        append_mark(marks, rest.outcome)
        os.kill(os.getpid(), signal.SIGKILL)

    StretchActivity._build_report = die  # type: ignore[method-assign]

    async def run() -> None:
        client = await Client.connect(server)
        async with make_engine(address, pay) as engine, TemporalWorker(engine, client).run():
            await asyncio.Event().wait()

    asyncio.run(run())
