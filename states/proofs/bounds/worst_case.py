"""The worst case of a turn: the longest path through the exploration graph with the counters as numbers.

A node is an explored state with a number for every counter that a guard names. A counter stays at its *top*
once every guard gives the same answer from there on, so the graph of nodes is finite although counters live
on over many turns. A guard whose facts are all known in a node decides; any other guard may be either.

A turn begins with the user's message, so edges that the user causes are not followed within a turn. What
they lead to begins a path of its own: the number is what follows from one message at most.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.events import Cancelled, Limits
from toolchart.states.proofs.bounds.costs import (
    COST_FIELDS,
    NO_COSTS,
    Costs,
    CostTable,
    FindAgentCost,
    WorstCase,
    count_most_items,
)
from toolchart.states.proofs.bounds.cycles import (
    find_components,
    list_finite_edges,
    moves_counter,
    resets_counter,
)
from toolchart.states.proofs.call_stages import ITEMS_OF_EVENT
from toolchart.states.proofs.explored_states import (
    ExplorationGraph,
    ExploredEdge,
    is_agent_list,
    list_counters,
)
from toolchart.states.proofs.live_facts import find_live_facts
from toolchart.states.proofs.solving.solver import GuardSolver, compile_guard, find_facts, split_conjunction
from toolchart.states.vocabulary import Fact, get_facts

MAX_NODES = 60_000
"""Nodes at most; beyond that there is no number."""

_Values = tuple[int, ...]
Node = tuple[int, bool, _Values]
"""The number of a state, whether the turn was cancelled, and the values of the counters."""

_InnerEdge = tuple[Costs, Node, Node, ExploredEdge]
"""An edge between two nodes of one component, with what it costs."""


class NoBound(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no number."""

    reason: Literal["nodes", "cycle", "items"]
    """Too many values to follow; a cycle that no guard over a counter ends; or a cycle that answers the items
    of an effect, as many as there are, and asks for more with each."""
    labels: tuple[str, ...] = ()
    """The states of the cycle."""


def compute_worst_case(
    graph: ExplorationGraph,
    limits: Limits,
    find_agent_cost: FindAgentCost | None = None,
    *,
    max_nodes: int = MAX_NODES,
    most_items: int | None = None,
    own_states: Collection[str] | None = None,
) -> WorstCase | NoBound:
    """The most that a chart can request in one turn, under these limits.

    The outcomes of the calls of one reply count as one round.

    Args:
        most_items: the most calls of one reply, and items of a list that has no limit of its own; None where
            items are not counted.
        own_states: the states whose effects count; None: all.
    """
    counter = ItemCounter(graph.vocabulary, most_items) if most_items is not None else None
    numbers = NodeSearch(
        graph, limits, find_agent_cost, max_nodes, counter, own_states=own_states
    ).find_longest_path()
    if isinstance(numbers, NoBound):
        return numbers
    fields: dict[str, Any] = dict(zip(COST_FIELDS, numbers, strict=True))
    return WorstCase(**fields)


