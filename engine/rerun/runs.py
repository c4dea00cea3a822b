"""Runs one recorded conversation again: its user says the same, and the log answers what it can.

In each round one thing happens: the event that came first in the recording, among the answers to what is
open now and the next event from outside. So parallel work and timers keep their recorded order, and a rerun
without a change makes the recorded steps. A question that the log does not answer goes to the live model, or
to a live tool where that is allowed; otherwise the run ends there, and says what was missing. No answer is
ever made up.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator

from msgspec.structs import replace

from toolchart.engine.log.group_commit import GroupCommit
from toolchart.engine.log.record import Journal
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.recorded_answers import (
    RecordedAnswer,
    RecordedAnswers,
    build_call_key_of,
    build_effect_key,
    build_reply_key,
)
from toolchart.engine.rerun.parts import Choice, LiveParts, MissingAnswer, RecordedClock, RerunRecords
from toolchart.engine.runtime.clock import SystemClock
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.parts import Dependencies, NoModel
from toolchart.engine.runtime.performers import EffectPerformer
from toolchart.engine.runtime.waiting import list_undecided_calls
from toolchart.states.effects import (
    AskApproval,
    AwaitUser,
    CallModel,
    Effect,
    ReviewCalls,
    RunAgent,
    RunTools,
    Wait,
)
from toolchart.states.errors import IllegalEvent, NoRecordedAnswer
from toolchart.states.events import (
    AgentAnswering,
    Answering,
    CallsStarted,
    CallSubmitted,
    Configured,
    Elapsed,
    Event,
    Migrated,
    Reviewed,
    TurnStarted,
    Verdict,
)
from toolchart.states.flows.times import format_due
from toolchart.states.machine import Machine
from toolchart.states.messages import Request, ToolCall
from toolchart.states.ports import Executor
from toolchart.states.snapshot import Snapshot
from toolchart.tools.definition import ToolPending

_AT_ONCE = -1.0
"""What follows from the chart alone comes before anything that was recorded."""

_LAST = math.inf


class ConversationRerun:
    """One conversation that runs again.

    Args:
        recorded: its answers and its events from outside; used up by the run.
        adapt_configuration: the `configured` event with the changes, and its machine; None where the
            conversation keeps what it has.
        adapt_turn: the `turn_started` event with the changes.
    """

    def __init__(
        self,
        conversation: str,
        recorded: RecordedAnswers,
        live: LiveParts,
        adapt_configuration: Callable[[Configured], tuple[Configured, Machine] | None],
        adapt_turn: Callable[[TurnStarted, Configured], TurnStarted],
        executor: Executor,
    ) -> None:
        self._recorded, self._live = recorded, live
        self._adapt_configuration, self._adapt_turn = adapt_configuration, adapt_turn
        self._conversation = conversation
        self._refuser = executor
        self._store = MemoryStore()
        self._clock = RecordedClock() if live.get_provider is None else SystemClock()
        self._is_offline = live.get_provider is None
        self._recorded_configuration: Configured | None = None
        self._missing: MissingAnswer | None = None
        self._outcomes = self._requests = 0
        self._reviewed_effects: set[int] = set()
        self._driver: Driver
        self._performer: EffectPerformer

    async def run(self) -> RerunRecords:
        """Run the conversation to its end, or to the first question that nothing answers."""
        while True:
            choices = list(self._list_choices())
            if not choices:
                break
            # With all answers from the log nothing ever waits, and a cancellation would never arrive.
            await asyncio.sleep(0)
            work = min(choices, key=lambda choice: choice.seq).perform()
            if work is not None:
                await work
        snapshot = self._driver.snapshot
        await self._driver.commit()
        missing = self._missing if not snapshot.is_over else None
        return RerunRecords(
            store=self._store, conversation=self._conversation, snapshot=snapshot, missing=missing
        )

    # -- what can happen -------------------------------------------------------------------------

    def _list_choices(self) -> Iterator[Choice]:
        self._missing = None
        external = self._find_external()
        if external is not None:
            yield Choice(external.seq, lambda: self._apply_external(external))
        if self._recorded_configuration is None:
            return
        snapshot = self._driver.snapshot
        if snapshot.has_ended:
            return
        for effect in snapshot.open_effects:
            yield from self._list_answers(effect, snapshot)

    def _find_external(self) -> RecordedAnswer | None:
        """The next event from outside that fits; those that the run has overtaken are dropped."""
        events = self._recorded.external_events
        while events:
            if self._recorded_configuration is None:
                return events[0]
            snapshot = self._driver.snapshot
            if isinstance(events[0].event, Migrated):
                return events[0]
            if isinstance(events[0].event, Configured | TurnStarted):
                return events[0] if snapshot.is_over else None
            if snapshot.has_ended or events[0].event.TYPE in ("continued", "forked"):
                events.popleft()
            else:
                return events[0]
        return None

    def _list_answers(self, effect: Effect, snapshot: Snapshot) -> Iterator[Choice]:
        match effect:
            case CallModel():
                yield from self._list_replies(effect)
            case ReviewCalls() if effect.id not in self._reviewed_effects:
                yield from self._list_reviews(effect)
            case ReviewCalls() | AskApproval():
                yield from self._list_decisions(effect, snapshot)
            case RunTools():
                yield from self._list_outcomes(effect, snapshot)
            case Wait():
                yield from self._list_timers(effect, snapshot)
            case AwaitUser():
                return
            case RunAgent():
                items = [n for n in range(len(effect.messages)) if n not in effect.answered] or [0]
                for item in items:
                    yield from self._list_recorded(effect, item)
            case _:
                yield from self._list_recorded(effect)

    def _list_recorded(self, effect: Effect, item: int = 0) -> Iterator[Choice]:
        key = build_effect_key(effect, item)
        answer = self._recorded.find(key)
        if answer is None:
            self._note_missing(effect.name, 1, f"the log has no answer to {effect.name!r} with these values")
            return
        yield Choice(answer.seq, lambda: self._answer(self._recorded.take(key), effect, item=item))

    def _list_replies(self, effect: CallModel) -> Iterator[Choice]:
        if not self._is_offline:
            timing = self._recorded.find(build_reply_key(effect.name))
            yield Choice(timing.seq if timing else _LAST, lambda: self._ask_live_model(effect))
            return
        key = build_effect_key(effect)
        answer = self._recorded.find(key)
        if answer is None:
            number = self._requests + 1
            text = f"diverged at request {number}: the log has no reply to this request"
            self._note_missing("request", number, text, effect.request)
            return
        yield Choice(answer.seq, lambda: self._answer_request(self._recorded.take(key), effect))

    def _list_reviews(self, effect: ReviewCalls) -> Iterator[Choice]:
        if self._live.bind_executor is not None:
            yield Choice(_AT_ONCE, lambda: self._review_calls(effect))
            return
        keys = [build_call_key_of("verdict", call) for call in effect.calls]
        for call, key in zip(effect.calls, keys, strict=True):
            if self._recorded.find(key) is None:
                number = self._outcomes + 1
                self._note_missing(
                    "call",
                    number,
                    f"diverged at call {number}: the log never reviewed {call.name!r} with these arguments",
                )
                return
        yield Choice(_AT_ONCE, lambda: self._take_reviews(effect))

    def _list_decisions(self, effect: Effect, snapshot: Snapshot) -> Iterator[Choice]:
        for open_call in list_undecided_calls(snapshot):
            call = open_call.call
            key = build_call_key_of("decision", call)
            answer = self._recorded.find(key)
            # The approval of a recorded call covers its recorded result, and never a run of the tool.
            is_recorded = self._recorded.find(build_call_key_of("outcome", call)) is not None
            would_run = call.name in self._live.live_tools and not is_recorded
            if answer is None or (getattr(answer.event, "approved", False) and would_run):
                number = self._outcomes + 1
                text = f"diverged at call {number}: nobody decided about {call.name!r} with these arguments"
                self._note_missing("decision", number, text)
                continue
            yield Choice(answer.seq, self._defer_decision(key, effect, call))

    def _defer_decision(self, key: tuple[str, ...], effect: Effect, call: ToolCall) -> Callable[[], None]:
        return lambda: self._answer(self._recorded.take(key), effect, call_id=call.id)

    def _list_outcomes(self, effect: RunTools, snapshot: Snapshot) -> Iterator[Choice]:
        open_ids = {call.call.id for call in snapshot.calls if call.outcome is None}
        for refusal in effect.refused:
            if refusal.call.id in open_ids:
                event = self._refuser.refuse(refusal.call, refusal.outcome, refusal.reason)
                yield Choice(_AT_ONCE, self._defer_refusal(event, effect))
        for call in effect.calls:
            if call.id not in open_ids:
                continue
            key = build_call_key_of("outcome", call)
            answer = self._recorded.find(key)
            if answer is not None:
                yield Choice(answer.seq, self._defer_outcome(key, effect, call))
            elif call.name in self._live.live_tools:
                yield Choice(_LAST, self._defer_live_call(effect, call))
            else:
                number = self._outcomes + 1
                text = (
                    f"diverged at call {number}: the log has no result of {call.name!r} with these arguments"
                )
                self._note_missing("call", number, text)

    def _list_timers(self, effect: Wait, snapshot: Snapshot) -> Iterator[Choice]:
        key = build_effect_key(effect)
        answer = self._recorded.find(key)
        if answer is not None:
            yield Choice(answer.seq, lambda: self._answer(self._recorded.take(key), effect))
        elif not self._recorded.was_asked(key):
            is_alone = all(isinstance(other, Wait | AwaitUser) for other in snapshot.open_effects)
            if is_alone:
                yield Choice(_LAST, lambda: self._let_timer_elapse(effect))

    def _note_missing(self, kind: str, number: int, text: str, request: Request | None = None) -> None:
        """Remember the first question of this round that nothing answers."""
        if self._missing is None:
            self._missing = MissingAnswer(kind=kind, number=number, text=text, request=request)

    # -- doing it --------------------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        if isinstance(self._clock, RecordedClock):
            self._clock.time = event.at or self._driver.snapshot.now
        else:
            event = replace(event, at="")
        self._driver.apply_event(event)

    def _answer(self, answer: RecordedAnswer, effect: Effect, *, call_id: str = "", item: int = 0) -> None:
        event = answer.event
        assert isinstance(event, Answering), "only events that answer are looked up"
        changes = {"effect": effect.id, **({"call_id": call_id} if call_id else {})}
        if isinstance(event, AgentAnswering):
            changes["item"] = item
        self._apply(replace(event, **changes))

    def _answer_request(self, answer: RecordedAnswer, effect: CallModel) -> None:
        self._requests += 1
        self._answer(answer, effect)

    async def _ask_live_model(self, effect: CallModel) -> None:
        self._requests += 1
        key = build_reply_key(effect.name)
        if self._recorded.find(key) is not None:
            self._recorded.take(key)
        await self._performer.perform(effect)

    def _review_calls(self, effect: ReviewCalls) -> None:
        review = self._driver.dependencies.executor.review
        verdicts = tuple(review(call, effect.allowed) for call in effect.calls)
        self._apply_review(Reviewed(effect=effect.id, verdicts=verdicts))

    def _take_reviews(self, effect: ReviewCalls) -> None:
        verdicts: list[Verdict] = []
        at = ""
        for call in effect.calls:
            event = self._recorded.take(build_call_key_of("verdict", call)).event
            assert isinstance(event, Reviewed), "verdicts come with reviews"
            verdicts.append(replace(event.verdicts[0], call_id=call.id))
            at = event.at
        self._apply_review(Reviewed(at=at, effect=effect.id, verdicts=tuple(verdicts)))

    def _apply_review(self, event: Reviewed) -> None:
        """Calls that are reviewed again still have the former verdicts, so the effect is remembered."""
        self._reviewed_effects.add(event.effect)
        self._apply(event)

    def _defer_refusal(self, event: Answering, effect: RunTools) -> Callable[[], None]:
        return lambda: self._apply_outcome(replace(event, effect=effect.id))

    def _defer_outcome(self, key: tuple[str, ...], effect: RunTools, call: ToolCall) -> Callable[[], None]:
        def take() -> None:
            self._outcomes += 1
            self._answer(self._recorded.take(key), effect, call_id=call.id)

        return take

    def _defer_live_call(self, effect: RunTools, call: ToolCall) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await self._driver.commit()
            try:
                event = await self._driver.dependencies.executor.run(call, effect.allowed)
            except ToolPending:
                raise NoRecordedAnswer(f"the outcome of {call.name!r} comes from outside") from None
            self._apply_outcome(replace(event, effect=effect.id))

        return run

    def _apply_outcome(self, event: Answering) -> None:
        self._outcomes += 1
        self._apply(event)

    def _let_timer_elapse(self, effect: Wait) -> Awaitable[None] | None:
        if not self._is_offline:
            return self._performer.perform(effect)
        at = effect.due or format_due(self._driver.snapshot.now, effect.seconds)
        self._apply(Elapsed(at=at, effect=effect.id))
        return None

    # -- events from outside ---------------------------------------------------------------------

    def _apply_external(self, external: RecordedAnswer) -> None:
        self._recorded.external_events.popleft()
        event = external.event
        if isinstance(event, Configured):
            self._configure(event)
        elif isinstance(event, TurnStarted):
            assert self._recorded_configuration is not None, "a log begins with its configuration"
            turn = self._adapt_turn(event, self._recorded_configuration)
            if self._live.get_provider is not None:
                provider = self._live.get_provider(turn.settings.service)
                self._driver.dependencies = replace(self._driver.dependencies, provider=provider)
            self._apply(turn)
        else:
            try:
                self._apply(event)
            except IllegalEvent:
                # That a call begins says nothing of a run that does not make it, nor a job of a request that
                # it does not send.
                if not isinstance(event, CallsStarted | CallSubmitted):
                    raise

    def _configure(self, recorded: Configured) -> None:
        adapted = self._adapt_configuration(recorded)
        is_first, self._recorded_configuration = self._recorded_configuration is None, recorded
        if adapted is None:
            return
        event, machine = adapted
        if is_first:
            self._open_driver(machine)
        self._driver.machine = machine
        self._apply(event)

    def _open_driver(self, machine: Machine) -> None:
        bind = self._live.bind_executor
        dependencies = Dependencies(
            provider=NoModel(),
            executor=self._refuser
            if bind is None
            else bind(self._conversation, lambda: self._driver.snapshot),
            clock=self._clock,
            price=self._live.price,
            output_classes=self._live.output_classes,
            get_provider=self._live.get_provider,
        )
        journal = Journal(GroupCommit(self._store), self._conversation)
        self._driver = Driver(machine, Snapshot(), journal, dependencies)
        self._performer = EffectPerformer(self._driver)
