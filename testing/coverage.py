"""Coverage of a chart: which of its states and transitions conversations have visited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from toolchart.engine.log.replay import Lines, Replayed, replay
from toolchart.engine.log.visited_path import overlay_of
from toolchart.states.chart.loading import Chart, walk_states
from toolchart.states.diagram.model import Overlay
from toolchart.testing.transitions import ChartLike, Transition, chart_of, transitions_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What conversations have visited of a chart."""

    chart: Chart
    conversations: int
    """Conversations that ran this chart."""
    others: int
    """Conversations left out, because they ran another chart or another version of it."""
    states: dict[str, int]
    """Visits of every state, in document order; 0 where none."""
    transitions: dict[Transition, int]
    """How often every transition was taken, in document order; 0 where never."""
    overlay: Overlay
    """The same for a diagram: `draw(coverage.chart, "mermaid", coverage.overlay)`."""

    @property
    def percent(self) -> float:
        """Visited states and taken transitions, of all of them, in percent, to one digit."""
        counts = [*self.states.values(), *self.transitions.values()]
        # Down, never up: 100 means that nothing is missing.
        return 1000 * sum(count > 0 for count in counts) // len(counts) / 10

    @property
    def missing_states(self) -> tuple[str, ...]:
        """States that no conversation entered."""
        return tuple(name for name, count in self.states.items() if not count)

    @property
    def missing_transitions(self) -> tuple[Transition, ...]:
        """Transitions that no conversation took."""
        return tuple(one for one, count in self.transitions.items() if not count)

    def to_dict(self) -> dict[str, Any]:
        """The coverage as JSON data."""
        return {
            "chart": self.chart.name,
            "conversations": self.conversations,
            "other_charts": self.others,
            "percent": self.percent,
            "states": self.states,
            "transitions": [
                {
                    "source": one.source,
                    "row": one.row,
                    "event": one.event,
                    "guards": [*one.guards, *(f"not ({text})" for text in one.unless)],
                    "targets": list(one.targets),
                    "line": one.line,
                    "taken": count,
                }
                for one, count in self.transitions.items()
            ],
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        states, rows = list(self.states.values()), list(self.transitions.values())
        ran = f"{self.conversations} conversation{'' if self.conversations == 1 else 's'}"
        left_out = f" ({self.others} of another chart left out)" if self.others else ""
        yield f"{self.chart.name}: {self.percent:g} % visited by {ran}{left_out}"
        yield f"  states       {sum(n > 0 for n in states)} of {len(states)}"
        yield f"  transitions  {sum(n > 0 for n in rows)} of {len(rows)}"
        for name in self.missing_states:
            yield f"  not entered: {name}"
        for one in self.missing_transitions:
            yield f"  not taken:   {f'line {one.line}: ' if one.line else ''}{one}"


def measure_coverage(
    chart: ChartLike, conversations: Iterable[Iterable[bytes]], *, parents: Lines | None = None
) -> Coverage:
    """What conversations have visited of a chart, each derived again from its log.

    Args:
        chart: a chart, the name of a shipped one, a path, or an inline mapping.
        conversations: the record lines of each, for instance
            `[store.read(name) for name in store.conversations()]`.
        parents: where forks find what they share, for instance `store.read`.

    Raises:
        SpecError: no such chart.
        LogDamaged, ReplayMismatch: a log that cannot be trusted.
    """
    found = chart_of(chart)
    counted = _Counted(found, parents)
    overlay = overlay_of(counted.of(conversations))
    return Coverage(
        chart=found,
        conversations=counted.ours,
        others=counted.others,
        states={name: overlay.states.get(name, 0) for name, _, _ in walk_states(found)},
        transitions={one: overlay.edges.get(one.key, 0) for one in transitions_of(found)},
        # Many conversations stand nowhere together.
        overlay=replace(overlay, current=()),
    )


class _Counted:
    """Passes on the steps that ran one chart, and counts conversations meanwhile."""

    def __init__(self, chart: Chart, parents: Lines | None) -> None:
        self._chart = chart
        self._parents = parents
        self.ours = 0
        self.others = 0

    def of(self, conversations: Iterable[Iterable[bytes]]) -> Iterator[Replayed]:
        """The steps of this chart; one conversation may have changed its chart between turns."""
        for lines in conversations:
            mine = False
            for one in replay(lines, parents=self._parents):
                if one.machine.chart.digest == self._chart.digest:
                    mine = True
                    yield one
            self.ours += mine
            self.others += not mine
