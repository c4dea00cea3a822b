"""Coverage of a chart: how often conversations have visited each state and taken each transition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.replay import LineReader, ReplayedStep, replay
from toolchart.engine.log.visited_path import build_overlay
from toolchart.states.chart.loading import Chart, walk_states
from toolchart.states.diagram.model import Overlay
from toolchart.testing.transitions import ChartLike, Transition, list_transitions, resolve_chart


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The visits of a chart's states and transitions by a set of conversations."""

    chart: Chart
    conversations: int
    """Conversations that ran this chart."""
    other_conversations: int
    """Conversations that are not counted, because they ran another chart or another version of it."""
    states: dict[str, int]
    """Visits of each state, in document order; 0 where none."""
    transitions: dict[Transition, int]
    """How often each transition was taken, in document order; 0 where never."""
    overlay: Overlay
    """The same for a diagram: `draw(coverage.chart, "mermaid", coverage.overlay)`."""

    @property
    def percent(self) -> float:
        """The share of states and transitions that were visited, in percent, rounded down to one digit."""
        counts = [*self.states.values(), *self.transitions.values()]
        # Rounded down, so that 100 means that nothing is missing.
        return 1000 * sum(count > 0 for count in counts) // len(counts) / 10

    @property
    def missing_states(self) -> tuple[str, ...]:
        """States that no conversation entered."""
        return tuple(name for name, count in self.states.items() if not count)

    @property
    def missing_transitions(self) -> tuple[Transition, ...]:
        """Transitions that no conversation took."""
        return tuple(transition for transition, count in self.transitions.items() if not count)

    def to_dict(self) -> dict[str, Any]:
        """Return the coverage as JSON data."""
        return {
            "chart": self.chart.name,
            "conversations": self.conversations,
            "other_charts": self.other_conversations,
            "percent": self.percent,
            "states": self.states,
            "transitions": [
                {
                    "source": transition.source,
                    "row": transition.row,
                    "event": transition.event,
                    "guards": [*transition.guards, *(f"not ({text})" for text in transition.unless)],
                    "targets": list(transition.targets),
                    "line": transition.line,
                    "taken": count,
                }
                for transition, count in self.transitions.items()
            ],
        }

    def __str__(self) -> str:
        return "\n".join(self._format_lines())

    def _format_lines(self) -> Iterator[str]:
        states, rows = list(self.states.values()), list(self.transitions.values())
        conversations_text = f"{self.conversations} conversation{'' if self.conversations == 1 else 's'}"
        others_text = (
            f" ({self.other_conversations} of another chart left out)" if self.other_conversations else ""
        )
        yield f"{self.chart.name}: {self.percent:g} % visited by {conversations_text}{others_text}"
        yield f"  states       {sum(n > 0 for n in states)} of {len(states)}"
        yield f"  transitions  {sum(n > 0 for n in rows)} of {len(rows)}"
        for name in self.missing_states:
            yield f"  not entered: {name}"
        for transition in self.missing_transitions:
            yield f"  not taken:   {f'line {transition.line}: ' if transition.line else ''}{transition}"


def measure_coverage(
    chart: ChartLike, conversations: Iterable[Iterable[bytes]], *, parents: LineReader | None = None
) -> Coverage:
    """Count what conversations have visited of a chart, by replaying each from its log.

    Args:
        chart: a chart, the name of a shipped one, a path, or an inline mapping.
        conversations: the record lines of each, for instance
            `[store.read_lines(name) for name in store.list_conversations()]`.
        parents: reads the parent of a fork by its name, for instance `store.read_lines`.

    Raises:
        SpecError: no such chart.
        LogDamaged, ReplayMismatch: a log that cannot be trusted.
    """
    loaded_chart = resolve_chart(chart)
    counter = _ConversationCounter(loaded_chart, parents)
    overlay = build_overlay(counter.iterate_steps(conversations))
    return Coverage(
        chart=loaded_chart,
        conversations=counter.matching,
        other_conversations=counter.other_conversations,
        states={name: overlay.states.get(name, 0) for name, _, _ in walk_states(loaded_chart)},
        transitions={
            transition: overlay.edges.get(transition.key, 0) for transition in list_transitions(loaded_chart)
        },
        # Several conversations have no current state in common.
        overlay=replace(overlay, current=()),
    )


class _ConversationCounter:
    """Yields the steps that ran one chart, and counts the conversations with and without such steps."""

    def __init__(self, chart: Chart, parents: LineReader | None) -> None:
        self._chart = chart
        self._parents = parents
        self.matching = 0
        self.other_conversations = 0

    def iterate_steps(self, conversations: Iterable[Iterable[bytes]]) -> Iterator[ReplayedStep]:
        """Yield the steps of this chart; a conversation may have changed its chart between turns."""
        for lines in conversations:
            ran_chart = False
            for step in replay(lines, parents=self._parents):
                if step.machine.chart.digest == self._chart.digest:
                    ran_chart = True
                    yield step
            self.matching += ran_chart
            self.other_conversations += not ran_chart
