"""The words that a chart may use: the one place where the rules ask for effects, events and facts."""

from __future__ import annotations

from collections.abc import Iterable

from toolchart.states.core.vocabulary import EFFECTS, EVENTS, FACTS, list_chart_events
from toolchart.states.facts import Fact


def list_effect_names() -> Iterable[str]:
    """Effects that `enter` and the other action slots may name."""
    return EFFECTS.names()


def is_effect(name: str) -> bool:
    """Whether an action may name this effect."""
    return name in EFFECTS


def list_event_names() -> Iterable[str]:
    """Events that reach a chart from outside."""
    return list_chart_events()


def is_event(name: str) -> bool:
    """Whether this event reaches a chart from outside, under its own name or as the answer to one effect:
    `replied`, `replied.call_model`."""
    event, _, effect = name.partition(".")
    if effect:
        return effect in EFFECTS and event in EVENTS and event in EFFECTS.find(effect).answers
    return event in list_chart_events()


def list_fact_names() -> Iterable[str]:
    """Facts that guards may read."""
    return FACTS.names()


def find_fact(name: str) -> Fact | None:
    """The descriptor of a fact; None where there is none of this name."""
    return FACTS.find(name) if name in FACTS else None
