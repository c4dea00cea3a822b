"""The driver: performs the effects of one conversation and feeds their outcomes back as events.

The driver decides nothing. The core returns effects; the driver always works in this order: add the
record to the journal, commit it, perform its effects. So a record is durable before anything that it
asks for can happen. A review calls nothing outside the process, so its record shares a commit with the
reply before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, assert_never

from msgspec.structs import replace

from toolchart.engine.log.journal import Journal
from toolchart.engine.log.record import encode_plain_event
from toolchart.engine.log.redaction import RedactedConversation
from toolchart.engine.log.replay import update_open_effects
from toolchart.engine.runtime.dependencies import Dependencies
from toolchart.states.core.step import Step, step
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.errors import IllegalEvent, NoRecordedAnswer, ProviderError, StrictPolicyViolation
from toolchart.states.events import (
    AnyEvent,
    Cancelled,
    Failed,
    MachineEvent,
    Replied,
    Reviewed,
    ToolFinished,
    TurnStarted,
    Waited,
)
from toolchart.states.machine import Machine
from toolchart.states.messages import Reply, Request, encode_delta
from toolchart.states.ports import StreamingProvider
from toolchart.states.snapshot import Snapshot

log = logging.getLogger("toolchart.engine")

INTERRUPTED = (
    "The process stopped while this call may have been running. Its outcome is unknown: it may or "
    "may not have taken effect. Check before doing it again."
)


class Driver:
    """Drives one conversation. Only one driver may append to a conversation; the log refuses a second.

    Args:
        redacted_conversation: the redacted copy of the conversation that is logged; without it the log is not
            redacted.
    """

    def __init__(
        self,
        machine: Machine,
        snapshot: Snapshot,
        journal: Journal,
        dependencies: Dependencies,
        redacted_conversation: RedactedConversation | None = None,
    ) -> None:
        self.snapshot = snapshot
        self._redacted_conversation = redacted_conversation
        self._machine = machine
        self._journal = journal
        self.dependencies = dependencies

    async def run_turn(self, first: AnyEvent) -> Snapshot:
        """Apply an event and perform all effects that follow, until the chart rests.

        The chart rests in a final state, or in a state that only a decision from outside can leave.

        Raises:
            IllegalEvent: the chart has no row for `first` here; nothing was written.
            LogConflict, LogUnavailable: a record could not be written; its effects were not performed.
            StrictPolicyViolation: the policy is strict and there is a warning; the record is in the log.
        """
        effects = self.apply_event(first).effects
        if isinstance(first, TurnStarted):
            await self._stop_on_warnings(self.snapshot.warnings)
        return await self.perform_effects(effects)

    async def perform_effects(self, effects: tuple[Effect, ...]) -> Snapshot:
        """Perform effects and all effects that follow from them, until the chart rests."""
        pending = list(effects)
        try:
            while True:
                while pending:
                    effect = pending.pop(0)
                    if isinstance(effect, ReviewCalls):  # pure, so no commit before it
                        pending.extend(self.apply_event(self._review_calls(effect)).effects)
                    elif not isinstance(effect, Answer):
                        await self._perform_effect(effect, pending)
                await self._journal.commit()
                decisions = await self._request_decision()
                if not decisions:
                    return self.snapshot
                pending.extend(decisions)
        except asyncio.CancelledError:
            await self._record_cancellation()
            raise

    async def run_fork(self, first: AnyEvent, replacements: Sequence[AnyEvent] = ()) -> Snapshot:
        """Apply a `Forked` event and its replaced tool outcomes, then perform all open effects.

        Raises:
            NoRecordedAnswer: the fork runs from a log that has no answer to what it asks for.
        """
        effects = list(self.apply_event(first).effects)
        for event in replacements:
            effects = update_open_effects(effects, event.TYPE, self.apply_event(event))
        open_ids = self._open_call_ids()
        try:
            return await self.perform_effects(
                tuple(_without_finished_calls(effect, open_ids) for effect in effects)
            )
        except NoRecordedAnswer:
            await self._journal.commit()
            raise

    async def resume_turn(
        self,
        open_effects: Sequence[Effect],
        is_repeatable: Callable[[str], bool],
        new_effects: Sequence[Effect] = (),
    ) -> Snapshot:
        """Continue a turn after a crash, from its open effects.

        A call that may have started is run again only if `is_repeatable` returns true for its tool.
        Otherwise it ends as `interrupted`, and the model reads that its outcome is unknown.

        Args:
            new_effects: effects of a step made after the crash; none of them can have started.
        """
        remaining: list[Effect] = []
        for effect in open_effects:
            if isinstance(effect, RunTools):
                remaining.extend(self._close_interrupted_calls(effect, is_repeatable))
            else:
                remaining.append(effect)
        return await self.perform_effects((*remaining, *new_effects))

    def _close_interrupted_calls(
        self, effect: RunTools, is_repeatable: Callable[[str], bool]
    ) -> list[Effect]:
        """The effects that remain after calls that must not be repeated ended as `interrupted`."""
        open_ids = self._open_call_ids()
        calls = [call for call in effect.calls if call.id in open_ids]
        repeatable = tuple(call for call in calls if is_repeatable(call.name))
        refusals = tuple(refusal for refusal in effect.refused if refusal[0].id in open_ids)
        next_effects: list[Effect] = []
        for call in calls:
            if call not in repeatable:
                outcome = self.dependencies.executor.refuse(call, "interrupted", INTERRUPTED)
                next_effects.extend(self.apply_event(outcome).effects)
        if repeatable or refusals:
            return [replace(effect, calls=repeatable, refused=refusals)]
        return next_effects

    def _open_call_ids(self) -> set[str]:
        """Ids of the calls that have no outcome yet."""
        return {open_call.call.id for open_call in self.snapshot.calls if open_call.outcome is None}

    # -- steps -----------------------------------------------------------------------------------

    def apply_event(self, event: AnyEvent) -> Step:
        """Step the core with an event and add the record to the journal; nothing is committed yet."""
        if not event.at:
            event = _with_time(event, self.dependencies.clock.now())
        event, data = encode_plain_event(event)
        new_step = step(self._machine, self.snapshot, event)
        if self._redacted_conversation is None:
            self._journal.add_record(event.at, data, new_step)
        else:
            self._journal.add_record(
                event.at, *self._redacted_conversation.apply_event(event, data, new_step)
            )
        self.snapshot = new_step.snapshot
        if self.dependencies.observer is not None:
            self.dependencies.observer(event, new_step)
        return new_step

    async def _perform_effect(self, effect: CallModel | RunTools | Wait, pending: list[Effect]) -> None:
        """Commit, perform one effect, and add the effects that follow to `pending`."""
        await self._journal.commit()
        match effect:
            case CallModel():
                event = await self._call_model(effect)
                pending.extend(self.apply_event(event).effects)
                if isinstance(event, Replied) and self.snapshot.reply is not None:
                    await self._stop_on_warnings(self.snapshot.reply.warnings)
            case RunTools():
                await self._run_tools(effect, pending)
            case Wait():
                await self.dependencies.clock.sleep(effect.seconds)
                pending.extend(self.apply_event(Waited(seconds=effect.seconds)).effects)
            case _:
                assert_never(effect)

    async def _stop_on_warnings(self, warnings: Sequence[str]) -> None:
        """Commit and raise where the policy is strict and there is a warning.

        Raises:
            StrictPolicyViolation: its text is all warnings.
        """
        if self.dependencies.strict and warnings:
            await self._journal.commit()
            raise StrictPolicyViolation("; ".join(warnings))

    # -- effects ---------------------------------------------------------------------------------

    def _review_calls(self, effect: ReviewCalls) -> Reviewed:
        """The `reviewed` event with a verdict on each call."""
        review = self.dependencies.executor.review
        verdicts = tuple([review(call, effect.allowed) for call in effect.calls])
        return Reviewed(at=self.dependencies.clock.now(), verdicts=verdicts)

    async def _call_model(self, effect: CallModel) -> Replied | Failed:
        """Call the model; the `replied` or `failed` event."""
        try:
            deltas: list[dict[str, Any]] = []
            reply = await _request_reply(self.dependencies, effect.request, deltas)
            if self.dependencies.price is not None:
                reply = self.dependencies.price(reply, effect.request)
            return Replied(at=self.dependencies.clock.now(), reply=reply, deltas=tuple(deltas))
        except ProviderError as error:
            return Failed(
                kind=error.kind,
                message=error.message,
                status=error.status,
                retryable=error.retryable,
                retry_after_s=error.retry_after_s,
                jitter=self.dependencies.clock.jitter(),
            )
        except NoRecordedAnswer:
            raise
        except Exception as error:
            # A bug in an adapter must not lose the turn: it becomes a `failed` event in the log.
            log.exception("the provider %s failed unexpectedly", self.dependencies.provider.name)
            return Failed(kind="bad_response", message=f"{type(error).__name__}: {error}")

    async def _run_tools(self, effect: RunTools, pending: list[Effect]) -> None:
        """Apply outcomes in the order in which they arrive; outcomes that arrive together share a commit."""
        if len(effect.calls) == 1 and not effect.refused:  # the common case needs no task
            outcome = await self.dependencies.executor.run(effect.calls[0], effect.allowed)
            pending.extend(self.apply_event(outcome).effects)
            return
        async with aclosing(self._iterate_outcomes(effect)) as outcomes:
            async for event in outcomes:
                try:
                    pending.extend(self.apply_event(event).effects)
                except IllegalEvent:
                    # The chart left the state while calls ran; the core has closed those calls.
                    log.warning("call %s ended after the chart had left its state", event.call_id)
                if self.snapshot.is_over:
                    return

    async def _iterate_outcomes(self, effect: RunTools) -> AsyncGenerator[ToolFinished, None]:
        """Outcomes of refused calls first, then of running calls as they end."""
        executor = self.dependencies.executor
        for call, outcome, reason in effect.refused:
            yield executor.refuse(call, outcome, reason)
        tasks = [asyncio.ensure_future(executor.run(call, effect.allowed)) for call in effect.calls]
        try:
            for next_outcome in asyncio.as_completed(tasks):
                yield await next_outcome
                await self._journal.commit()
        finally:
            await _cancel_tasks(tasks)

    async def _request_decision(self) -> tuple[Effect, ...]:
        """The effects of the first decision that the approver makes; empty where there is none."""
        if self.dependencies.approver is None or self.snapshot.is_over:
            return ()
        for open_call in self.snapshot.calls:
            if open_call.ruling == "needs_approval":
                decision = await self.dependencies.approver(open_call.call)
                if decision is not None:
                    effects = self.apply_event(decision).effects
                    if effects:
                        return effects
        return ()

    # -- cancellation ----------------------------------------------------------------------------

    async def _record_cancellation(self) -> None:
        """Record the cancellation, where the chart has a row for it.

        Calls that may have been running get the outcome `cancelled` first, so that the model does not
        assume that they ran, or that they did not.
        """
        for open_call in self.snapshot.calls:
            if open_call.ruling is not None and open_call.outcome is None:
                reason = "the turn was cancelled while it may have been running"
                refuse = self.dependencies.executor.refuse
                self._try_event(refuse(open_call.call, "cancelled", reason))
        self._try_event(Cancelled(reason="stopped from outside"))
        await asyncio.shield(self._journal.commit())

    def _try_event(self, event: MachineEvent) -> None:
        """Apply an event where the chart has a row for it; else only log a line."""
        try:
            self.apply_event(event)
        except IllegalEvent:
            log.info("the chart has no row for %r here; resume continues from the log", event.TYPE)


def _with_time(event: AnyEvent, at: str) -> AnyEvent:
    """The event with its time."""
    if not isinstance(event, ToolFinished):
        return replace(event, at=at)
    return ToolFinished(  # faster than `replace`, and every tool call passes here
        at=at,
        call_id=event.call_id,
        outcome=event.outcome,
        result=event.result,
        shown=event.shown,
        notes=event.notes,
    )


def _without_finished_calls(effect: Effect, open_ids: set[str]) -> Effect:
    """A `RunTools` effect without the calls that already have an outcome; other effects unchanged."""
    if not isinstance(effect, RunTools):
        return effect
    return replace(
        effect,
        calls=tuple(call for call in effect.calls if call.id in open_ids),
        refused=tuple(refusal for refusal in effect.refused if refusal[0].id in open_ids),
    )


async def _request_reply(dependencies: Dependencies, request: Request, deltas: list[dict[str, Any]]) -> Reply:
    """The whole reply, streamed where deltas are wanted and the provider can stream.

    Args:
        deltas: receives the deltas that the log keeps.

    Raises:
        ProviderError: the call failed, or the stream ended without a reply.
    """
    wants_deltas = dependencies.on_delta is not None or dependencies.keep_deltas
    if not wants_deltas or not isinstance(dependencies.provider, StreamingProvider):
        return await dependencies.provider.complete(request)
    async with aclosing(dependencies.provider.stream(request)) as stream:
        async for piece in stream:
            if isinstance(piece, Reply):
                return piece
            if dependencies.keep_deltas:
                deltas.append(encode_delta(piece))
            if dependencies.on_delta is not None:
                dependencies.on_delta(piece)
    raise ProviderError(kind="bad_response", message="the stream ended without a reply")


async def _cancel_tasks(tasks: Sequence[asyncio.Future[ToolFinished]]) -> None:
    """Cancel the tasks that still run and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
