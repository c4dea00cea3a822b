"""The workflow that Temporal keeps for a conversation: it starts stretches, and decides nothing.

A stretch comes by signal, waits for its time on a timer of Temporal, and is performed as an activity, by a
worker of its version. What follows from it says `plan_next`. Each activity reports how the conversation
stands, because a workflow may read nothing:

    it waits         the workflow stays open; a query says what waits, and an update brings what people say
    it has ended     the workflow completes with the result of the newest turn; the next message starts a new
                     one under the same id: one call signals what is open, or starts it

What a new run does not know of earlier ones, the log does: a stretch that was performed before changes
nothing. So nothing is lost or doubled where a workflow ends.

Temporal's sandbox loads this module again for each run, so what it needs is passed through.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    import msgspec
    from msgspec.structs import replace

    from toolchart.engine.durable.stretches import Rest, Stretch, plan_next
    from toolchart.engine.durable.temporal_reports import (
        Answer,
        Cancellation,
        Decision,
        HandedOver,
        PersonUpdate,
        Report,
        Subject,
        decode_update,
        find_refusal,
        find_subject,
        leave_out,
    )
    from toolchart.engine.reading.waiting import NOTHING_WAITS
    from toolchart.states.errors import SpecError

WORKFLOW = "toolchart_conversation"
"""Name of the workflow of a conversation."""

ACTIVITY = "toolchart_perform"
"""Name of the activity that performs one stretch."""

HAND_OVER = "toolchart_hand_over"
"""Name of the activity that leaves in the inbox of the log what an update brings."""

SIGNAL = "start"
"""Name of the signal that brings a stretch."""

NOTICE = "notice"
"""Name of the signal that says what waits while a stretch is performed."""

DECIDE, ANSWER, CANCEL = "decide", "answer", "cancel"
"""Names of the updates."""

WAITING = "waiting"
"""Name of the query for what waits."""

BEAT_S = 2.0
"""Seconds between two signs of life of an activity; a cancellation is heard of with one."""

TASK_TIMEOUT = timedelta(seconds=5)
"""Most that one task of a workflow takes, which is milliseconds. A worker that ends may lose one, and the
conversation waits so long for the next worker."""

_SILENCE = timedelta(seconds=10)
"""After it a worker without a sign of life counts as dead, and its stretch is given to another one."""

_LONGEST_STRETCH = timedelta(days=365)
"""Temporal wants a bound; a dead worker is found by its silence."""

_KEPT = timedelta(days=30)
"""How long the workflow of a conversation that waits stays open after its last stretch."""

_KEPT_UNKNOWN = timedelta(minutes=1)
"""How long a workflow stays open that nothing was reported to, and that has nothing to do."""

_LONGEST_HAND_OVER = timedelta(minutes=1)
"""Most that one attempt takes to leave something in the inbox of the log."""

_KEPT_IDS = 1000
"""So many stretches it knows, to start none of them twice."""

_KEPT_RECEPTIONS = 100
"""So many updates it knows, to answer one that is sent again."""

_LARGEST_CARRIED = 1_000_000
"""Most bytes that a run leaves to the next; Temporal refuses 2 MB and more, again and again."""


class Carried(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run of the workflow leaves to the next."""

    stretches: tuple[Stretch, ...] = ()
    """Those that have not been performed."""
    known: tuple[str, ...] = ()
    """Digests of the ids (they may be long) of the stretches that were started, the oldest first."""
    conversation: str = ""
    report: Report | None = None
    """The newest one."""
    on_the_way: tuple[tuple[Subject, str], ...] = ()
    """What people decided or answered, and the key of the stretch that goes on with it."""
    receptions: tuple[tuple[str, dict[str, str]], ...] = ()
    """What became of the newest updates, by the ids of these."""