class NodeSearch:
    """The nodes of one graph under given limits, and the edges between them.

    Args:
        followed: the counters that tell nodes apart; None: all. A guard over another counter may be either.
        own_states: the states whose effects count; None: all.
    """

    def __init__(
        self,
        graph: ExplorationGraph,
        limits: Limits,
        find_agent_cost: FindAgentCost | None,
        max_nodes: int,
        items: ItemCounter | None = None,
        followed: Collection[str] | None = None,
        own_states: Collection[str] | None = None,
    ) -> None:
        self._graph = graph
        self._max_nodes = max_nodes
        self._items = items
        self._own_states = own_states
        self._costs = CostTable(graph.vocabulary, limits, find_agent_cost)
        counters, self._limit_values = list_known_facts(graph, limits)
        if not graph.live_counters:  # the same under all limits
            live = find_live_facts(graph, _sets_anew(counters))
            graph.live_counters.update(
                (state, tuple(counter.name in names for counter in counters)) for state, names in live.items()
            )
        self._places = [i for i, c in enumerate(counters) if followed is None or c.name in followed]
        self._counters = [counters[place] for place in self._places]
        self._names = tuple(counter.name for counter in self._counters)
        guards = list_guards(graph)
        self._tops = tuple(find_top(graph.solver, guards, name, self._limit_values) for name in self._names)
        # Nodes are compared often, and an explored state is large: its number stands for it.
        self._states = list(graph.states)
        self._numbers = {state: number for number, state in enumerate(self._states)}
        self._steps: dict[int, list[_Step]] = {}
        self.starts: dict[Node, Costs] = {}
        """The first nodes of turns, with what the first step of the turn asks for."""
        self.edges: dict[Node, list[tuple[Costs, Node, ExploredEdge]]] = {}

    def find_longest_path(self) -> Costs | NoBound:
        """What the longest path costs."""
        if not self.build_nodes():
            return NoBound(reason="nodes")
        component_of = find_components(
            {node: [target for _, target, _ in edges] for node, edges in self.edges.items()}
        )
        problem = self._find_costly_cycle(component_of)
        if problem is not None:
            return problem
        longest: dict[int, Costs] = {}
        # In this order the longest path from each component that an edge leads to is known already.
        for node in sorted(self.edges, key=component_of.__getitem__):
            number = component_of[node]
            best = longest.get(number, NO_COSTS)
            for costs, target, _ in self.edges[node]:
                if component_of[target] != number:
                    best = _take_greater(best, _add_costs(costs, longest[component_of[target]]))
            longest[number] = best
        total = NO_COSTS
        for node, costs in self.starts.items():
            total = _take_greater(total, _add_costs(costs, longest[component_of[node]]))
        return total

    # -- nodes -----------------------------------------------------------------------------------

    def build_nodes(self) -> bool:
        """Follow every edge; false where there are too many nodes."""
        for start in self._graph.starts:
            values = [start.counts.get(name, 0) for name in self._names]
            counts = tuple(map(_limit_value, values, self._tops))
            if self._items is not None:
                counts += self._items.list_first_values()
            node = (self._numbers[start.state], False, counts)
            self._add_start(node, self._sum_costs((ask.state, ask.effect) for ask in start.move.asks))
        queue = deque(self.starts)
        while queue:
            node = queue.popleft()
            if node in self.edges:
                continue
            if len(self.edges) >= self._max_nodes:
                return False
            edges = self.edges[node] = []
            if node[0] not in self._steps:
                self._steps[node[0]] = list(map(self._build_step, self._graph.states[self._states[node[0]]]))
            for step in self._steps[node[0]]:
                target = self._find_next_node(node, step)
                if target is None:
                    continue
                queue.append(target)
                if _begins_path(node, step.edge):
                    self._add_start(target, _add_costs(step.costs, self._sum_woken_agents(step.edge)))
                else:
                    edges.append((step.costs, target, step.edge))
        return True

    def _add_start(self, node: Node, costs: Costs) -> None:
        self.starts[node] = _take_greater(self.starts.get(node, NO_COSTS), costs)

    def _build_step(self, edge: ExploredEdge) -> _Step:
        """What an edge does to the values of counters."""
        # The user's message begins a turn, and may also be taken within one: then the counters stay.
        resets = [
            place
            for place, counter in enumerate(self._counters)
            if (edge.starts_turn and "." not in counter.name) or resets_counter(edge, counter)
        ]
        moves = [
            place
            for place, counter in enumerate(self._counters)
            if place not in resets and moves_counter(edge, counter)
        ]
        has_late_move = edge.ends_iteration and "iteration" in self._names
        # A counter that no guard reads any more tells no nodes apart.
        live = self._graph.live_counters.get(edge.target, ())
        dead = [place for place, index in enumerate(self._places) if not (index < len(live) and live[index])]
        return _Step(
            edge=edge,
            target=self._numbers[edge.target],
            costs=self._sum_costs((ask.state, ask.effect) for ask in edge.move.asks),
            resets=resets,
            moves=moves,
            late_moves=[self._names.index("iteration")] if has_late_move else [],
            dead=dead,
            guards=[
                _DecidedGuard(text, truth, self._limit_values, self._names)
                for guard in edge.guards
                for text, truth in split_conjunction(*guard)
                if find_facts(text) and find_facts(text) <= {*self._limit_values, *self._names}
            ],
        )

    def _find_next_node(self, node: Node, step: _Step) -> Node | None:
        """Where an edge leads from a node; None where its guards are not true there."""
        _, is_cancelled, all_values = node
        edge = step.edge
        counted = list(all_values[: len(self._names)])
        items = all_values[len(self._names) :]
        if self._items is not None:
            next_items = self._items.count_items(items, edge)
            if next_items is None:
                return None
            items = next_items
        for place in step.resets:
            counted[place] = 0
        for place in step.moves:
            counted[place] = _limit_value(counted[place] + 1, self._tops[place])
        if not all(guard.is_possible(counted) for guard in step.guards):
            return None
        for place in step.late_moves:
            counted[place] = _limit_value(counted[place] + 1, self._tops[place])
        for place in step.dead:
            counted[place] = 0
        is_cancelled = (is_cancelled or edge.event == Cancelled.TYPE) and not edge.starts_turn
        return step.target, is_cancelled, (*counted, *items)

    # -- cycles ----------------------------------------------------------------------------------

    def _find_costly_cycle(self, component_of: Mapping[Node, int]) -> NoBound | None:
        """A cycle that does not end, or that costs something each time; every other one answers items."""
        inner: dict[int, list[_InnerEdge]] = {}
        for node, edges in self.edges.items():
            for costs, target, edge in edges:
                if component_of[node] == component_of[target]:
                    inner.setdefault(component_of[node], []).append((costs, node, target, edge))
        for part in inner.values():
            labels = tuple(dict.fromkeys(self._states[node[0]].configuration.label for _, node, _, _ in part))
            if not _ends(part):
                return NoBound(reason="cycle", labels=labels)
            if any(costs != NO_COSTS for costs, _, _, _ in part):
                return NoBound(reason="items", labels=labels)
        return None

    # -- costs -----------------------------------------------------------------------------------

    def _sum_costs(self, asks: Iterable[tuple[str, str]]) -> Costs:
        total = NO_COSTS
        for state, effect in asks:
            if self._own_states is not None and state not in self._own_states:
                continue
            total = _add_costs(total, self._costs.find_costs(effect))
        return total

    def _sum_woken_agents(self, edge: ExploredEdge) -> Costs:
        """What the agents cost that the user's message wakes."""
        resting = [
            (effect.state, effect.name) for effect in edge.source.open_effects if effect.stage == "resting"
        ]
        return self._sum_costs(resting if edge.starts_turn else [])


