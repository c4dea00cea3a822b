"""A worker on Temporal: performs stretches as activities, and runs the workflows that start them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import msgspec

from toolchart.engine.durable.performing import list_submitted, perform_stretch
from toolchart.engine.durable.stretches import Stretch, compute_version
from toolchart.engine.runtime.engine import GRACE_S, Engine
from toolchart.states.errors import DurableHostUnavailable, SpecError, ToolchartError, format_install

try:
    from temporalio import activity
    from temporalio.client import Client
    from temporalio.exceptions import ApplicationError
    from temporalio.service import RPCError, RPCStatusCode
    from temporalio.worker import Worker
except ImportError:
    raise SpecError("Temporal's SDK is not installed", hint=format_install("temporal")) from None

from toolchart.engine.durable.temporal_workflow import (
    ACTIVITY,
    BEAT_S,
    SIGNAL,
    WORKFLOW,
    ConversationWorkflow,
    build_version_queue,
)

_TASK_TIMEOUT = timedelta(seconds=5)
"""Most that one task of a workflow takes, which is milliseconds. A worker that ends may lose one, and the
conversation waits so long for the next worker."""

_UNREACHABLE = (RPCError, RuntimeError)
"""What the SDK raises where it cannot reach the server: the second where it was not connected before."""

_CLOSING_S = 5.0
"""Seconds that an activity has to return its rest, after the engine has stopped its turn."""


def build_queue_name(agent: str) -> str:
    """The task queue of an agent's workflows."""
    return f"toolchart/{agent}"


def build_workflow_id(agent: str, conversation: str) -> str:
    """The id of the workflow of a conversation."""
    return f"{agent}/{conversation}"


class TemporalHost:
    """Starts stretches of one agent on Temporal.

    Args:
        client: the connection to the server and its namespace; it belongs to the caller.
        agent: the name of the agent, as its spec has it.
    """

    def __init__(self, client: Client, agent: str) -> None:
        self._client = client
        self._agent = agent

    async def start(self, stretch: Stretch) -> None:
        """See `DurableHost.start`.

        Raises:
            SpecError: the stretch has a name that Temporal does not take.
        """
        try:
            # One call that starts the workflow where there is none, and signals it in any case: no signal
            # goes to one that has just ended.
            await self._client.start_workflow(
                WORKFLOW,
                id=build_workflow_id(self._agent, stretch.conversation),
                task_queue=build_queue_name(self._agent),
                task_timeout=_TASK_TIMEOUT,
                start_signal=SIGNAL,
                start_signal_args=[msgspec.to_builtins(stretch)],
            )
        except _UNREACHABLE as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise SpecError(f"Temporal does not take this: {error}") from None
            raise _build_error(error) from None


class StretchActivity:
    """The activity that performs stretches.

    Args:
        engine: runs the turns.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @activity.defn(name=ACTIVITY)
    async def perform(self, data: dict[str, Any]) -> dict[str, Any]:
        """Perform a stretch, with signs of life.

        Args:
            data: a stretch, as JSON.

        Returns:
            Its rest, as JSON.

        Raises:
            ApplicationError: it is no stretch; it is not tried again.
        """
        try:
            stretch = msgspec.convert(data, Stretch)
        except msgspec.ValidationError as error:
            raise ApplicationError(f"this is no stretch: {error}", non_retryable=True) from None
        work = asyncio.create_task(perform_stretch(self._engine, stretch))
        while not work.done():
            try:
                activity.heartbeat()
                # Not awaited itself: the work would be cancelled together with the activity.
                await asyncio.wait([work], timeout=BEAT_S)
            except asyncio.CancelledError:
                await self._hear_of_cancellation(stretch)
        return dict(msgspec.to_builtins(work.result()))

    async def _hear_of_cancellation(self, stretch: Stretch) -> None:
        """Cancel the turn where the workflow was cancelled; it ends as the chart says.

        Where Temporal takes the stretch away for another reason, the turn goes on. Cancelling its task would
        cancel the turn, and whoever gets the stretch next finds that the conversation is held.
        """
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            with suppress(ToolchartError):  # the turn has ended meanwhile
                await self._engine.conversation(stretch.conversation).acancel("its workflow was cancelled")


class TemporalWorker:
    """Performs the stretches of one agent that Temporal starts.

    Args:
        engine: runs the turns; its log is shared by the workers. Give it `longest_wait_s`, so that waits are
            left to Temporal.
        client: the connection to the server and its namespace; it belongs to the caller.
        concurrency: most stretches that it performs at once.
    """

    def __init__(self, engine: Engine, client: Client, *, concurrency: int = 16) -> None:
        self._engine = engine
        self._client = client
        self._concurrency = concurrency
        self.agent = engine.spec.name or "agent"
        self.version = compute_version(engine.conversation().build_configured_event().chart)

    @asynccontextmanager
    async def run(self, grace_s: float = GRACE_S) -> AsyncIterator[None]:
        """Work within the block, in its event loop; then let what runs end within the grace time.

        At the start it hands on the messages for its version whose sender has died before Temporal knew of
        them.

        Raises:
            DurableHostUnavailable: the server cannot be reached at the start.
            LogUnavailable: the log cannot be read at the start.
        """
        try:
            await self._client.service_client.check_health()
        except _UNREACHABLE as error:
            raise _build_error(error) from None
        queue = build_queue_name(self.agent)
        workflows = Worker(
            self._client,
            task_queue=queue,
            workflows=[ConversationWorkflow],
            sticky_queue_schedule_to_start_timeout=_TASK_TIMEOUT,
        )
        stretches = Worker(
            self._client,
            task_queue=build_version_queue(queue, self.version),
            activities=[StretchActivity(self._engine).perform],
            max_concurrent_activities=self._concurrency,
            max_heartbeat_throttle_interval=timedelta(seconds=BEAT_S),
            graceful_shutdown_timeout=timedelta(seconds=grace_s + _CLOSING_S),
        )
        async with workflows, stretches:
            try:
                host = TemporalHost(self._client, self.agent)
                for stretch in await asyncio.to_thread(list_submitted, self._engine.store, self.version):
                    await host.start(stretch)
                yield
            finally:
                await asyncio.gather(stretches.shutdown(), self._engine.astop(grace_s))


def _build_error(error: Exception) -> DurableHostUnavailable:
    return DurableHostUnavailable(f"Temporal cannot be used: {error}")
