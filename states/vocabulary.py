"""The vocabulary of charts: the registries of effects, events and facts.

The rows stand beside the functions that they name: those that build effects in `core/requests.py` and
`core/kinds.py`, those that reduce events in `core/reduce.py`, those that read facts in `core/fact_rows.py`.
The registries load them by reference when they are first used. So what reads a table (charts, the machine,
`check`) stands below what fills it, and imports nothing of it.

Another package adds a row by an entry point in the group `toolchart.effects`, `toolchart.events` or
`toolchart.facts`; `docs/extending.md` shows each. The core, the rules for charts and `check` read these rows
and keep no list of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from toolchart.states.descriptors import Registry, load_reference
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import EventDescriptor
from toolchart.states.facts import FACTS

__all__ = ["EFFECTS", "EVENTS", "FACTS", "is_chart_event", "list_chart_events"]


def _load_effect_rows() -> Iterable[EffectDescriptor]:
    rows: Iterable[EffectDescriptor] = load_reference("toolchart.states.core.kinds:ALL_EFFECT_ROWS")
    return rows


def _load_event_rows() -> Iterable[EventDescriptor]:
    rows: Iterable[EventDescriptor] = load_reference("toolchart.states.core.reduce:EVENT_ROWS")
    return rows


EFFECTS: Registry[EffectDescriptor] = Registry(
    "effect", "toolchart.effects", EffectDescriptor, _load_effect_rows
)
EVENTS: Registry[EventDescriptor] = Registry("event", "toolchart.events", EventDescriptor, _load_event_rows)


def is_chart_event(name: str) -> bool:
    """Whether a chart may name this event: one that the core sends to the machine.

    Raises:
        PluginUnusable: another package offers it, and cannot be loaded.
    """
    return name in list_chart_events() or (name in EVENTS and EVENTS.find(name).reduce is not None)


@cache
def list_chart_events() -> tuple[str, ...]:
    """The events of Toolchart that a chart may name, in the order of their table."""
    return tuple(row.name for row in EVENTS.builtin_rows if row.reduce is not None)
