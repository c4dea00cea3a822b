"""Kinds of effects for badges: what a state asks of the world, read from their rows.

A renderer shows the kind beside the name of the effect. A new effect needs nothing here: its descriptor says
whether it calls a model or waits, and the events that answer it say who works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from toolchart.states.chart.vocabulary import GENERAL_VOCABULARY, Vocabulary
from toolchart.states.effects import EffectDescriptor
from toolchart.states.vocabulary import get_effects

EffectKind = Literal["model", "tools", "person", "timer", "agent", "function", "user", "answer", "other"]
"""Who does the work of an effect; `answer` gives the turn its answer, `other` does nothing outside."""

_KINDS_BY_ANSWER: tuple[tuple[str, EffectKind], ...] = (
    ("tool_finished", "tools"),
    ("agent_finished", "agent"),
    ("returned", "function"),
    ("user_said", "user"),
    ("answered", "person"),
    ("decided", "person"),
)
"""The event that answers an effect tells who did the work; the first that fits counts."""


class EffectBadge(msgspec.Struct, frozen=True, kw_only=True):
    """One effect that a state asks for when it is entered."""

    kind: EffectKind
    label: str
    """Its name in the chart."""


def classify_effect(row: EffectDescriptor) -> EffectKind:
    """The kind of an effect, from what its row says."""
    if row.calls_model:
        return "model"
    if row.is_timer:
        return "timer"
    if row.ends_turn:
        return "answer"
    if row.is_pure:
        return "other"
    answers = (*row.closing, *row.progress)
    for event, kind in _KINDS_BY_ANSWER:
        if event in answers:
            return kind
    return "other"


def list_badges(actions: Any, vocabulary: Vocabulary = GENERAL_VOCABULARY) -> tuple[EffectBadge, ...]:
    """The badges of the effects under `enter` of a state, those inside `if` included."""
    return tuple(
        EffectBadge(kind=find_effect_kind(name, vocabulary), label=name)
        for name in dict.fromkeys(_iterate_names(actions))
    )


def find_effect_kind(name: str, vocabulary: Vocabulary = GENERAL_VOCABULARY) -> EffectKind:
    """The kind of an effect by its name; `other` for one that this release does not have.

    Args:
        vocabulary: that of the chart which names it.
    """
    if name not in vocabulary.declared and name not in get_effects():
        return "other"
    return classify_effect(vocabulary.find_effect(name))


def _iterate_names(actions: Any) -> Iterator[str]:
    for action in actions if isinstance(actions, list) else [actions] if actions else []:
        if isinstance(action, str):
            yield action
        elif "if" in action:
            yield from _iterate_branch_names(action["if"])


def _iterate_branch_names(body: Any) -> Iterator[str]:
    for branch in (body, *(body.get("elif") or ())):
        yield from _iterate_names(branch.get("then"))
    yield from _iterate_names(body.get("else"))
