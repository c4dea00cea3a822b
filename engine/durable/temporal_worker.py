"""A worker on Temporal: performs stretches as activities, and runs the workflows that start them.

The activities read and write the log, and report to the workflow how the conversation stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import msgspec

from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.performing import describe_for_host, list_submitted, perform_stretch
from toolchart.engine.durable.stretches import Rest, Stretch, compute_version
from toolchart.engine.durable.temporal_reports import (
    Decision,
    HandedOver,
    PersonUpdate,
    Reception,
    Report,
    find_refusal,
    fit_result,
    fit_waiting,
)
from toolchart.engine.log.conversation_ids import SHORTER, require_id_length
from toolchart.engine.log.family import iterate_family
from toolchart.engine.reading.waiting import Waiting, read_waiting
from toolchart.engine.runtime.engine import GRACE_S, Engine
from toolchart.states.errors import (
    AlreadyDecided,
    DurableHostUnavailable,
    IllegalEvent,
    LogUnavailable,
    NotFound,
    SpecError,
    ToolchartError,
    format_install,
)
from toolchart.states.ports import Store

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
    HAND_OVER,
    NOTICE,
    SIGNAL,
    TASK_TIMEOUT,
    WORKFLOW,
    ConversationWorkflow,
    build_version_queue,
)

_UNREACHABLE = (RPCError, RuntimeError)
"""What the SDK raises where it cannot reach the server: the second where it was not connected before."""

_CLOSING_S = 5.0
"""Seconds that an activity has to return its rest, after the engine has stopped its turn."""


def build_queue_name(agent: str) -> str:
    """The task queue of an agent's workflows."""
    return f"toolchart/{agent}"


def build_workflow_id(agent: str, conversation: str) -> str:
    """The id of the workflow of a conversation.

    Raises:
        SpecError: Temporal takes none that is so long.
    """
    require_id_length(conversation)
    name = f"{agent}/{conversation}"
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > _MOST_ID_BYTES:
        raise SpecError(
            f"the name of the agent and the id of the conversation have {size:,} bytes, "
            f"and Temporal takes {_MOST_ID_BYTES:,}",
            path="conversation",
            hint=SHORTER,
        )
    return name


_MOST_ID_BYTES = 1000
"""Of the id of a workflow. Source: `limit.maxIDLength` of Temporal's server."""


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
                task_timeout=TASK_TIMEOUT,
                start_signal=SIGNAL,
                start_signal_args=[msgspec.to_builtins(stretch)],
            )
        except _UNREACHABLE as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise SpecError(f"Temporal does not take this: {error}") from None
            raise build_error(error) from None


class StretchActivity:
    """The activities of a worker: `perform` for stretches, `hand_over` for what people say by an update.

    Args:
        engine: runs the turns.
        shows_content: whether Temporal keeps what was said: the result of a turn, and the arguments,
            questions and forms of what waits. Without it, it keeps ids, names, states and times.
    """

    def __init__(self, engine: Engine, *, shows_content: bool = True) -> None:
        self._engine = engine
        self._shows_content = shows_content

    @activity.defn(name=ACTIVITY)
    async def perform(self, data: dict[str, Any]) -> dict[str, Any]:
        """Perform a stretch, with signs of life.

        Args:
            data: a stretch, as JSON.

        Returns:
            A `Report`, as JSON.

        Raises:
            ApplicationError: it is no stretch; it is not tried again.
        """
        try:
            stretch = msgspec.convert(data, Stretch)
        except msgspec.ValidationError as error:
            raise ApplicationError(f"this is no stretch: {error}", non_retryable=True) from None
        work = asyncio.create_task(perform_stretch(self._engine, stretch))
        notices = _Notices(self._engine, stretch.conversation)
        while not work.done():
            try:
                activity.heartbeat()
                # Not awaited itself: the work would be cancelled together with the activity.
                await asyncio.wait([work], timeout=BEAT_S)
                if not work.done() and (waiting := await notices.find_new()) is not None:
                    await self._give_notice(waiting)
            except asyncio.CancelledError:
                await self._hear_of_cancellation(stretch)
        report = await asyncio.to_thread(self._build_report, stretch.conversation, work.result())
        return dict(msgspec.to_builtins(report))

    @activity.defn(name=HAND_OVER)
    async def hand_over(self, conversation: str, data: dict[str, Any]) -> dict[str, Any]:
        """Leave in the inbox of the log what somebody says about an open turn.

        Args:
            conversation: that of the workflow.
            data: a `PersonUpdate`, as JSON.

        Returns:
            A `HandedOver`, as JSON.

        Raises:
            LogUnavailable: the log is away; Temporal tries it again.
        """
        update = msgspec.convert(data, PersonUpdate)
        said = update if not isinstance(update, Decision) else None
        host = _CollectingHost()
        client = DurableClient(self._engine, host)
        name = update.conversation or conversation
        try:
            event = update.build_event()
            question = getattr(said, "question", None)
            root = await self._engine.conversation(name).apost(event, question=question)
            stretch = await client.wake(root)
            reception = Reception(outcome="handed_over", conversation=root)
            handed_over = HandedOver(reception=reception, stretch=stretch)
        except LogUnavailable:
            raise
        except AlreadyDecided as error:
            # A sender that heard no answer, or an attempt of a worker that died, has said the same before.
            is_same = isinstance(update, Decision) and (update.approved, update.by or "") == (
                error.approved,
                error.by or "",
            )
            handed_over = await self._refuse(conversation, update, error)
            if is_same:
                reception = Reception(outcome="repeated", conversation=conversation)
                handed_over = HandedOver(reception=reception, report=handed_over.report)
        except ToolchartError as error:
            handed_over = await self._refuse(conversation, update, error)
        return dict(msgspec.to_builtins(handed_over))

    async def _refuse(self, conversation: str, update: PersonUpdate, error: ToolchartError) -> HandedOver:
        rest = Rest(outcome="waits")
        report = await asyncio.to_thread(self._build_report, conversation, rest)
        # One that has no place is the same error, whether the workflow sees it or the log.
        has_no_place = isinstance(error, SpecError) and find_refusal(update, report, ()) is not None
        name = IllegalEvent.__name__ if has_no_place else type(error).__name__
        return HandedOver(refusal=str(error), refusal_type=name, report=report)

    def _build_report(self, conversation: str, rest: Rest) -> Report:
        """How a conversation stands, from the log; blocking.

        From the log and not from the turn that ran here: redaction holds for Temporal as it does for the log.
        """
        has_content = self._shows_content
        try:
            waiting = read_waiting(self._engine.store, conversation).to_dict()
            turn = self._engine.conversation(conversation).read_turn()
        except LogUnavailable as error:  # the stretch is tried again, and changes nothing then
            return Report(rest=Rest(outcome="unavailable", error=str(error)))
        except NotFound:
            return Report(rest=rest, is_closed=rest.outcome not in ("held", "stopped", "unavailable"))
        except ToolchartError as error:
            stretch = Stretch(conversation=conversation, key="", version="")
            return Report(rest=Rest(outcome="failed", error=describe_for_host(stretch, error)))
        can_go_on = turn.awaits_user or turn.due is not None or not turn.is_over
        return Report(
            rest=rest,
            is_closed=not can_go_on and rest.outcome in ("over", "waits", "failed"),
            result=fit_result(turn.to_dict(), has_content=has_content) if turn.is_over else None,
            waiting=fit_waiting(waiting, has_content=has_content),
        )

    async def _give_notice(self, waiting: Waiting) -> None:
        """Tell the workflow what waits while its stretch is performed; its report says it again."""
        info = activity.info()
        handle = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        with suppress(*_UNREACHABLE):
            await handle.signal(NOTICE, fit_waiting(waiting.to_dict(), has_content=self._shows_content))

    async def _hear_of_cancellation(self, stretch: Stretch) -> None:
        """Cancel the turn where the workflow was cancelled; it ends as the chart says.

        Where Temporal takes the stretch away for another reason, the turn goes on. Cancelling its task would
        cancel the turn, and whoever gets the stretch next finds that the conversation is held.
        """
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            with suppress(ToolchartError):  # the turn has ended meanwhile
                await self._engine.conversation(stretch.conversation).acancel("its workflow was cancelled")