@workflow.defn(name=WORKFLOW)
class ConversationWorkflow:
    """Has the stretches of one conversation performed, each when it is due."""

    @workflow.init
    def __init__(self, carried: dict[str, Any] | None = None) -> None:
        self._carried = msgspec.convert(carried or {}, Carried)
        self._conversation = self._carried.conversation
        self._known = dict.fromkeys(self._carried.known)
        self._open: dict[str, Stretch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._cancelled: frozenset[str] = frozenset()
        self._sleeping: dict[str, None] = {}
        """Those that wait for a timer of the conversation; in order, as Temporal needs it."""
        self._locks: dict[str, asyncio.Lock] = {}
        self._performing = 0
        self._report = self._carried.report
        self._on_the_way = dict(self._carried.on_the_way)
        self._receptions = dict(self._carried.receptions)

    @workflow.run
    async def run(self, carried: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Start stretches, until the conversation has ended, or none has come for a month.

        Returns:
            The result of the newest turn, as `Turn.to_dict` gives it; None where the log has none.

        Raises:
            ApplicationError: the newest message can never be run, and the conversation cannot go on.
        """
        for stretch in self._carried.stretches:
            self._begin(stretch)
        try:
            # A signal or an update that the server has and this task has not: the server refuses to complete
            # the workflow then, and the task is made again with it.
            while not self._has_ended() and await self._is_wanted():
                await workflow.wait_condition(self._has_rested)
                if not self._has_ended() and self._should_renew():
                    workflow.continue_as_new(msgspec.to_builtins(self._carry()))
        except asyncio.CancelledError:
            await self._cancel_stretches()
            # What came meanwhile was accepted, and is done.
            await workflow.wait_condition(self._is_idle)
            raise
        report = self._report
        if report is not None and report.is_closed and report.rest.outcome == "failed":
            raise ApplicationError(report.rest.error or "failed", type="StretchFailed", non_retryable=True)
        return report.result if report is not None else None

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

    @workflow.signal(name=NOTICE)
    def notice(self, waiting: dict[str, Any]) -> None:
        """Hear what waits in a conversation while its stretch is performed."""
        if self._report is None:
            self._report = Report(rest=Rest(outcome="waits"), waiting=waiting)
        else:
            self._report = replace(self._report, is_closed=False, result=None, waiting=waiting)

    @workflow.query(name=WAITING)
    def waiting(self) -> dict[str, Any]:
        """What waits in the conversation and in its children, as `Waiting.to_dict` gives it.

        It is as new as what a worker reported last: at the end of each stretch, and every few seconds within
        one. What people have decided or answered by an update is left out at once.
        """
        if self._report is None or not self._report.waiting:
            return NOTHING_WAITS.to_dict()
        return leave_out(self._report.waiting, self._on_the_way)

    # -- what people say ---------------------------------------------------------------------------
    # The validator refuses what the newest report has no place for; a refused update leaves nothing in the
    # history. The report may be old, because a stretch is performed, or there is none: the activity then asks
    # the log, which is the authority in any case.

    @workflow.update(name=DECIDE)
    async def decide(self, decision: dict[str, Any]) -> dict[str, str]:
        """Hand over the decision about a call that waits.

        Args:
            decision: `{call_id, approved, reason, by, arguments}`; see `Decision`.

        Returns:
            `{outcome, conversation}`, when it is durable; see `Reception`.
        """
        return await self._hand_over(decode_update(decision, Decision))

    @decide.validator
    def check_decision(self, decision: dict[str, Any]) -> None:
        """Refuse a decision that no call waits for."""
        self._check(decision, Decision)

    @workflow.update(name=ANSWER)
    async def answer(self, answer: dict[str, Any]) -> dict[str, str]:
        """Hand over the answer to a question.

        Args:
            answer: `{content, question, by}`; see `Answer`.

        Returns:
            As `decide`.
        """
        return await self._hand_over(decode_update(answer, Answer))

    @answer.validator
    def check_answer(self, answer: dict[str, Any]) -> None:
        """Refuse an answer that no question waits for."""
        self._check(answer, Answer)

    @workflow.update(name=CANCEL)
    async def cancel(self, cancellation: dict[str, Any]) -> dict[str, str]:
        """Have the open turn stopped.

        Args:
            cancellation: `{reason, author}`; see `Cancellation`.

        Returns:
            As `decide`.
        """
        return await self._hand_over(decode_update(cancellation, Cancellation))

    @cancel.validator
    def check_cancellation(self, cancellation: dict[str, Any]) -> None:
        """Refuse a cancellation where no turn is open."""
        self._check(cancellation, Cancellation)

    def _check(self, data: dict[str, Any], kind: type[PersonUpdate]) -> None:
        """Refuse an update that has no place.

        Raises:
            ApplicationError: says why.
        """
        try:
            update = decode_update(data, kind)
        except SpecError as error:
            raise _build_refusal(str(error), "SpecError") from None
        if _get_update_id() in self._receptions or self._report is None:
            return
        if self._open and not self._is_waiting_for_time():
            subject = find_subject(update, self._report)
            if subject is None or subject not in self._on_the_way:
                return
        refusal = find_refusal(update, self._report, self._on_the_way)
        if refusal is not None:
            raise _build_refusal(refusal, "IllegalEvent")

    def _is_waiting_for_time(self) -> bool:
        """Whether each open stretch begins later: the newest report is then how the conversation stands."""
        now = workflow.now().isoformat()
        return all(
            stretch.due is not None and stretch.compute_delay_s(now) > 0 for stretch in self._open.values()
        )

    async def _hand_over(self, update: PersonUpdate) -> dict[str, str]:
        """Leave in the inbox of the log what somebody says, and start the stretch that goes on with it."""
        update_id = _get_update_id()
        if update_id in self._receptions:  # an earlier run of the workflow had it
            return self._receptions[update_id]
        subject = find_subject(update, self._report)
        if subject is not None:
            self._on_the_way[subject] = ""  # before anything is awaited: of two at once the first holds
        try:
            handed_over = msgspec.convert(
                await workflow.execute_activity(
                    HAND_OVER,
                    args=[self._conversation, msgspec.to_builtins(update)],
                    result_type=dict,
                    start_to_close_timeout=_LONGEST_HAND_OVER,
                    summary=str(type(update).__struct_config__.tag),
                ),
                HandedOver,
            )
        except ActivityError as error:
            if subject is not None:
                del self._on_the_way[subject]
            raise _build_refusal(str(error.cause), "HandOverFailed") from error
        stretch, reception = handed_over.stretch, handed_over.reception
        if stretch is None:  # the log has it already, or has no place for it
            if subject is not None:
                del self._on_the_way[subject]
            self._hear_of(handed_over.report)
        if reception is None:
            raise _build_refusal(handed_over.refusal, handed_over.refusal_type)
        if stretch is not None:
            if subject is not None:
                self._on_the_way[subject] = stretch.key
            self._begin(stretch)
        answer = msgspec.to_builtins(reception)
        self._receptions[update_id] = answer
        while len(self._receptions) > _KEPT_RECEPTIONS:
            del self._receptions[next(iter(self._receptions))]
        return answer

    def _hear_of(self, report: Report | None) -> None:
        """Keep a report, unless it could not read the log."""
        if report is None or report.rest.outcome == "unavailable":
            return
        self._report = report
        if report.is_closed:
            self._drop_timers()

    def _drop_timers(self) -> None:
        """Let go of the stretches that wait for a timer: the conversation has ended without it."""
        for id_ in self._sleeping:
            self._tasks.pop(id_).cancel()
            del self._open[id_]
        self._sleeping.clear()

    # -- when it goes on, and when it ends ---------------------------------------------------------

    def _is_idle(self) -> bool:
        """Whether no stretch is open, and no update is worked on."""
        return not self._open and workflow.all_handlers_finished()

    def _has_ended(self) -> bool:
        """Whether the conversation is over and nothing is left to do."""
        return self._report is not None and self._report.is_closed and self._is_idle()

    async def _is_wanted(self) -> bool:
        """Whether there is something to do, or comes in time."""
        kept = _KEPT if self._report is not None else _KEPT_UNKNOWN
        try:
            await workflow.wait_condition(lambda: not self._is_idle(), timeout=kept)
        except TimeoutError:
            return False
        return True

    def _has_rested(self) -> bool:
        """Whether nothing is performed, and nothing is left to do or the history is long enough."""
        return not self._performing and (self._is_idle() or self._should_renew())

    def _should_renew(self) -> bool:
        """Whether the history is long enough, nothing is performed, and what is open can be carried over.

        Something may be performed for ever, for lack of a worker of its version; the rest then goes on.
        """
        if self._performing or not workflow.info().is_continue_as_new_suggested():
            return False
        if not workflow.all_handlers_finished():  # a new run would not answer their senders
            return False
        return len(msgspec.json.encode(self._carry())) <= _LARGEST_CARRIED

    def _carry(self) -> Carried:
        return Carried(
            stretches=tuple(self._open.values()),
            known=tuple(self._known),
            conversation=self._conversation,
            report=self._report,
            on_the_way=tuple(self._on_the_way.items()),
            receptions=tuple(self._receptions.items()),
        )

    def _begin(self, stretch: Stretch) -> None:
        if stretch.id in self._open:  # a second look at a timer that is open
            return
        self._conversation = self._conversation or stretch.conversation
        self._known[_shorten_id(stretch.id)] = None
        while len(self._known) > _KEPT_IDS:
            del self._known[next(iter(self._known))]
        self._open[stretch.id] = stretch
        self._tasks[stretch.id] = asyncio.create_task(self._perform_when_due(stretch))

    async def _perform_when_due(self, stretch: Stretch) -> None:
        delay_s = stretch.compute_delay_s(workflow.now().isoformat())
        if delay_s > 0:
            if stretch.due is not None and not stretch.has_message:
                self._sleeping[stretch.id] = None
            await workflow.sleep(delay_s, summary=stretch.key)
            self._sleeping.pop(stretch.id, None)
        # Of one version one at a time: a second would only find that the conversation is held. Those of
        # another version are not kept waiting by a stretch for which there is no worker any more.
        async with self._locks.setdefault(stretch.version, asyncio.Lock()):
            if self._should_renew():
                return  # it stays open, for the next run
            self._performing += 1
            try:
                report = await _perform(stretch, self._report)
            finally:
                self._performing -= 1
        del self._open[stretch.id], self._tasks[stretch.id]
        self._hear_of(report)
        successor = None if stretch.id in self._cancelled else plan_next(stretch, report.rest)
        if successor is not None:
            self._begin(successor)
        if successor is None or successor.key != stretch.key:  # else it is tried again
            for subject in [subject for subject, key in self._on_the_way.items() if key == stretch.key]:
                del self._on_the_way[subject]

    async def _cancel_stretches(self) -> None:
        """End what is performed: the activity cancels its turn, in the log. What waits for its time goes."""
        tasks, self._cancelled = dict(self._tasks), frozenset(self._tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for id_ in tasks:
            self._open.pop(id_, None)
            self._tasks.pop(id_, None)
            self._sleeping.pop(id_, None)


def _shorten_id(id_: str) -> str:
    return hashlib.sha256(id_.encode()).hexdigest()[:32]


def _get_update_id() -> str:
    info = workflow.current_update_info()
    return info.id if info is not None else ""


def _build_refusal(text: str, type_: str) -> ApplicationError:
    return ApplicationError(text, type=type_, non_retryable=True)


async def _perform(stretch: Stretch, earlier: Report | None) -> Report:
    """Have a worker of its version perform a stretch.

    What the log says comes back as a report, and `plan_next` decides about another attempt. Temporal repeats
    only what brought no report: its worker died, or was stopped before the log could tell.
    """
    try:
        report = await workflow.execute_activity(
            ACTIVITY,
            msgspec.to_builtins(stretch),
            task_queue=build_version_queue(workflow.info().task_queue, stretch.version),
            result_type=dict,
            start_to_close_timeout=_LONGEST_STRETCH,
            heartbeat_timeout=_SILENCE,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=Priority(priority_key=stretch.priority),
            summary=stretch.key,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.error("stretch %s cannot be performed: %s", stretch.id, error.cause)
        rest = Rest(outcome="failed", error=str(error.cause))
        return replace(earlier, rest=rest) if earlier is not None else Report(rest=rest, is_closed=True)
    return msgspec.convert(report, Report)


def build_version_queue(queue: str, version: str) -> str:
    """The task queue of the workers of one version.

    Args:
        queue: that of the agent's workflows.
    """
    return f"{queue}/{version}"