@dataclass(slots=True, kw_only=True)
class _Step:
    """An edge, and what it does to the values of counters, by their places."""

    edge: ExploredEdge
    target: int
    costs: Costs
    resets: list[int]
    moves: list[int]
    late_moves: list[int]
    """The counters that move after the guards were evaluated."""
    dead: list[int]
    """The counters that no guard reads after the edge."""
    guards: list[_DecidedGuard]


class _DecidedGuard:
    """A guard over counters and limits alone, with the truth that an edge needs; it remembers its answers."""

    def __init__(
        self, text: str, truth: bool, limit_values: Mapping[str, int], names: tuple[str, ...]
    ) -> None:
        self._evaluate = compile_guard(text)
        self._truth = truth
        self._facts = dict(limit_values)
        self._places = [(name, names.index(name)) for name in sorted(find_facts(text)) if name in names]
        self._answers: dict[_Values, bool] = {}

    def is_possible(self, values: list[int]) -> bool:
        """Whether it has that truth under these values of the counters."""
        key = tuple([values[place] for _, place in self._places])
        if key not in self._answers:
            facts = {**self._facts, **{name: values[place] for name, place in self._places}}
            self._answers[key] = bool(self._evaluate(facts)) is self._truth
        return self._answers[key]


def _begins_path(node: Node, edge: ExploredEdge) -> bool:
    """Whether an edge begins a path of its own. A turn is cancelled once; what follows belongs to it."""
    return edge.is_from_user and (edge.event != Cancelled.TYPE or node[1])


def _ends(part: list[_InnerEdge]) -> bool:
    """Whether a component of nodes ends, because its edges answer items and nothing brings new ones."""
    finite_edges = {id(edge) for edge in list_finite_edges([edge for _, _, _, edge in part])}
    successors: dict[Node, list[Node]] = {}
    for _, source, target, edge in part:
        if id(edge) not in finite_edges:
            successors.setdefault(source, []).append(target)
    component_of = find_components(successors)
    return not any(
        component_of[source] == component_of[target]
        for source, targets in successors.items()
        for target in targets
    )


def _add_costs(a: Costs, b: Costs) -> Costs:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _take_greater(a: Costs, b: Costs) -> Costs:
    return tuple(max(x, y) for x, y in zip(a, b, strict=True))


# -- counters and limits -------------------------------------------------------------------------


def list_known_facts(graph: ExplorationGraph, limits: Limits) -> tuple[list[Fact], dict[str, int]]:
    """The counters that guards name, and the values of the limits that they name."""
    names = {name for text in list_guards(graph) for name in find_facts(text)}
    counters = sorted(list_counters(graph.vocabulary, names), key=lambda fact: fact.name)
    values = to_builtins(limits)
    limit_values = {
        name: values[name]
        for name in names
        if (fact := get_facts().get(name))
        and fact.reads_limits == (name,)
        and isinstance(values.get(name), int)
    }
    return counters, limit_values


def list_read_limits(graph: ExplorationGraph) -> tuple[str, ...]:
    """The limits that guards name, so that the worst case depends on them."""
    return tuple(sorted(list_known_facts(graph, Limits())[1]))


