"""Coverage of a chart: how often conversations have visited each state and taken each transition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.read_records import LineReader, ReadRecord, read_records
from toolchart.engine.reading.visited_path import build_overlay, load_recorded_chart
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.diagram.model import Overlay
from toolchart.states.errors import SpecError
from toolchart.states.events import CONFIGURATION_TYPES
from toolchart.states.machine import get_machine
from toolchart.states.proofs.exploration import explore_chart, explore_with_memory
from toolchart.states.proofs.explored_states import ExplorationGraph
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
    idle_states: frozenset[str] = frozenset()
    """Unvisited states that another chart has brought and that this one can never enter."""
    idle_transitions: frozenset[Transition] = frozenset()
    """Untaken transitions that another chart has brought and that can never be taken in this one."""

    @property
    def percent(self) -> float:
        """The share of states and transitions that were visited, in percent, rounded down to one digit.

        Inherited ones that can never be visited do not count, so that 100 % can be reached.
        """
        counts = [count for name, count in self.states.items() if name not in self.idle_states]
        counts += [count for key, count in self.transitions.items() if key not in self.idle_transitions]
        # Rounded down, so that 100 means that nothing is missing.
        return 1000 * sum(count > 0 for count in counts) // len(counts) / 10

    @property
    def missing_states(self) -> tuple[str, ...]:
        """States that no conversation entered and that could be entered."""
        return tuple(n for n, count in self.states.items() if not count and n not in self.idle_states)

    @property
    def missing_transitions(self) -> tuple[Transition, ...]:
        """Transitions that no conversation took and that could be taken."""
        idle_transitions = self.idle_transitions
        return tuple(t for t, count in self.transitions.items() if not count and t not in idle_transitions)

    def to_dict(self) -> dict[str, Any]:
        """Return the coverage as JSON data."""
        return {
            "chart": self.chart.name,
            "conversations": self.conversations,
            "other_charts": self.other_conversations,
            "percent": self.percent,
            "states": self.states,
            "idle_states": sorted(self.idle_states),
            "transitions": [
                {
                    "source": transition.source,
                    "row": transition.row,
                    "event": transition.event,
                    "guards": [*transition.guards, *(f"not ({text})" for text in transition.unless)],
                    "targets": list(transition.targets),
                    "line": transition.line,
                    "taken": count,
                    "inherited": transition.is_inherited,
                    "idle": transition in self.idle_transitions,
                }
                for transition, count in self.transitions.items()
            ],
        }

    def __str__(self) -> str:
        return "\n".join(self._format_lines())

    def _format_lines(self) -> Iterator[str]:
        states = [count for name, count in self.states.items() if name not in self.idle_states]
        rows = [count for key, count in self.transitions.items() if key not in self.idle_transitions]
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
        for name in sorted(self.idle_states):
            yield f"  inherited, never entered: {name}"
        for transition in self.transitions:
            if transition in self.idle_transitions:
                yield f"  inherited, never taken: {transition}"


def measure_coverage(
    chart: ChartLike, conversations: Iterable[Iterable[bytes]], *, parents: LineReader | None = None
) -> Coverage:
    """Count what conversations have visited of a chart, from what their logs recorded.

    Args:
        chart: a chart, the name of a shipped one, a path, or an inline mapping.
        conversations: the record lines of each, for instance
            `[store.read_lines(name) for name in store.list_conversations()]`.
        parents: reads the parent of a fork by its name, for instance `store.read_lines`.

    Raises:
        SpecError: no such chart.
        LogDamaged: a log that is not the one that was written.
    """
    loaded_chart = resolve_chart(chart)
    counter = _ConversationCounter(loaded_chart, parents)
    overlay = build_overlay(loaded_chart, counter.iterate_records(conversations))
    states = {name: overlay.states.get(name, 0) for name, _, _ in walk_states(loaded_chart)}
    rows = {row: overlay.edges.get(row.key, 0) for row in list_transitions(loaded_chart)}
    idle_states, idle_transitions = find_idle_parts(
        loaded_chart,
        [name for name, count in states.items() if not count],
        [row for row, count in rows.items() if not count],
    )
    return Coverage(
        chart=loaded_chart,
        conversations=counter.matching,
        other_conversations=counter.other_conversations,
        states=states,
        transitions=rows,
        idle_states=idle_states,
        idle_transitions=idle_transitions,
        # Several conversations have no current state in common.
        overlay=replace(overlay, current=()),
    )


class _ConversationCounter:
    """Yields the records that ran one chart, and counts the conversations with and without such records."""

    def __init__(self, chart: Chart, parents: LineReader | None) -> None:
        self._chart = chart
        self._parents = parents
        self.matching = 0
        self.other_conversations = 0

    def iterate_records(self, conversations: Iterable[Iterable[bytes]]) -> Iterator[ReadRecord]:
        """Yield the records of this chart; a conversation may have changed its chart between turns.

        The records that a fork shares with its parent only say which chart it began with.
        """
        for lines in conversations:
            own_lines = list(lines)
            ran_chart = is_same_chart = False
            records = list(
                read_records(own_lines, parents=self._parents, include_shared=self._parents is not None)
            )
            first_own = len(records) - len(own_lines)
            for index, record in enumerate(records):
                if record.event_type in CONFIGURATION_TYPES:
                    is_same_chart = load_recorded_chart(record.event).digest == self._chart.digest
                if is_same_chart and index >= first_own:
                    ran_chart = True
                    yield record
            self.matching += ran_chart
            self.other_conversations += not ran_chart


# -- idle parts ----------------------------------------------------------------------------------
# The inherited states and transitions of a chart that no conversation can ever visit.
#
# A chart that extends another inherits what it does not need: a row for an event that cannot arrive in it, or
# behind its own row that takes every case. Nobody can test such a row, and its author cannot delete it.
# `check` proves which ones they are; what it calls impossible is impossible.


def find_idle_parts(
    chart: Chart, states: Iterable[str], transitions: Iterable[Transition]
) -> tuple[frozenset[str], frozenset[Transition]]:
    """Those among unvisited states and transitions that are inherited and can never be visited."""
    own_states = {name for name, _, position in walk_states(chart) if position in chart.lines}
    inherited_states = [name for name in states if chart.lines and name not in own_states]
    inherited_rows = [transition for transition in transitions if transition.is_inherited]
    graph = _explore(chart) if inherited_states or inherited_rows else None
    if graph is None:
        return frozenset(), frozenset()
    fired_rows = {(fired.source, fired.row) for move in graph.iterate_moves() for fired in move.fired}
    entered_states = graph.list_entered_states()
    return (
        frozenset(name for name in inherited_states if name not in entered_states),
        frozenset(transition for transition in inherited_rows if transition.key not in fired_rows),
    )


def _explore(chart: Chart) -> ExplorationGraph | None:
    """The exploration of a chart; None where it is too large, so that nothing is certain."""
    machine = get_machine(chart)
    try:
        graph = explore_chart(machine)
        graph = explore_with_memory(machine, graph)
    except SpecError:  # the chart never rests from its start
        return None
    never_rests = any(refusal.never_rests for refusal in graph.refusals)
    return graph if graph.is_complete and not never_rests else None
