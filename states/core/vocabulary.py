"""The vocabulary of charts: the registries of effects, events and facts.

Another package adds a row by an entry point in the group `toolchart.effects`, `toolchart.events` or
`toolchart.facts`; `docs/extending.md` shows each. The core, the rules for charts and `check` read these rows
and keep no list of their own.
"""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace

from toolchart.states.core.reduce import EVENT_ROWS
from toolchart.states.core.requests import EFFECT_ROWS
from toolchart.states.descriptors import Registry
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import EventDescriptor
from toolchart.states.facts import FACTS
from toolchart.states.flows.kinds import DECLARE, KIND_ROWS

__all__ = ["EFFECTS", "EVENTS", "FACTS", "is_chart_event", "list_chart_events"]


def _list_effect_rows() -> list[EffectDescriptor]:
    """The rows of the loop and of flows, each kind with the function that makes the row of a declared one."""
    return [replace(row, declare=DECLARE.get(row.name)) for row in (*EFFECT_ROWS, *KIND_ROWS)]


EFFECTS: Registry[EffectDescriptor] = Registry(
    "effect", "toolchart.effects", EffectDescriptor, _list_effect_rows
)
EVENTS: Registry[EventDescriptor] = Registry("event", "toolchart.events", EventDescriptor, lambda: EVENT_ROWS)


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
