"""The driver: performs effects, turns what happens into events, and writes each step down first.

It owns no decision. The core says what to do; the driver does it, in this order, always: note the
record, commit it, perform its effects. A review reaches nothing outside, so its record shares a
commit with the reply before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from toolchart.engine.log.journal import Journal
from toolchart.engine.log.record import plain_event
from toolchart.engine.log.redaction import Shadow
from toolchart.engine.log.replay import still_waiting
from toolchart.engine.runtime.clock import Clock, SystemClock
from toolchart.states.core.step import Step, step
from toolchart.states.deltas import Delta, delta_data
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.errors import IllegalEvent, ProviderError, Unanswered, Warned
from toolchart.states.events import (
    AnyEvent,
    Cancelled,
    Decided,
    Failed,
    MachineEvent,
    Replied,
    Reviewed,
    ToolFinished,
    TurnStarted,
    Waited,
)
from toolchart.states.machine import Machine
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import Executor, Provider, Streams
from toolchart.states.snapshot import Snapshot

log = logging.getLogger("toolchart.engine")

INTERRUPTED = (
    "The process stopped while this call may have been running. Its outcome is unknown: it may or "
    "may not have taken effect. Check before doing it again."
)

Approver = Callable[[ToolCall], Awaitable[Decided | None]]
"""Asked about each call that needs approval; None leaves it undecided."""

Observer = Callable[[AnyEvent, Step], None]
"""Hears of every step after its record is noted; for display, it changes nothing."""


DeltaObserver = Callable[[Delta], None]
"""Sees a reply grow; for display, it changes nothing."""


Pricer = Callable[[Reply, Request], Reply]
"""The reply with its cost, where the host did not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What a driver works with in one turn."""

    provider: Provider
    executor: Executor
    approver: Approver | None = None
    observer: Observer | None = None
    on_delta: DeltaObserver | None = None
    """Asks for streamed replies, where the provider can stream."""
    clock: Clock = field(default_factory=SystemClock)
    price: Pricer | None = None
    """Fills in what a reply costs."""
    keep_deltas: bool = False
    """Whether the log tells how a reply grew."""
    strict: bool = False
    """Whether a warning ends the run, once it is in the log."""


class Driver:
    """Drives one conversation. One at a time per conversation; the log refuses a second.

    Args:
        shadow: writes the log redacted; without it the log says everything.
    """

    def __init__(
        self,
        machine: Machine,
        snapshot: Snapshot,
        journal: Journal,
        hands: Hands,
        shadow: Shadow | None = None,
    ) -> None:
        self.snapshot = snapshot
        self._shadow = shadow
        self._machine = machine
        self._journal = journal
        self.hands = hands

    async def drive(self, first: AnyEvent) -> Snapshot:
        """Feed an event and perform whatever follows, until the chart rests.

        It rests in a final state, or where only somebody outside can go on (a decision).

        Raises:
            IllegalEvent: the chart does not take `first` here; nothing was written.
            LogConflict, LogUnavailable: a record could not be written; nothing it asks for was done.
        """
        effects = self.take(first).effects
        if isinstance(first, TurnStarted):
            await self._demand_silence(self.snapshot.warnings)
        return await self.perform(effects)

    async def perform(self, effects: tuple[Effect, ...]) -> Snapshot:
        """Perform effects and whatever follows, until the chart rests."""
        waiting = list(effects)
        try:
            while True:
                while waiting:
                    effect = waiting.pop(0)
                    if isinstance(effect, ReviewCalls):  # at once: nothing is waited for
                        waiting.extend(self.take(self._review(effect)).effects)
                    elif not isinstance(effect, Answer):
                        await self._perform(effect, waiting)
                await self._journal.commit()
                decisions = await self._decide()
                if not decisions:
                    return self.snapshot
                waiting.extend(decisions)
        except asyncio.CancelledError:
            await self._cancel()
            raise

    async def fork(self, first: AnyEvent, given: Sequence[AnyEvent] = ()) -> Snapshot:
        """Begin with a `Forked`, take what is given instead of what happened, and go on from there."""
        effects = list(self.take(first).effects)
        for event in given:
            effects = still_waiting(effects, event.TYPE, self.take(event))
        open_ids = {opened.call.id for opened in self.snapshot.calls if opened.outcome is None}
        try:
            return await self.perform(tuple(_left_of(effect, open_ids) for effect in effects))
        except Unanswered:
            await self._journal.commit()
            raise

    async def resume(
        self,
        outstanding: Sequence[Effect],
        may_repeat: Callable[[str], bool],
        asked: Sequence[Effect] = (),
    ) -> Snapshot:
        """Go on after a crash, from the effects that nothing answered.

        A call that may have been running is run again only if `may_repeat` says so of its tool;
        otherwise it ends as `interrupted`, and the model is told that its outcome is unknown.

        Args:
            asked: effects of a step taken since; nobody can have begun those.
        """
        left: list[Effect] = []
        for effect in outstanding:
            if isinstance(effect, RunTools):
                left.extend(self._interrupted(effect, may_repeat))
            else:
                left.append(effect)
        return await self.perform((*left, *asked))

    def _interrupted(self, effect: RunTools, may_repeat: Callable[[str], bool]) -> list[Effect]:
        open_ids = {opened.call.id for opened in self.snapshot.calls if opened.outcome is None}
        calls = [call for call in effect.calls if call.id in open_ids]
        again = tuple(call for call in calls if may_repeat(call.name))
        refused = tuple(one for one in effect.refused if one[0].id in open_ids)
        follow: list[Effect] = []
        for call in calls:
            if call not in again:
                ended = self.hands.executor.refuse(call, "interrupted", INTERRUPTED)
                follow.extend(self.take(ended).effects)
        if again or refused:
            return [replace(effect, calls=again, refused=refused)]
        return follow

    # -- steps -----------------------------------------------------------------------------------

    def take(self, event: AnyEvent) -> Step:
        """Step, and note the record."""
        event, data = plain_event(event if event.at else _dated(event, self.hands.clock.now()))
        taken = step(self._machine, self.snapshot, event)
        if self._shadow is None:
            self._journal.note(event.at, data, taken)
        else:
            self._journal.note(event.at, *self._shadow.take(event, data, taken))
        self.snapshot = taken.snapshot
        if self.hands.observer is not None:
            self.hands.observer(event, taken)
        return taken

    async def _perform(self, effect: CallModel | RunTools | Wait, waiting: list[Effect]) -> None:
        await self._journal.commit()
        match effect:
            case CallModel():
                event = await self._call_model(effect)
                waiting.extend(self.take(event).effects)
                if isinstance(event, Replied) and self.snapshot.reply is not None:
                    await self._demand_silence(self.snapshot.reply.warnings)
            case RunTools():
                await self._run_tools(effect, waiting)
            case Wait():
                await self.hands.clock.sleep(effect.seconds)
                waiting.extend(self.take(Waited(seconds=effect.seconds)).effects)
            case _:
                assert_never(effect)

    async def _demand_silence(self, warnings: Sequence[str]) -> None:
        """Under a strict policy a warning ends the run here; the log has what led to it.

        Raises:
            Warned: there is one.
        """
        if self.hands.strict and warnings:
            await self._journal.commit()
            raise Warned("; ".join(warnings))

    # -- effects ---------------------------------------------------------------------------------

    def _review(self, effect: ReviewCalls) -> Reviewed:
        review = self.hands.executor.review
        verdicts = tuple([review(call, effect.allowed) for call in effect.calls])
        return Reviewed(at=self.hands.clock.now(), verdicts=verdicts)

    async def _call_model(self, effect: CallModel) -> Replied | Failed:
        try:
            deltas: list[dict[str, Any]] = []
            reply = await _reply(self.hands, effect.request, deltas)
            if self.hands.price is not None:
                reply = self.hands.price(reply, effect.request)
            return Replied(at=self.hands.clock.now(), reply=reply, deltas=tuple(deltas))
        except ProviderError as error:
            return Failed(
                kind=error.kind,
                message=error.message,
                status=error.status,
                retryable=error.retryable,
                retry_after_s=error.retry_after_s,
                jitter=self.hands.clock.jitter(),
            )
        except Unanswered:
            raise
        except Exception as error:
            # A fault of an adapter must not lose the turn: it ends as a failure that the log keeps.
            log.exception("the provider %s failed unexpectedly", self.hands.provider.name)
            return Failed(kind="bad_response", message=f"{type(error).__name__}: {error}")

    async def _run_tools(self, effect: RunTools, waiting: list[Effect]) -> None:
        """Feed outcomes as they come; those that have come together share a commit."""
        if len(effect.calls) == 1 and not effect.refused:  # no task needed: the common case
            outcome = await self.hands.executor.run(effect.calls[0], effect.allowed)
            waiting.extend(self.take(outcome).effects)
            return
        async with aclosing(self._outcomes(effect)) as outcomes:
            async for event in outcomes:
                try:
                    waiting.extend(self.take(event).effects)
                except IllegalEvent:
                    # The chart moved on while calls were running; the core has answered for them.
                    log.warning("call %s ended after the chart had moved on", event.call_id)
                if self.snapshot.over:
                    return

    async def _outcomes(self, effect: RunTools) -> AsyncGenerator[ToolFinished, None]:
        executor = self.hands.executor
        for call, outcome, reason in effect.refused:
            yield executor.refuse(call, outcome, reason)
        tasks = [asyncio.ensure_future(executor.run(call, effect.allowed)) for call in effect.calls]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
                await self._journal.commit()
        finally:
            await _stop(tasks)

    async def _decide(self) -> tuple[Effect, ...]:
        """Ask about calls that need approval, while there is somebody to ask."""
        if self.hands.approver is None or self.snapshot.over:
            return ()
        for opened in self.snapshot.calls:
            if opened.ruling == "needs_approval":
                decision = await self.hands.approver(opened.call)
                if decision is not None:
                    effects = self.take(decision).effects
                    if effects:
                        return effects
        return ()

    # -- cancellation ----------------------------------------------------------------------------

    async def _cancel(self) -> None:
        """Write down that the turn was stopped, as far as the chart has a row for it.

        Calls that were running get their outcome first: the model must not be left to believe that
        they ran, or that they did not.
        """
        for opened in self.snapshot.calls:
            if opened.ruling is not None and opened.outcome is None:
                reason = "the turn was cancelled while it may have been running"
                self._feed(self.hands.executor.refuse(opened.call, "cancelled", reason))
        self._feed(Cancelled(reason="stopped from outside"))
        await asyncio.shield(self._journal.commit())

    def _feed(self, event: MachineEvent) -> None:
        try:
            self.take(event)
        except IllegalEvent:
            log.info("the chart takes no %r here; resume goes on from the log", event.TYPE)


def _dated(event: AnyEvent, at: str) -> AnyEvent:
    """The event with its time."""
    if not isinstance(event, ToolFinished):
        return replace(event, at=at)
    return ToolFinished(  # spelt out, as every call comes by here
        at=at,
        call_id=event.call_id,
        outcome=event.outcome,
        result=event.result,
        shown=event.shown,
        notes=event.notes,
    )


def _left_of(effect: Effect, open_ids: set[str]) -> Effect:
    """What is left of a run of tools when some calls have their outcome already."""
    if not isinstance(effect, RunTools):
        return effect
    return replace(
        effect,
        calls=tuple(call for call in effect.calls if call.id in open_ids),
        refused=tuple(one for one in effect.refused if one[0].id in open_ids),
    )


async def _reply(hands: Hands, request: Request, kept: list[dict[str, Any]]) -> Reply:
    """The whole reply, seen growing where somebody looks and the provider can show it.

    Args:
        kept: where deltas go that the log is to tell.

    Raises:
        ProviderError: the call failed, or the stream ended without a reply.
    """
    looked_at = hands.on_delta is not None or hands.keep_deltas
    if not looked_at or not isinstance(hands.provider, Streams):
        return await hands.provider.complete(request)
    async with aclosing(hands.provider.stream(request)) as stream:
        async for piece in stream:
            if isinstance(piece, Reply):
                return piece
            if hands.keep_deltas:
                kept.append(delta_data(piece))
            if hands.on_delta is not None:
                hands.on_delta(piece)
    raise ProviderError(kind="bad_response", message="the stream ended without a reply")


async def _stop(tasks: Sequence[asyncio.Future[ToolFinished]]) -> None:
    """Cancel what still runs and wait until it has ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
