"""The invariants that every chart must keep, checked after every step of a conversation.

An `InvariantMonitor` checks every step of a conversation and raises an `AssertionError` that names the
invariant, the state and the call that broke it. The invariants and their numbers:

1. every call that a model asks for is answered exactly once before the model is asked again, and truthfully:
   `skipped` only if it never began, `interrupted` only if it may have begun: it has a start mark, or is
   idempotent and was asked for;
2. the record of a step names every effect that the step asks for, and a step is deterministic: the
   same machine, snapshot and event give the same result;
3. the whole log replays;
4. a turn that ends has tracked every call and has an answer;
5. a call that must not be repeated does not run twice, whenever a process is killed: the tests that kill
   processes check it, and the monitor does not;
6. the size of an effect in a record does not grow with the conversation.

Besides, the ids of effects grow, every open effect belongs to an active state, and none is open when a turn
is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import orjson

from toolchart.engine.log.record import RecordedAsk, describe_ask
from toolchart.engine.log.replay import replay
from toolchart.states.core.step import Step, find_answered_effect, step
from toolchart.states.effects import CallModel, RunTools
from toolchart.states.events import CallsStarted, Event, Replied, Resumed, Reviewed, TurnStarted
from toolchart.states.messages import Message
from toolchart.testing.manual_turn import LogWriter, ManualTurn

MAX_EFFECT_BYTES = 160
"""Largest JSON of an effect in a record, its call ids and its answer not counted."""


class InvariantMonitor:
    """Checks the steps of one conversation."""

    def __init__(self) -> None:
        self.log = LogWriter()
        """The log that the checked steps have written."""
        self._run_counts: Counter[str] = Counter()
        """How often each call of this turn was requested from `run_tools`, by call id."""
        self._idempotent_ids: set[str] = set()
        """Calls whose verdict says that they are idempotent."""
        self._begun_ids: set[str] = set()
        """Calls that may have begun."""
        self._newest_effect = 0
        """Id of the newest effect."""
        self._requested_calls = 0
        """How many calls the model made in this turn."""
        self._contents: list[str] = []
        """The texts of the model's replies in this turn."""

    def check_step(self, before: ManualTurn, event: Event, after: ManualTurn, result: Step) -> None:
        """Check one step: the turn before and after it, its event and its result."""
        if isinstance(event, TurnStarted):
            self._run_counts.clear()
            self._idempotent_ids.clear()
            self._begun_ids.clear()
            self._requested_calls, self._contents = 0, []
        if isinstance(event, Replied) and not result.is_late and not _brings_result(before, event):
            self._requested_calls += len(event.reply.tool_calls)
            self._contents.append(event.reply.content or "")
        if isinstance(event, Reviewed) and not result.is_late:
            self._idempotent_ids |= {verdict.call_id for verdict in event.verdicts if verdict.idempotent}
        elif isinstance(event, CallsStarted):
            self._begun_ids |= {*event.calls}
        self._check_determinism(before, event, result)
        self._check_record(event, result)
        self._check_effects(before, event, after, result)
        if not isinstance(event, TurnStarted):
            self._check_outcomes(before, after, result)
        for effect in result.effects:
            if isinstance(effect, CallModel):
                check_calls_answered_once(effect.request.messages)
            elif isinstance(effect, RunTools) and isinstance(event, Resumed):
                self._check_calls_begun_once(effect, event)
            elif isinstance(effect, RunTools):
                self._check_calls_run_once(effect, result)
        if after.snapshot.is_over and not before.snapshot.is_over:
            self._check_turn_end(after, result)

    def check_log_replays(self) -> None:
        """Check invariant 3: the whole log that was written replays."""
        steps = sum(1 for _ in replay(self.log.lines, "scripted"))
        assert steps == len(self.log.lines), "invariant 3: the log does not replay"

    # -- one method for each invariant -----------------------------------------------------------

    @staticmethod
    def _check_determinism(before: ManualTurn, event: Event, result: Step) -> None:
        repetition = step(before.machine, before.snapshot, event)
        is_same = repetition.effects == result.effects and repetition.snapshot == result.snapshot
        assert is_same, f"invariant 2: {event.TYPE!r} in {result.source!r} gave two different results"

    def _check_record(self, event: Event, result: Step) -> None:
        record = orjson.loads(self.log.write_record(event, result))
        recorded_names = [ask["effect"] for ask in record.get("asks", [])]
        effect_names = [effect.name for effect in result.effects]
        assert recorded_names == effect_names, (
            f"invariant 2: the record names {recorded_names}, the step asks for {effect_names}"
        )
        for effect in result.effects:
            ask = describe_ask(effect, result.snapshot)
            size = len(msgspec.json.encode(ask))
            variable = _count_variable_bytes(ask)
            assert size <= MAX_EFFECT_BYTES + variable, (
                f"invariant 6: {effect.name!r} takes {size} bytes of the record in {result.target!r}"
            )

    def _check_effects(self, before: ManualTurn, event: Event, after: ManualTurn, result: Step) -> None:
        # A worker that takes over asks again for what it performs otherwise, under the same id.
        open_effects = before.snapshot.open_effects if isinstance(event, Resumed) else ()
        resumed_ids = {effect.id for effect in open_effects}
        for effect in result.effects:
            if effect.id in resumed_ids:
                continue
            assert effect.id > self._newest_effect, (
                f"the effect {effect.name!r} of {result.target!r} has the id {effect.id} after "
                f"{self._newest_effect}: ids must grow"
            )
            self._newest_effect = effect.id
        snapshot = after.snapshot
        active_states = snapshot.configuration.states if snapshot.configuration is not None else ()
        for effect in snapshot.open_effects:
            assert not snapshot.has_ended, (
                f"the turn is over in {result.target!r}, and {effect.name!r} is open"
            )
            assert effect.state in active_states, (
                f"the effect {effect.name!r} of {effect.state!r} is open in {result.target!r}"
            )
            assert effect.id not in result.cancels, f"the effect {effect.name!r} is cancelled and open"

    def _check_outcomes(self, before: ManualTurn, after: ManualTurn, result: Step) -> None:
        """Check invariant 1 for the outcomes that this step has told the model."""
        new_messages = after.snapshot.messages[len(before.snapshot.messages) :]
        call_ids = [message.tool_call_id or "" for message in new_messages if message.role == "tool"]
        new_calls = after.snapshot.tracked_calls[len(before.snapshot.tracked_calls) :]
        for call_id, call in zip(call_ids, new_calls, strict=True):
            is_requested = self._run_counts[call_id] > 0
            has_begun = call_id in self._begun_ids
            assert not (has_begun and call.outcome == "skipped"), (
                f"invariant 1: the call {call_id!r} ends as skipped in {result.target!r}, and may have run"
            )
            assert has_begun or call.outcome != "interrupted", (
                f"invariant 1: the call {call_id!r} ends as interrupted in {result.target!r}, and never began"
            )
            assert is_requested or call.outcome != "succeeded", (
                f"invariant 1: the call {call_id!r} ends as succeeded in {result.target!r}, and was never "
                "asked for"
            )

    def _check_calls_run_once(self, effect: RunTools, result: Step) -> None:
        call_ids = [call.id for call in effect.calls]
        self._run_counts.update(call_ids)
        self._begun_ids |= self._idempotent_ids & {*call_ids}
        repeats = [call for call, times in self._run_counts.items() if times > 1]
        assert not repeats, (
            f"invariant 1: the call {repeats[0]!r} is run a second time after {result.source!r}; a row that "
            f"enters {result.target!r} again while calls are open should stay instead (leave `target` out)"
        )

    def _check_calls_begun_once(self, effect: RunTools, event: Resumed) -> None:
        repeatable = self._idempotent_ids | {*event.repeatable}
        begun_again = [call.id for call in effect.calls if call.id in self._begun_ids - repeatable]
        assert not begun_again, f"invariant 5: the call {begun_again[0]!r} began, and is run again"

    def _check_turn_end(self, after: ManualTurn, result: Step) -> None:
        snapshot = after.snapshot
        tracked_count = len(snapshot.tracked_calls)
        assert snapshot.answer is not None, (
            f"invariant 4: the final state {result.target!r} gives no answer: "
            "give it `enter: answer`, `answer_at_limit` or `answer_with_error`"
        )
        assert tracked_count == self._requested_calls, (
            f"invariant 4: the turn ended in {result.target!r} with {tracked_count} calls tracked, "
            f"the model made {self._requested_calls}"
        )
        assert all(text in _join_contents(snapshot.messages) for text in self._contents), (
            f"invariant 4: a text of the model is missing from the messages at {result.target!r}"
        )
        check_calls_answered_once(snapshot.messages)


