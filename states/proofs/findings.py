"""What a check says about a chart: one value, for what is wrong and for what is good to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolchart.states.chart.document import Chart, walk_states


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a chart, or one that is good to know."""

    kind: str
    """Wrong: `unreachable`, `dead end`, `gap`, `unhandled`, `spin`, `stuck`, `dead row`, `unapproved`,
    `unreviewed`, `lost answer`, `unbounded`, `too large`. Good to know: `order`, `idle`, `not
    cancelled`."""
    message: str
    state: str
    event: str | None = None
    line: int | None = None
    """One-based line in the chart's own file, where it stands there."""
    counterexample: dict[str, Any] | None = None
    """Facts under which it happens."""


def line_of(chart: Chart, state: str, row: int | None = None) -> int | None:
    """The line of a state, or of one of its transitions."""
    for name, _, place in walk_states(chart):
        if name == state:
            return chart.line(place if row is None else (*place, "transitions", row))
    return None


def shown(facts: Mapping[str, Any]) -> str:
    """Facts as people read them: `finish_reason = 'length', iteration = 2`."""
    return ", ".join(f"{name} = {value!r}" for name, value in facts.items())
