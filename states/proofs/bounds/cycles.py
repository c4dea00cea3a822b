"""Find loops without a bound: prove that every turn ends.

**That a turn ends** is proved by ranking functions, as in termination analysis. Look at one strongly
connected component of the exploration graph. An edge in it cannot be taken for ever in two cases:

- it answers an effect that nothing in the component asks for: the effect has finitely many items; or it
  answers one of the calls of a reply, and the component has no new reply;
- it moves a counter that its guards keep near a limit, and nothing in the component resets that counter.

Remove such edges, split what remains into components again, and repeat. A component from which no edge can
be removed holds a cycle that is not proved to end by this. The search for the worst case (`worst_case.py`)
then decides with numbers: it finds also that `replies != 4` ends a cycle, where the counter begins at 0.

What the user sends is left out: a cycle through it is as long as the user wants. So a bound is one for
what follows from one message.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from toolchart.states.facts import Fact
from toolchart.states.proofs.bounds.components import find_components
from toolchart.states.proofs.explored_states import (
    LAST_OUTCOME,
    ExplorationGraph,
    ExploredEdge,
    ExploredState,
    list_counters,
)
from toolchart.states.proofs.solving.solver import find_facts

_FAR_BEYOND_LIMITS = 1000
"""A guard bounds a counter only if it cannot be this many times beyond every limit and number."""


def moves_counter(edge: ExploredEdge, counter: Fact) -> bool:
    """Whether an edge moves a counter by one."""
    if edge.rules_event not in counter.moved_by:
        return False
    # Only the last outcome of a reply ends an iteration.
    return counter.name != "iteration" or LAST_OUTCOME in edge.guards


def resets_counter(edge: ExploredEdge, counter: Fact) -> bool:
    """Whether an edge sets a counter back."""
    return edge.rules_event in counter.reset_by


def find_unbounded_cycle(graph: ExplorationGraph) -> list[ExploredEdge]:
    """The edges of a component with a cycle that is not proved to end; empty where every cycle ends."""
    edges = [edge for edge in graph.iterate_edges() if not edge.is_from_user]
    ranking = _Ranking(graph)
    while True:
        parts = _find_cyclic_parts(graph.states, edges)
        if not parts:
            return []
        ranked_edges = {id(edge) for part in parts for edge in ranking.list_ranked_edges(part)}
        if not ranked_edges:
            return parts[0]
        edges = [edge for part in parts for edge in part if id(edge) not in ranked_edges]


class _Ranking:
    """Finds edges that cannot be taken for ever."""

    def __init__(self, graph: ExplorationGraph) -> None:
        self._solver = graph.solver
        self._vocabulary = graph.vocabulary
        guards = {text for edge in graph.iterate_edges() for text, _ in edge.guards}
        names = {name for text in guards for name in find_facts(text)}
        self._counters = [counter for counter in list_counters(graph.vocabulary) if counter.name in names]
        self._limits = sorted(name for name in names if self._is_limit(name))
        self._far = (_find_largest_number(guards) + 1) * _FAR_BEYOND_LIMITS

    def _is_limit(self, name: str) -> bool:
        fact = self._vocabulary.find_fact(name)
        return fact is not None and fact.type == "integer" and bool(fact.reads_limits)

    def list_ranked_edges(self, part: list[ExploredEdge]) -> list[ExploredEdge]:
        """The edges of a component that end it."""
        finite_edges = {id(edge) for edge in list_finite_edges(part)}
        counters = [
            counter for counter in self._counters if not any(resets_counter(edge, counter) for edge in part)
        ]
        return [
            edge
            for edge in part
            if id(edge) in finite_edges
            or any(moves_counter(edge, counter) and self._is_bounded(edge, counter) for counter in counters)
        ]

    def _is_bounded(self, edge: ExploredEdge, counter: Fact) -> bool:
        """Whether the guards of the edge keep the counter below a number, or near the limits."""
        limits = " + ".join(self._limits) or "0"
        far = f"{counter.name} >= ({limits}) * {_FAR_BEYOND_LIMITS} + {self._far}"
        return not self._solver.is_satisfiable({**dict(edge.guards), far: True}, edge.rules_event)


def list_finite_edges(part: list[ExploredEdge]) -> list[ExploredEdge]:
    """The edges that answer one of finitely many items, where the component brings no new ones."""
    asked_effects = {ask.effect for edge in part for ask in edge.move.asks}
    events = {edge.rules_event for edge in part}
    return [
        edge
        for edge in part
        if (edge.effect is not None and edge.effect.name not in asked_effects)
        or (_answers_call(edge) and not events & _BRING_CALLS[edge.event])
    ]


_BRING_CALLS = {"tool_finished": {"replied"}, "decided": {"replied", "reviewed"}}
"""By event that answers a call: the events that bring further calls for it."""


def _answers_call(edge: ExploredEdge) -> bool:
    """Whether an edge answers a call; where there is none, the answer says that there was nothing to do."""
    stage = edge.source.call_stage
    return (edge.event == "tool_finished" and stage != "none") or (
        edge.event == "decided" and stage == "undecided"
    )


def _find_largest_number(guards: Iterable[str]) -> int:
    numbers = [
        abs(node.value)
        for text in guards
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    ]
    return int(max(numbers, default=0))


def _find_cyclic_parts(
    states: Iterable[ExploredState], edges: list[ExploredEdge]
) -> list[list[ExploredEdge]]:
    """The edges inside each strongly connected component that has a cycle."""
    successors: dict[ExploredState, list[ExploredState]] = {state: [] for state in states}
    for edge in edges:
        successors.setdefault(edge.source, []).append(edge.target)
    component_of = find_components(successors)
    edges_by_component: dict[int, list[ExploredEdge]] = {}
    for edge in edges:
        if component_of[edge.source] == component_of.get(edge.target, -1):
            edges_by_component.setdefault(component_of[edge.source], []).append(edge)
    return list(edges_by_component.values())