def check_calls_answered_once(messages: Sequence[Message]) -> None:
    """Check invariant 1: every call has exactly one answer, which follows it under its id, and every
    answer has a call.

    Raises:
        AssertionError: names the call id.
    """
    open_ids: set[str] = set()
    used_ids: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in open_ids, (
                f"invariant 1: {message.tool_call_id!r} is answered, and no call waits for it"
            )
            open_ids.discard(message.tool_call_id or "")
            continue
        assert not open_ids, f"invariant 1: {sorted(open_ids)} had no answer before the next message"
        for call in message.tool_calls:
            assert call.id, f"invariant 1: a call of {call.name!r} has no id"
            assert call.id not in used_ids, f"invariant 1: two calls have the id {call.id!r}"
            used_ids.add(call.id)
            open_ids.add(call.id)
    assert not open_ids, f"invariant 1: {sorted(open_ids)} had no answer at the end"


def _count_variable_bytes(ask: RecordedAsk) -> int:
    """Bytes of an effect that depend on its call ids, its own messages, its arguments or its answer."""
    parts = (ask.calls, ask.refused, ask.content, ask.own, ask.arguments, ask.result, ask.host)
    return len(msgspec.json.encode(parts))


def _brings_result(before: ManualTurn, event: Replied) -> bool:
    """Whether a reply answers a call with a result, which writes no message."""
    effect = find_answered_effect(before.snapshot, event)
    return effect is not None and bool(effect.result)


def _join_contents(messages: Sequence[Message]) -> str:
    return "\n".join(message.content or "" for message in messages)