class _CollectingHost:
    """Starts nothing: the workflow starts the stretch that the activity returns."""

    async def start(self, stretch: Stretch) -> None:
        """See `DurableHost.start`."""


class _Notices:
    """Finds out whether something else waits for people than before, in a turn that runs.

    Args:
        engine: has the log.
    """

    def __init__(self, engine: Engine, conversation: str) -> None:
        self._engine = engine
        self._conversation = conversation
        self._ends: dict[str, int] = {}
        self._has_waited = False

    async def find_new(self) -> Waiting | None:
        """What waits, where the log has grown and somebody is or was asked; None otherwise."""
        try:
            return await asyncio.to_thread(self._read)
        except ToolchartError:  # the stretch says what is wrong with the log
            return None

    def _read(self) -> Waiting | None:
        store = self._engine.store
        ends = {name: _find_end(store, name) for _, name in iterate_family(store, self._conversation)}
        if ends == self._ends:
            return None
        self._ends = ends
        waiting = read_waiting(store, self._conversation)
        has_waited, self._has_waited = self._has_waited, waiting.needs_person
        return waiting if has_waited or waiting.needs_person else None


def _find_end(store: Store, conversation: str) -> int:
    """The number of the newest record of a conversation; -1 where it has none."""
    newest = store.read_last_line(conversation)
    return newest[0] if newest is not None else -1


class TemporalWorker:
    """Performs the stretches of one agent that Temporal starts.

    Args:
        engine: runs the turns; its log is shared by the workers. Give it `longest_wait_s`, so that waits are
            left to Temporal.
        client: the connection to the server and its namespace; it belongs to the caller.
        concurrency: most stretches that it performs at once.
        shows_content: as for `StretchActivity`.
    """

    def __init__(
        self, engine: Engine, client: Client, *, concurrency: int = 16, shows_content: bool = True
    ) -> None:
        self._engine = engine
        self._client = client
        self._concurrency = concurrency
        self._activities = StretchActivity(engine, shows_content=shows_content)
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
            raise build_error(error) from None
        queue = build_queue_name(self.agent)
        workflows = Worker(
            self._client,
            task_queue=queue,
            workflows=[ConversationWorkflow],
            # Any version may hand over: it is checked against the log, and a worker of the conversation's own
            # version goes on with it.
            activities=[self._activities.hand_over],
            sticky_queue_schedule_to_start_timeout=TASK_TIMEOUT,
        )
        stretches = Worker(
            self._client,
            task_queue=build_version_queue(queue, self.version),
            activities=[self._activities.perform],
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


def build_error(error: Exception) -> DurableHostUnavailable:
    """The error that says that the server, or a worker, cannot be reached."""
    return DurableHostUnavailable(f"Temporal cannot be used: {error}")
