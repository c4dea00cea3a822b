"""The workflow that Temporal keeps for a conversation: it starts stretches, and decides nothing.

A stretch comes by signal, waits for its time on a timer of Temporal, and is performed as an activity, by a
worker of its version. What follows from it says `plan_next`. The workflow stays open while the conversation
waits for somebody, so each signal finds it, and it knows which stretches it had. Its history has no content
of the conversation.

Temporal's sandbox loads this module again for each run, so what it needs is passed through.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    import msgspec

    from toolchart.engine.durable.stretches import Rest, Stretch, plan_next

WORKFLOW = "toolchart_conversation"
"""Name of the workflow of a conversation."""

ACTIVITY = "toolchart_perform"
"""Name of the activity that performs one stretch."""

SIGNAL = "start"
"""Name of the signal that brings a stretch."""

BEAT_S = 2.0
"""Seconds between two signs of life of an activity; a cancellation is heard of with one."""

_SILENCE = timedelta(seconds=10)
"""After it a worker without a sign of life counts as dead, and its stretch is given to another one."""

_LONGEST_STRETCH = timedelta(days=365)
"""Temporal wants a bound; a dead worker is found by its silence."""

_KEPT = timedelta(days=30)
"""How long the workflow stays open after its last stretch."""

_KEPT_IDS = 1000
"""So many stretches it knows, to start none of them twice."""

_LARGEST_CARRIED = 1_000_000
"""Most bytes that a run leaves to the next; Temporal refuses 2 MB and more, again and again."""

_HIGHEST_PRIORITY_KEY = 5


class Carried(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run of the workflow leaves to the next."""

    stretches: tuple[Stretch, ...] = ()
    """Those that have not been performed."""
    known: tuple[str, ...] = ()
    """Digests of the ids (they may be long) of the stretches that were started, the oldest first."""


@workflow.defn(name=WORKFLOW)
class ConversationWorkflow:
    """Has the stretches of one conversation performed, each when it is due."""

    @workflow.init
    def __init__(self, carried: dict[str, Any] | None = None) -> None:
        self._carried = msgspec.convert(carried or {}, Carried)
        self._known = dict.fromkeys(self._carried.known)
        self._open: dict[str, Stretch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._performing = 0

    @workflow.run
    async def run(self, carried: dict[str, Any] | None = None) -> None:
        """Start stretches, until none has come for a month."""
        for stretch in self._carried.stretches:
            self._begin(stretch)
        try:
            while await self._is_wanted():
                await workflow.wait_condition(self._has_rested)
                if self._should_renew():
                    workflow.continue_as_new(msgspec.to_builtins(self._carry()))
        except asyncio.CancelledError:
            await self._cancel_stretches()
            raise

    @workflow.signal(name=SIGNAL)
    def start(self, stretch: dict[str, Any]) -> None:
        """Start a stretch, unless one of its id was started already."""
        try:
            decoded = msgspec.convert(stretch, Stretch)
        except msgspec.ValidationError as error:  # raised, it would stop the workflow for ever
            workflow.logger.error("a signal that is no stretch is left out: %s", error)
            return
        if _shorten_id(decoded.id) not in self._known:
            self._begin(decoded)

    async def _is_wanted(self) -> bool:
        """Whether a stretch is open, or comes in time."""
        try:
            await workflow.wait_condition(lambda: bool(self._open), timeout=_KEPT)
        except TimeoutError:
            return False
        return True

    def _has_rested(self) -> bool:
        """Whether nothing is performed, and nothing is left to do or the history is long enough."""
        return not self._performing and (not self._open or self._should_renew())

    def _should_renew(self) -> bool:
        """Whether the history is long enough, nothing is performed, and what is open can be carried over.

        Something may be performed for ever, for lack of a worker of its version; the rest then goes on.
        """
        if self._performing or not workflow.info().is_continue_as_new_suggested():
            return False
        return len(msgspec.json.encode(self._carry())) <= _LARGEST_CARRIED

    def _carry(self) -> Carried:
        return Carried(stretches=tuple(self._open.values()), known=tuple(self._known))

    def _begin(self, stretch: Stretch) -> None:
        if stretch.id in self._open:  # a second look at a timer that is open
            return
        self._known[_shorten_id(stretch.id)] = None
        while len(self._known) > _KEPT_IDS:
            del self._known[next(iter(self._known))]
        self._open[stretch.id] = stretch
        self._tasks[stretch.id] = asyncio.create_task(self._perform_when_due(stretch))

    async def _perform_when_due(self, stretch: Stretch) -> None:
        delay_s = stretch.compute_delay_s(workflow.now().isoformat())
        if delay_s > 0:
            await workflow.sleep(delay_s, summary=stretch.key)
        # Of one version one at a time: a second would only find that the conversation is held. Those of
        # another version are not kept waiting by a stretch for which there is no worker any more.
        async with self._locks.setdefault(stretch.version, asyncio.Lock()):
            if self._should_renew():
                return  # it stays open, for the next run
            self._performing += 1
            try:
                rest = await _perform(stretch)
            finally:
                self._performing -= 1
        del self._open[stretch.id], self._tasks[stretch.id]
        successor = plan_next(stretch, rest)
        if successor is not None:
            self._begin(successor)

    async def _cancel_stretches(self) -> None:
        """End what is performed: the activity cancels its turn, in the log."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _shorten_id(id_: str) -> str:
    return hashlib.sha256(id_.encode()).hexdigest()[:32]


async def _perform(stretch: Stretch) -> Rest:
    """Have a worker of its version perform a stretch.

    What the log says comes back as a rest, and `plan_next` decides about another attempt. Temporal repeats
    only what brought no rest: its worker died, or was stopped before the log could tell.
    """
    try:
        rest = await workflow.execute_activity(
            ACTIVITY,
            msgspec.to_builtins(stretch),
            task_queue=build_version_queue(workflow.info().task_queue, stretch.version),
            result_type=dict,
            start_to_close_timeout=_LONGEST_STRETCH,
            heartbeat_timeout=_SILENCE,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=Priority(priority_key=min(stretch.priority + 1, _HIGHEST_PRIORITY_KEY)),
            summary=stretch.key,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.error("stretch %s cannot be performed: %s", stretch.id, error.cause)
        return Rest(outcome="failed", error=str(error.cause))
    return msgspec.convert(rest, Rest)


def build_version_queue(queue: str, version: str) -> str:
    """The task queue of the workers of one version.

    Args:
        queue: that of the agent's workflows.
    """
    return f"{queue}/{version}"
