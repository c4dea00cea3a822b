"""The words that a chart may use: the one place where the rules ask for effects, events and facts."""

from __future__ import annotations

from collections.abc import Iterable

from toolchart.states.effects import EFFECTS
from toolchart.states.events import CHART_EVENTS
from toolchart.states.facts import FACTS, Fact


def list_effect_names() -> Iterable[str]:
    """Effects that `enter` and the other action slots may name."""
    return tuple(EFFECTS)


def is_effect(name: str) -> bool:
    """Whether an action may name this effect."""
    return name in EFFECTS


def list_event_names() -> Iterable[str]:
    """Events that reach a chart from outside."""
    return tuple(CHART_EVENTS)


def is_event(name: str) -> bool:
    """Whether this event reaches a chart from outside."""
    return name in CHART_EVENTS


def list_fact_names() -> Iterable[str]:
    """Facts that guards may read."""
    return tuple(FACTS)


def find_fact(name: str) -> Fact | None:
    """The descriptor of a fact; None where there is none of this name."""
    return FACTS.get(name)
