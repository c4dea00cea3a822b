"""A worker on the Durable Task framework: performs stretches as activities of small orchestrations.

An orchestration performs one stretch and continues as the next one, so its history stays short. Its instance
id is that of the first stretch; the scheduler keeps one of each. Waiting for a time is a durable timer of the
scheduler; a conversation that waits for somebody ends its orchestration, and whoever hands something over
starts another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, cast

import grpc
from durabletask.client import TaskHubGrpcClient
from durabletask.task import OrchestrationContext
from durabletask.worker import (
    TaskHubGrpcWorker,
    VersionFailureStrategy,
    VersioningOptions,
    VersionMatchStrategy,
)

from toolchart import DurableHostUnavailable, Engine
from toolchart.engine.durable import (
    GRACE_S,
    Stretch,
    compute_version,
    decode_rest,
    decode_stretch,
    encode_rest,
    encode_stretch,
    perform_stretch,
    plan_next,
)

ORCHESTRATOR = "toolchart_stretch"
"""Name of the orchestration that performs a stretch and those that follow it: that of its function."""

ACTIVITY = "toolchart_perform"
"""Name of the activity that performs one stretch."""


class TaskHub:
    """Starts stretches in a task hub.

    Args:
        client: the connection to its scheduler; it belongs to the caller.
    """

    def __init__(self, client: TaskHubGrpcClient) -> None:
        self._client = client

    async def start(self, stretch: Stretch) -> None:
        """See `DurableHost.start`."""
        await asyncio.to_thread(self._schedule, stretch)

    def _schedule(self, stretch: Stretch) -> None:
        try:
            self._client.schedule_new_orchestration(
                ORCHESTRATOR,
                input=encode_stretch(stretch),
                instance_id=stretch.id,
                version=stretch.version or None,
            )
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
                raise DurableHostUnavailable(f"the task hub cannot be used: {error.details()}") from None


class TaskHubWorker:
    """Performs the stretches of one agent that a task hub starts.

    Args:
        engine: runs the turns; its log is shared by the workers. Give it `longest_wait_s`, so that waits are
            left to the task hub.
        worker: the connection to the scheduler, not started; it belongs to this worker from now on. It takes
            orchestrations of the version of the engine's chart only.
    """

    def __init__(self, engine: Engine, worker: TaskHubGrpcWorker) -> None:
        self._engine = engine
        self._worker = worker
        self._loop: asyncio.AbstractEventLoop | None = None
        self.version = compute_version(engine.build_configured_event("").chart)
        worker.use_versioning(
            VersioningOptions(
                version=self.version,
                match_strategy=VersionMatchStrategy.STRICT,
                failure_strategy=VersionFailureStrategy.REJECT,
            )
        )

        def toolchart_perform(_: Any, text: str) -> str:
            return self._run_activity(text)

        worker.add_orchestrator(cast("Any", toolchart_stretch))
        worker.add_activity(toolchart_perform)

    @asynccontextmanager
    async def run(self, grace_s: float = GRACE_S) -> AsyncIterator[None]:
        """Work within the block, in its event loop; then let what runs end within the grace time."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._worker.start)
        try:
            yield
        finally:
            await self._engine.astop(grace_s)
            await asyncio.to_thread(self._worker.stop)

    def _run_activity(self, text: str) -> str:
        """The activity; it is called in a thread of the SDK."""
        assert self._loop is not None, "the worker was started"
        work = perform_stretch(self._engine, decode_stretch(text))
        return encode_rest(asyncio.run_coroutine_threadsafe(work, self._loop).result())


def toolchart_stretch(context: OrchestrationContext, text: str) -> Generator[Any, Any, str | None]:
    """The orchestration: wait until a stretch begins, perform it, and continue as what follows from it."""
    stretch = decode_stretch(text)
    if stretch.due is not None:
        yield context.create_timer(datetime.fromisoformat(stretch.due))
    elif stretch.pause_s > 0:
        yield context.create_timer(timedelta(seconds=stretch.pause_s))
    rest = yield context.call_activity(ACTIVITY, input=text)
    successor = plan_next(stretch, decode_rest(rest))
    if successor is None:
        return str(rest)
    context.continue_as_new(encode_stretch(successor))
    return None
