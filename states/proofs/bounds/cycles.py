"""Find loops without a bound: prove that every turn ends.

**That a turn ends** is proved by ranking functions, as in termination analysis. Look at one strongly
connected component of the exploration graph. An edge in it cannot be taken for ever in two cases:

- it answers an effect that nothing in the component asks for: the effect has finitely many items; or it
  answers one of the calls of a reply, and the component has no new reply;
- it moves a counter that its guards keep near a limit, and nothing in the component resets that counter.

Remove such edges, split what remains into components again, and repeat. Where no edge can be removed, two
cases remain for each counter that nothing in the component resets. Either edges that move it are taken
finitely often; or it grows beyond every guard that bounds it, and edges with such a guard are. A component
that ends in both cases ends. Any other holds a cycle that is not proved to end by this. The search for the
worst case (`worst_case.py`) then decides with numbers: it finds also that `replies != 4` ends a cycle, where
the counter begins at 0.

What the user sends is left out: a cycle through it is as long as the user wants. So a bound is one for
what follows from one message.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.proofs.explored_states import (
    LAST_OUTCOME,
    ExplorationGraph,
    ExploredEdge,
    ExploredState,
    list_counters,
)
from toolchart.states.proofs.solving.solver import find_facts
from toolchart.states.vocabulary import Fact, get_facts

_MAX_SPLITS = 3
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


class Brake(msgspec.Struct, frozen=True, kw_only=True):
    """A guard that would end a cycle."""

    counter: str
    limit: str
    """What it stays below: a limit of the spec, or a number."""
    rows: tuple[tuple[str, int], ...]
    """The rows that have to ask it, each a state and the number of its row: those that move the counter."""


def find_brake(vocabulary: Vocabulary, cycle: list[ExploredEdge]) -> Brake | None:
    """A counter that a guard can end a cycle by: each way round moves it, and nothing there sets it back.

    Args:
        cycle: the edges of a component.

    Returns:
        The first of the results, then of the core; None where no counter moves on each way round.
    """
    names = [*vocabulary.result_facts, *get_facts()]
    for counter in list_counters(vocabulary, names):
        moving = [edge for edge in cycle if moves_counter(edge, counter)]
        others = [edge for edge in cycle if edge not in moving]
        if not moving or any(resets_counter(edge, counter) for edge in cycle) or _find_cyclic_parts(others):
            continue
        rows = dict.fromkeys((fired.source, fired.row) for edge in moving for fired in edge.move.fired)
        if rows:
            return Brake(counter=counter.name, limit=counter.limit or "4", rows=tuple(rows))
    return None


def find_unbounded_cycle(graph: ExplorationGraph) -> list[ExploredEdge]:
    """The edges of a component with a cycle that is not proved to end; empty where every cycle ends."""
    edges = [edge for edge in graph.iterate_edges() if not edge.is_from_user]
    return _find_endless_part(_Ranking(graph), edges, _MAX_SPLITS)


def _find_endless_part(ranking: _Ranking, edges: list[ExploredEdge], splits: int) -> list[ExploredEdge]:
    """The edges of a component that is not proved to end; empty where each one ends.

    Args:
        splits: how often a component may still be split in two cases.
    """
    while parts := _find_cyclic_parts(edges):
        ranked_edges = {id(edge) for part in parts for edge in ranking.list_ranked_edges(part)}
        if not ranked_edges:
            endless = (part for part in parts if not _ends_in_both_cases(ranking, part, splits))
            return next(endless, [])
        edges = [edge for part in parts for edge in part if id(edge) not in ranked_edges]
    return []


def _ends_in_both_cases(ranking: _Ranking, part: list[ExploredEdge], splits: int) -> bool:
    """Whether a component ends for the sake of one counter, which it never resets.

    If edges that move the counter were taken for ever, it would grow beyond what any guard bounds, so edges
    that such a guard allows would not be taken for ever. So it ends if it ends without either kind of edges.
    """
    for moving, bounded in ranking.iterate_cases(part) if splits else ():
        cases = ([edge for edge in part if id(edge) not in left_out] for left_out in (bounded, moving))
        if not any(_find_endless_part(ranking, case, splits - 1) for case in cases):
            return True
    return False


class _Ranking:
    """Finds edges that cannot be taken for ever."""

    def __init__(self, graph: ExplorationGraph) -> None:
        self._solver = graph.solver
        self._vocabulary = graph.vocabulary
        guards = {text for edge in graph.iterate_edges() for text, _ in edge.guards}
        names = {name for text in guards for name in find_facts(text)}
        self._counters = list_counters(graph.vocabulary, names)
        self._limits = sorted(name for name in names if self._is_limit(name))
        self._bounded: dict[tuple[tuple[tuple[str, bool], ...], str, str], bool] = {}
        self._far = (_find_largest_number(guards) + 1) * _FAR_BEYOND_LIMITS

    def _is_limit(self, name: str) -> bool:
        fact = self._vocabulary.find_fact(name)
        return fact is not None and fact.type == "integer" and bool(fact.reads_limits)

    def list_ranked_edges(self, part: list[ExploredEdge]) -> list[ExploredEdge]:
        """The edges of a component that cannot be taken for ever, whatever the others do."""
        finite_edges = {id(edge) for edge in list_finite_edges(part)}
        counters = self._list_growing_counters(part)
        return [
            edge
            for edge in part
            if id(edge) in finite_edges
            or any(_lets_grow(edge, counter) and self._is_bounded(edge, counter) for counter in counters)
        ]

    def iterate_cases(self, part: list[ExploredEdge]) -> Iterator[tuple[set[int], set[int]]]:
        """For each counter: the edges of a component that move it, and those that a guard over it bounds."""
        for counter in self._list_growing_counters(part):
            moving = {id(edge) for edge in part if _lets_grow(edge, counter)}
            bounded = {id(edge) for edge in part if self._is_bounded(edge, counter)} if moving else set()
            if bounded:
                yield moving, bounded

    def _list_growing_counters(self, part: list[ExploredEdge]) -> list[Fact]:
        """The counters that nothing in a component sets back."""
        return [
            counter for counter in self._counters if not any(resets_counter(edge, counter) for edge in part)
        ]

    def _is_bounded(self, edge: ExploredEdge, counter: Fact) -> bool:
        """Whether the guards of the edge keep the counter below a number, or near the limits."""
        limits = " + ".join(self._limits) or "0"
        far = f"{counter.name} >= ({limits}) * {_FAR_BEYOND_LIMITS} + {self._far}"
        key = (edge.guards, edge.rules_event, counter.name)
        if key not in self._bounded:
            self._bounded[key] = not self._solver.is_satisfiable(
                {**dict(edge.guards), far: True}, edge.rules_event
            )
        return self._bounded[key]


def _lets_grow(edge: ExploredEdge, counter: Fact) -> bool:
    """Whether an edge moves a counter, before or after its guards are evaluated."""
    return moves_counter(edge, counter) or (counter.name == "iteration" and edge.ends_iteration)


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


def _find_cyclic_parts(edges: list[ExploredEdge]) -> list[list[ExploredEdge]]:
    """The edges inside each strongly connected component that has a cycle."""
    successors: dict[ExploredState, list[ExploredState]] = {}
    for edge in edges:
        successors.setdefault(edge.source, []).append(edge.target)
    component_of = find_components(successors)
    edges_by_component: dict[int, list[ExploredEdge]] = {}
    for edge in edges:
        if component_of[edge.source] == component_of.get(edge.target, -1):
            edges_by_component.setdefault(component_of[edge.source], []).append(edge)
    return list(edges_by_component.values())


# -- components ----------------------------------------------------------------------------------


Node = TypeVar("Node", bound=Hashable)


def find_components(successors: Mapping[Node, Iterable[Node]]) -> dict[Node, int]:
    """The number of each node's component. A component has a greater number than those that it leads to.

    Args:
        successors: by node; a node that only others lead to may be missing.
    """
    # Tarjan, with a path of its own in place of recursion. It closes a component after all that it leads
    # to: that gives the numbers their order.
    indexes: dict[Node, int] = {}
    low_links: dict[Node, int] = {}
    stack: list[Node] = []
    component_of: dict[Node, int] = {}
    count = 0
    for root in successors:
        if root in indexes:
            continue
        path = [(root, iter(successors[root]))]
        indexes[root] = low_links[root] = len(indexes)
        stack.append(root)
        while path:
            node, next_nodes = path[-1]
            next_node = next((n for n in next_nodes if n not in component_of), None)
            if next_node is not None and next_node not in indexes:
                indexes[next_node] = low_links[next_node] = len(indexes)
                stack.append(next_node)
                path.append((next_node, iter(successors.get(next_node, ()))))
            elif next_node is not None:
                low_links[node] = min(low_links[node], indexes[next_node])
            else:
                path.pop()
                if path:
                    low_links[path[-1][0]] = min(low_links[path[-1][0]], low_links[node])
                if low_links[node] == indexes[node]:
                    _close_component(node, stack, component_of, count)
                    count += 1
    return component_of


def _close_component(node: Node, stack: list[Node], component_of: dict[Node, int], number: int) -> None:
    while True:
        member = stack.pop()
        component_of[member] = number
        if member == node:
            return
