"""`Finding`: one result of a check, used for faults and for notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolchart.states.chart.document import Chart, walk_states


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a chart, or one note about it."""

    kind: str
    """Faults: `unreachable`, `dead end`, `gap`, `unhandled`, `spin`, `stuck`, `dead row`, `unapproved`,
    `unreviewed`, `lost answer`, `no answer`, `unbounded`, `too large`. Notes: `order`, `idle`,
    `not cancelled`, `template`."""
    message: str
    state: str
    event: str | None = None
    line: int | None = None
    """One-based line in the chart's own file; None where it comes from a chart that is extended."""
    counterexample: dict[str, Any] | None = None
    """Facts under which it happens."""
    run: tuple[str, ...] = ()
    """The events that lead there, from the user's message on; empty for what never happens."""
    change: str = ""
    """What to change."""


def find_finding_line(chart: Chart, state: str, row: int | None = None) -> int | None:
    """The line of a state, or of one of its transitions, in the chart's file."""
    for name, _, place in walk_states(chart):
        if name == state:
            return chart.find_line(place if row is None else (*place, "transitions", row))
    return None


def format_facts(facts: Mapping[str, Any]) -> str:
    """Facts as text: `finish_reason = 'length', iteration = 2`."""
    return ", ".join(f"{name} = {value!r}" for name, value in facts.items())
