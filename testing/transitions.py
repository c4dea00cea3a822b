"""The transitions of a chart under names that tests, reports and diagrams share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolchart.states.chart.loading import Chart, walk_states
from toolchart.states.compiler import Taken
from toolchart.states.diagram.model import guard_text

ChartLike = Chart | str | Path | Mapping[str, Any]
"""A chart, the name of a shipped one, a path, or an inline mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One row of a chart."""

    source: str
    row: int
    """Its place among the transitions of its source, from 0."""
    event: str | None
    """None for an eventless transition; several events stand in one text, as in the chart."""
    targets: tuple[str, ...]
    """Empty for a transition that stays."""
    guards: tuple[str, ...] = ()
    """The guards of `cond`, as written; all must hold."""
    unless: tuple[str, ...] = ()
    """The guards of `unless`, as written; none may hold."""
    line: int | None = None
    """Where it stands in the chart's file; None in a chart that extends another."""

    @property
    def key(self) -> tuple[str, int]:
        """What a step and an overlay call it: source and row."""
        return self.source, self.row

    def __str__(self) -> str:
        text = guard_text(self.guards, self.unless)
        why = " ".join(part for part in (self.event, f"[{text}]" if text else "") if part)
        return f"{self.source} --{why}--> {', '.join(self.targets) or '(stays)'}"


def chart_of(chart: ChartLike) -> Chart:
    """The chart that is meant.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
    """
    if isinstance(chart, Chart):
        return chart
    from toolchart.specs.charts import load_chart

    return load_chart(str(chart) if isinstance(chart, Path) else chart)


def transitions_of(chart: Chart) -> tuple[Transition, ...]:
    """Every transition that a step can report, in document order.

    Default rows of history states are not among them: they say where an entry leads, and the machine
    takes them as part of the transition that enters.
    """
    return tuple(_transitions(chart))


def _transitions(chart: Chart) -> Iterator[Transition]:
    # In a chart that extends another the rows of both are merged, and a place no longer says which.
    extended = ("extends",) in chart.lines
    for name, body, place in walk_states(chart):
        for row, body_row in enumerate(body.get("transitions") or ()):
            yield Transition(
                source=name,
                row=row,
                event=body_row.get("event") or None,
                targets=tuple(str(body_row.get("target") or "").split()),
                guards=_listed(body_row.get("cond")),
                unless=_listed(body_row.get("unless")),
                line=None if extended else chart.lines.get((*place, "transitions", row)),
            )


def _listed(value: Any) -> tuple[str, ...]:
    return () if not value else (value,) if isinstance(value, str) else tuple(value)


def keys(taken: tuple[Taken, ...]) -> tuple[tuple[str, int], ...]:
    """The keys of the transitions that a step took."""
    return tuple((one.source, one.row) for one in taken if one.row >= 0)
