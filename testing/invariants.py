"""The invariants that any chart must keep, watched step by step.

A watch sees every step of a conversation and raises an `AssertionError` that says which promise was
broken, where, and with which call. The numbers are those of the design:

1. every call that a model asks for is answered exactly once before the model is asked again;
2. what a step asks for stands in the record of that very step, and a step is a function: the same
   three arguments give the same answer;
3. the log derives again, whole;
4. nothing is lost where a turn ends: every call is tracked and the turn has an answer;
6. what a record says of its effects does not grow with the conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import orjson

from toolchart.engine.log.record import effect_data
from toolchart.engine.log.replay import replay
from toolchart.states.core.step import Step, step
from toolchart.states.effects import Answer, CallModel, Effect, RunTools
from toolchart.states.events import AnyEvent, Replied, TurnStarted
from toolchart.states.messages import Message
from toolchart.testing.manual_turn import Walk, Writer

PLAIN_EFFECT_BYTES = 160
"""JSON of an effect without its call ids and its answer: a name and a fingerprint."""


class Watch:
    """Watches one conversation."""

    def __init__(self) -> None:
        self.writer = Writer()
        self._asked: Counter[str] = Counter()
        """How often each call of the turn was asked to run."""
        self._requested = 0
        """Calls that the model asked for in this turn."""
        self._contents: list[str] = []
        """What the model said in this turn."""

    def taken(self, before: Walk, event: AnyEvent, after: Walk, made: Step) -> None:
        """One step was made."""
        if isinstance(event, TurnStarted):
            self._asked.clear()
            self._requested, self._contents = 0, []
        if isinstance(event, Replied):
            self._requested += len(event.reply.tool_calls)
            self._contents.append(event.reply.content or "")
        self._is_a_function(before, event, made)
        self._is_recorded(event, made)
        for effect in made.effects:
            if isinstance(effect, CallModel):
                answered_once(effect.request.messages)
            elif isinstance(effect, RunTools):
                self._runs_once(effect, made)
        if after.snapshot.over and not before.snapshot.over:
            self._nothing_lost(after, made)

    def derives_again(self) -> None:
        """Invariant 3: the log that was written replays, whole."""
        steps = sum(1 for _ in replay(self.writer.lines, "scripted"))
        assert steps == len(self.writer.lines), "invariant 3: the log does not derive again"

    # -- each promise ----------------------------------------------------------------------------

    @staticmethod
    def _is_a_function(before: Walk, event: AnyEvent, made: Step) -> None:
        again = step(before.machine, before.snapshot, event)
        same = again.effects == made.effects and again.snapshot == made.snapshot
        assert same, f"invariant 2: {event.TYPE!r} in {made.source!r} gave two different answers"

    def _is_recorded(self, event: AnyEvent, made: Step) -> None:
        record = orjson.loads(self.writer.note(event, made))
        named = [effect["type"] for effect in record["effects"]]
        asked = [effect.name for effect in made.effects]
        assert named == asked, f"invariant 2: the record names {named}, the step asks for {asked}"
        for effect in made.effects:
            size = len(orjson.dumps(effect_data(effect, made.snapshot)))
            own = _own_bytes(effect)
            assert size <= PLAIN_EFFECT_BYTES + own, (
                f"invariant 6: the record says {size} bytes of {effect.name!r} in {made.target!r}"
            )

    def _runs_once(self, effect: RunTools, made: Step) -> None:
        self._asked.update(call.id for call in effect.calls)
        twice = [call for call, times in self._asked.items() if times > 1]
        assert not twice, (
            f"invariant 1: the call {twice[0]!r} is run a second time after {made.source!r}; a row that "
            f"enters {made.target!r} again while calls are open should stay instead (leave `target` out)"
        )

    def _nothing_lost(self, after: Walk, made: Step) -> None:
        snapshot = after.snapshot
        tracked = len(snapshot.tracked)
        assert snapshot.answer is not None, (
            f"invariant 4: the final state {made.target!r} answers nothing: "
            "give it `enter: answer`, `answer_at_limit` or `answer_with_error`"
        )
        assert tracked == self._requested, (
            f"invariant 4: the turn ended in {made.target!r} with {tracked} calls tracked, "
            f"{self._requested} were asked for"
        )
        assert all(text in _said(snapshot.messages) for text in self._contents), (
            f"invariant 4: something that the model said is not in the conversation at {made.target!r}"
        )
        answered_once(snapshot.messages)


def answered_once(messages: Sequence[Message]) -> None:
    """Invariant 1: every call has one answer, after it, under its own id, and no answer is a stray."""
    open_ids: set[str] = set()
    used: set[str] = set()
    for message in messages:
        if message.role == "tool":
            known = message.tool_call_id in open_ids
            assert known, (
                f"invariant 1: {message.tool_call_id!r} is answered, and no call waits for it"
            )
            open_ids.discard(message.tool_call_id or "")
            continue
        assert not open_ids, (
            f"invariant 1: {sorted(open_ids)} had no answer before the next message"
        )
        for call in message.tool_calls:
            assert call.id, f"invariant 1: a call of {call.name!r} has no id"
            assert call.id not in used, f"invariant 1: two calls have the id {call.id!r}"
            used.add(call.id)
            open_ids.add(call.id)
    assert not open_ids, f"invariant 1: {sorted(open_ids)} had no answer at the end"


def _own_bytes(effect: Effect) -> int:
    """What an effect may say beside its name: the ids of its calls, or its answer."""
    match effect:
        case RunTools():
            return sum(len(orjson.dumps(call.id)) + 1 for call in effect.calls)
        case Answer():
            return len(orjson.dumps(effect.content))
        case _:
            return 0


def _said(messages: Sequence[Message]) -> str:
    return "\n".join(message.content or "" for message in messages)