def _sets_anew(counters: list[Fact]) -> Callable[[ExploredEdge, str], bool]:
    """Whether an edge sets a counter back, by its name."""
    by_name = {counter.name: counter for counter in counters}

    def sets_anew(edge: ExploredEdge, name: str) -> bool:
        if name not in by_name:
            return False
        return (edge.starts_turn and "." not in name) or resets_counter(edge, by_name[name])

    return sets_anew


def _limit_value(value: int, top: int | None) -> int:
    return value if top is None else min(value, top)


def list_guards(graph: ExplorationGraph) -> set[str]:
    """Every guard on an edge of a graph."""
    return {text for edge in graph.iterate_edges() for text, _ in edge.guards}


def find_top(
    solver: GuardSolver, guards: Iterable[str], name: str, limit_values: Mapping[str, int]
) -> int | None:
    """A value from which on each of some guards over a counter gives the same answer; None: there is none."""
    atoms = {atom for text in guards if name in find_facts(text) for atom in _list_atoms(text, name)}
    limit_facts = {f"{limit} == {value}": True for limit, value in limit_values.items()}
    top = 4
    while top <= 2**16:
        if all(_is_decided(solver, atom, {**limit_facts, f"{name} >= {top}": True}) for atom in atoms):
            return top
        top *= 2
    return None


def _list_atoms(text: str, name: str) -> list[str]:
    """The comparisons of a guard that name a counter."""
    nodes = ast.walk(ast.parse(text, mode="eval"))
    atoms = [ast.unparse(node) for node in nodes if isinstance(node, ast.Compare)]
    return [atom for atom in atoms if name in find_facts(atom)]


def _is_decided(solver: GuardSolver, atom: str, known_facts: Mapping[str, bool]) -> bool:
    return not all(solver.is_satisfiable({**known_facts, atom: truth}) for truth in (True, False))


# -- items ---------------------------------------------------------------------------------------
# How many items of each kind are left to answer: the calls of a reply, and the items of the lists of agents.
#
# Each item is answered once in a turn. So a cycle that goes on with every item ends, and costs no more than
# there are items.


_CALLS, _DECISIONS = 0, 1


class ItemCounter:
    """Follows the numbers of items that are left, along the edges of an exploration.

    Args:
        most_items: the most calls of one reply, and items of a list that has no limit of its own.
    """

    def __init__(self, vocabulary: Vocabulary, most_items: int) -> None:
        self._vocabulary = vocabulary
        self._most_calls = most_items
        self._lists = {}
        for row in filter(is_agent_list, vocabulary.declared.values()):
            limit = count_most_items(vocabulary, row)
            self._lists[row.name] = most_items if limit is None else limit

    def list_first_values(self) -> tuple[int, ...]:
        """The numbers where an exploration begins: every item may be open."""
        return (self._most_calls, self._most_calls, *self._lists.values())

    def count_items(self, values: tuple[int, ...], edge: ExploredEdge) -> tuple[int, ...] | None:
        """The numbers after an edge; None where no item is left that it could answer."""
        numbers = list(values)
        answered = self._find_answered_kind(edge)
        if answered is not None:
            numbers[answered] -= 1
            if numbers[answered] < _leaves_items_open(edge):
                return None
        if edge.rules_event == "replied":
            numbers[_CALLS] = numbers[_DECISIONS] = self._most_calls
        elif edge.event == "reviewed":
            numbers[_DECISIONS] = self._most_calls
        effect_names = {ask.effect for ask in edge.move.asks}
        for index, (name, most) in enumerate(self._lists.items(), start=2):
            if name in effect_names or edge.starts_turn:
                numbers[index] = most
        return tuple(numbers)

    def _find_answered_kind(self, edge: ExploredEdge) -> int | None:
        """The place of the number that an edge lowers."""
        if edge.event == "tool_finished" and edge.source.call_stage != "none":
            return _CALLS
        if edge.event == "decided" and edge.source.call_stage == "undecided":
            return _DECISIONS
        name = edge.effect.name if edge.effect is not None else ""
        if name in self._lists and edge.effect is not None and edge.effect.stage != "empty":
            return 2 + list(self._lists).index(name)
        return None


def _leaves_items_open(edge: ExploredEdge) -> bool:
    """Whether another item of the same kind is certainly open after an answer."""
    effect = edge.effect
    if effect is None or edge.event in ITEMS_OF_EVENT:
        return dict(edge.guards).get(ITEMS_OF_EVENT.get(edge.event, "")) is True
    return replace(effect, stage="begun") in edge.target.open_effects
