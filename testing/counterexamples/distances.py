"""How far each state of a chart is from another, by the exploration of the chart: the guide of a search."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from toolchart.states.chart.document import Chart
from toolchart.states.machine import get_machine
from toolchart.states.proofs.exploration import explore_chart

FAR = 1_000
"""Farther than any state of a chart that can be explored is from another on a way that a search follows."""


def compute_distances(chart: Chart, label: str) -> Mapping[str, int]:
    """By label of a state of the exploration: the least number of events to one with this label."""
    graph = explore_chart(get_machine(chart))
    sources: dict[str, set[str]] = {}
    for edge in graph.iterate_edges():
        sources.setdefault(edge.target.configuration.label, set()).add(edge.source.configuration.label)
    distances, queue = {label: 0}, deque([label])
    while queue:
        target = queue.popleft()
        for source in sources.get(target, ()):
            if source not in distances:
                distances[source] = distances[target] + 1
                queue.append(source)
    return distances
