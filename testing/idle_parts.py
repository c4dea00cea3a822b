"""The inherited states and transitions of a chart that no conversation can ever visit.

A chart that extends another inherits what it does not need: a row for an event that cannot arrive in it, or
behind its own row that takes every case. Nobody can test such a row, and its author cannot delete it. `check`
proves which ones they are; what it calls impossible is impossible.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.errors import SpecError
from toolchart.states.machine import get_machine
from toolchart.states.proofs.exploration import explore_chart, explore_with_memory
from toolchart.states.proofs.explored_states import ExplorationGraph
from toolchart.testing.transitions import Transition


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
