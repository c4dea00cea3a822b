"""Which open effect an event answers, and whether it closes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import msgspec

from toolchart.states.core.vocabulary import EFFECTS, EVENTS
from toolchart.states.effects import Effect, EffectDescriptor
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Answering, TurnStarted
from toolchart.states.snapshot import Snapshot, SnapshotBuilder, SnapshotFields


@cache
def _find_row(name: str) -> EffectDescriptor:
    return EFFECTS.find(name)


def describe_effect(effect: Effect) -> EffectDescriptor:
    """The row of an effect; for a declared one that of its kind."""
    return _find_row(effect.kind or effect.name)


@cache
def _list_answers_of(name: str) -> tuple[str, ...]:
    return _find_row(name).answers


def list_answers(effect: Effect) -> tuple[str, ...]:
    """The events that may answer an effect."""
    return _list_answers_of(effect.kind or effect.name)


class AnswerRule(msgspec.Struct, frozen=True, kw_only=True):
    """What one event means for one effect, whatever the conversation: made once for both names."""

    event: str
    """The event as the chart gets it, with the name of the effect."""
    may_close: bool
    has_open_items: Callable[[SnapshotFields, Effect], bool] | None
    """Whether items of the effect are open after the event; None where it has none."""


@lru_cache(maxsize=1024)  # declared effects have names of their own
def _make_answer_rule(event: str, effect: str, kind: str) -> AnswerRule:
    row = _find_row(kind or effect)
    return AnswerRule(
        event=f"{event}.{effect}", may_close=event in row.closing, has_open_items=row.has_open_items
    )


def find_answer_rule(event: str, effect: Effect) -> AnswerRule:
    """What an event means for an effect that it answers or closes."""
    return _make_answer_rule(event, effect.name, effect.kind)


def find_answered_effect(snapshot: Snapshot, event: Answering) -> Effect | None:
    """The open effect that an event answers; None where it is not open any more.

    An event with the id 0 answers the newest open effect that it can answer: a decision of a person, for
    instance, names a call and no effect.

    Raises:
        IllegalEvent: the id was never given, or the effect is answered by other events.
    """
    name, id_ = event.TYPE, event.effect
    for effect in reversed(snapshot.open_effects):
        answers = list_answers(effect)
        if id_ == effect.id or (not id_ and name in answers):
            if name not in answers:
                reason = f"the effect {effect.id} ({effect.name}) is answered by {', '.join(answers)}"
                raise IllegalEvent(event.TYPE, snapshot.state, false_conditions=(reason,))
            return effect
    if 0 < event.effect < snapshot.next_effect:
        return None
    condition = (
        f"an effect {event.effect} was asked for" if event.effect else f"an effect waits for {event.TYPE!r}"
    )
    raise IllegalEvent(
        event.TYPE,
        snapshot.state or "(no turn yet)",
        false_conditions=(condition,),
        legal=list_legal_events(snapshot),
    )


def find_effect_closed_by(snapshot: Snapshot, event: str) -> Effect | None:
    """The open effect that an event from outside closes: `await_user` waits for `user_said`."""
    for effect in snapshot.open_effects:
        if event in describe_effect(effect).closing:
            return effect
    return None


def list_legal_events(snapshot: Snapshot) -> tuple[str, ...]:
    """The events that may come next, those of other packages only where they answer an effect."""
    if snapshot.has_ended:
        return (TurnStarted.TYPE,)
    answers = [name for effect in snapshot.open_effects for name in list_answers(effect)]
    start = (TurnStarted.TYPE,) if snapshot.awaits_user else ()
    return tuple(
        dict.fromkeys((*start, *answers, *(row.name for row in EVENTS.builtin_rows if row.is_external)))
    )


def close_answered_effect(builder: SnapshotBuilder, effect: Effect, rule: AnswerRule) -> None:
    """Close the effect, unless the event answered one item of it and others are open."""
    has_open_items = rule.has_open_items
    if not rule.may_close or (has_open_items is not None and has_open_items(builder, effect)):
        return
    effects = builder.open_effects
    is_only_one = len(effects) == 1
    builder.open_effects = () if is_only_one else tuple([other for other in effects if other.id != effect.id])
