"""The transitions of a chart as values: source, row, event, guards, targets and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from toolchart.specs.charts import load_chart
from toolchart.states.chart.loading import Chart, walk_states
from toolchart.states.compiler import FiredTransition
from toolchart.states.diagram.model import format_guard

ChartLike = Chart | str | Path | Mapping[str, Any]
"""A chart, the name of a shipped one, a path, or an inline mapping."""


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One transition: a row in the `transitions` of a state."""

    source: str
    row: int
    """Its position among the transitions of its source, from 0."""
    event: str | None
    """The event, or several separated by spaces as in the chart; None for an eventless transition."""
    targets: tuple[str, ...]
    """The target states; empty for a transition that stays in its state."""
    guards: tuple[str, ...] = ()
    """The guards of `cond`, as written; all must hold."""
    unless: tuple[str, ...] = ()
    """The guards of `unless`, as written; none may hold."""
    line: int | None = None
    """Its line in the chart's own file; None where it is inherited, or the chart has no file."""
    is_inherited: bool = False
    """Whether the chart's own file does not have it: it comes from a chart that is extended, or from
    `after`."""

    @property
    def key(self) -> tuple[str, int]:
        """Source and row, by which steps and diagram overlays identify a transition."""
        return self.source, self.row

    def __str__(self) -> str:
        text = format_guard(self.guards, self.unless)
        trigger = " ".join(part for part in (self.event, f"[{text}]" if text else "") if part)
        return f"{self.source} --{trigger}--> {', '.join(self.targets) or '(stays)'}"


def resolve_chart(chart: ChartLike) -> Chart:
    """Load the chart that a value refers to.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
    """
    if isinstance(chart, Chart):
        return chart

    return load_chart(str(chart) if isinstance(chart, Path) else chart)


def list_transitions(chart: Chart) -> tuple[Transition, ...]:
    """Return every transition that a step can report, in document order.

    The default rows of history states are left out: the machine takes them as part of the transition
    that enters the history state.
    """
    return tuple(_walk_transitions(chart))


def _walk_transitions(chart: Chart) -> Iterator[Transition]:
    for name, body, path in walk_states(chart):
        for row, body_row in enumerate(body.get("transitions") or ()):
            line = chart.lines.get((*path, "transitions", row))
            yield Transition(
                source=name,
                row=row,
                event=body_row.get("event") or None,
                targets=tuple(str(body_row.get("target") or "").split()),
                guards=_to_tuple(body_row.get("cond")),
                unless=_to_tuple(body_row.get("unless")),
                line=line,
                is_inherited=line is None and bool(chart.lines),
            )


def _to_tuple(value: Any) -> tuple[str, ...]:
    return () if not value else (value,) if isinstance(value, str) else tuple(value)


def list_transition_keys(fired_transitions: tuple[FiredTransition, ...]) -> tuple[tuple[str, int], ...]:
    """Return the keys of the transitions that a step took."""
    return tuple(
        (transition.source, transition.row) for transition in fired_transitions if transition.row >= 0
    )
