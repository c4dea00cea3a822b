"""A bound for the worst case of a turn where counters are too many to follow each value of each.

The search for the longest path (`worst_case.py`) tells nodes apart by the values of all counters. Counters
that have nothing to do with each other multiply there: 50 retries of 3 attempts each are 3 ** 50 nodes in
one cycle. Here a counter is no part of a node. What it forbids is a *constraint* on how often edges are used:

    sum of a[e] * uses[e] <= most

For a counter that is compared with numbers, two kinds of constraints hold on every path:

- *Direct*: edges that move the counter, and that only `N` values of it let through, are used at most `N`
  times together, because the counter has another value at each use.
- *Indirect*: guards of other edges may ask for a value up to `t`. All moves before the last use of such an
  edge are at most `t`. After it the path goes on without such edges, and has at most `m` moves there. So
  there are at most `t + m` moves, and `m` is a bound of the same kind, on a smaller graph.

An edge that sets the counter back lets all that happen once more: it has the coefficient `-most`.

**From constraints to a bound.** Give each constraint a price `p >= 0` for a unit of its left side, and let
an edge cost `cost[e] - sum of p * a[e]`. Let the longest path under these costs have the length `L`. Every
path that keeps the constraints costs at most `L + sum of p * most`: what the prices took off it is no more
than that sum. (This is weak duality of linear programs; the prices are the multipliers of Lagrange.) So
*any* prices give a proof, as long as no cycle has a positive length, and how they were found does not
matter. Here each cycle of a positive length raises the price of the constraint on it that costs least. In
the end each price is lowered as far as that helps.

A path never comes back to a component that it has left. So every component has prices of its own, and what
leaves it costs what the components behind it can cost. Prices for the whole graph are tried too: they count
a counter once that bounds cycles in several components. The smaller number counts.

The bound is exact where each counter can be used up on one path. Where it is not exact it is too great,
never too small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any

from toolchart.states.events import Limits
from toolchart.states.proofs.bounds.costs import COST_FIELDS, FindAgentCost, WorstCase
from toolchart.states.proofs.bounds.cycles import find_components, moves_counter, resets_counter
from toolchart.states.proofs.bounds.worst_case import Node, NodeSearch, find_top, list_known_facts
from toolchart.states.proofs.explored_states import ExplorationGraph, ExploredEdge
from toolchart.states.proofs.solving.solver import GuardSolver, compile_guard, find_facts, split_conjunction
from toolchart.states.vocabulary import Fact

_MAX_NODES = 20_000
"""Nodes at most, where counters that one guard reads together are followed as numbers."""

_MAX_RAISES = 2_000
_MAX_ROUNDS = 3

Number = int | Fraction


def bound_worst_case(
    graph: ExplorationGraph,
    limits: Limits,
    find_agent_cost: FindAgentCost | None = None,
    *,
    own_states: Collection[str] | None = None,
) -> WorstCase | None:
    """A proved upper bound of what a chart can request in one turn; None where none is found.

    It does not say that every turn ends: a cycle that costs nothing may go on. See `cycles.py` for that.

    Args:
        own_states: as for `compute_worst_case`.
    """
    counters, _ = list_known_facts(graph, limits)
    followed = set(find_coupled_counters(graph, [counter.name for counter in counters]))
    for names in [followed, set[str]()] if followed else [followed]:
        search = NodeSearch(graph, limits, find_agent_cost, _MAX_NODES, followed=names, own_states=own_states)
        if not search.build_nodes():
            continue
        bounds = _bound_costs(_PricedGraph(graph, search, limits))
        if bounds is not None:
            fields: dict[str, Any] = dict(zip(COST_FIELDS, bounds, strict=True))
            return WorstCase(**fields)
    return None


def find_coupled_counters(graph: ExplorationGraph, counters: Sequence[str]) -> dict[str, str]:
    """The counters that a guard reads together with another one, each with such a guard."""
    coupled: dict[str, str] = {}
    for text in sorted({text for edge in graph.iterate_edges() for text, _ in edge.guards}):
        for part in {part for truth in (True, False) for part, _ in split_conjunction(text, truth)}:
            names = find_facts(part) & set(counters)
            if len(names) > 1:
                coupled.update({name: text for name in sorted(names) if name not in coupled})
    return coupled


def _bound_costs(priced: _PricedGraph) -> list[float] | None:
    """A bound for each number of the worst case, each on its own."""
    bounds: list[float] = []
    for place in range(len(COST_FIELDS)):
        is_whole = COST_FIELDS[place] != "waiting_s"
        costs = [_convert_cost(edge.costs[place]) for edge in priced.edges]
        starts = {node: _convert_cost(start_costs[place]) for node, start_costs in priced.starts.items()}
        if not any(costs):
            bounds.append(float(max(starts.values())) if not is_whole else int(max(starts.values())))
            continue
        lengths = priced.bound_lengths(costs)
        if lengths is None:
            return None
        bound = max(starts[node] + lengths[node] for node in starts)
        whole_bound = priced.bound_as_whole(costs, starts)
        if whole_bound is not None:
            bound = min(bound, whole_bound)
        bounds.append(floor(bound) if is_whole else float(bound))
    return bounds


def _convert_cost(cost: float) -> Number:
    return int(cost) if cost == int(cost) else Fraction(cost)


@dataclass(slots=True, kw_only=True)
class _Edge:
    source: int
    target: int
    costs: tuple[float, ...]
    origin: ExploredEdge


@dataclass(slots=True, kw_only=True)
class _Constraint:
    """How often edges are used at most: the sum of uses, each with its coefficient, is at most a number."""

    coefficients: dict[int, int]
    """By the index of an edge."""
    most: int


class _PricedGraph:
    """The nodes without the values of counters, and what the counters forbid."""

    def __init__(self, graph: ExplorationGraph, search: NodeSearch, limits: Limits) -> None:
        numbers: dict[Node, int] = {node: number for number, node in enumerate(search.edges)}
        self._size = len(numbers)
        self.starts = {numbers[node]: costs for node, costs in search.starts.items()}
        self.edges = [
            _Edge(source=numbers[node], target=numbers[target], costs=costs, origin=edge)
            for node, edges in search.edges.items()
            for costs, target, edge in edges
        ]
        self._constraints: list[_Constraint] = []
        counters, limit_values = list_known_facts(graph, limits)
        uses = [_CounterUse(counter, graph.solver, limit_values, self.edges) for counter in counters]
        for use in uses:
            self._constraints += use.list_direct_constraints()
        self._add_indirect_constraints(uses)

    def _add_indirect_constraints(self, uses: list[_CounterUse]) -> None:
        """Those whose number is itself a bound. Each one may make another one possible."""
        left = [(use, most) for use in uses if use.has_free_moves for most in use.list_thresholds()]
        for _ in range(_MAX_ROUNDS):
            missing = []
            for use, most in left:
                moves_after = self._count_moves_without(use, most)
                if moves_after is None:
                    missing.append((use, most))
                else:
                    self._constraints.append(use.build_indirect_constraint(most, moves_after))
            if not missing or len(missing) == len(left):
                return
            left = missing

    def _count_moves_without(self, use: _CounterUse, most: int) -> int | None:
        """The most moves of a counter on a path without the edges that need at most some value of it."""
        removed = {index for index, value in use.most_values.items() if value <= most} | use.resets
        kept = [index for index in range(len(self.edges)) if index not in removed]
        costs: list[Number] = [int(index in use.moves) for index in range(len(self.edges))]
        lengths = self.bound_lengths(costs, kept)
        return floor(max(lengths)) if lengths is not None else None

    # -- bounds ----------------------------------------------------------------------------------

    def bound_lengths(
        self, costs: Sequence[Number], kept: Sequence[int] | None = None
    ) -> list[Number] | None:
        """What the paths from each node cost at most; None where a cycle has no constraint.

        Args:
            costs: by the index of an edge.
            kept: the edges that paths may use; None: all.
        """
        kept = range(len(self.edges)) if kept is None else kept
        component_of = self._find_components(kept)
        inner: dict[int, list[int]] = {}
        outer: dict[int, list[int]] = {}
        for index in kept:
            edge = self.edges[index]
            number = component_of[edge.source]
            (inner if number == component_of[edge.target] else outer).setdefault(number, []).append(index)
        members: dict[int, list[int]] = {}
        for node, number in component_of.items():
            members.setdefault(number, []).append(node)
        lengths: list[Number] = [0] * self._size
        for number in sorted(members):  # what a component leads to has a smaller number
            ends: dict[int, Number] = dict.fromkeys(members[number], 0)
            for index in outer.get(number, ()):
                edge = self.edges[index]
                ends[edge.source] = max(ends[edge.source], costs[index] + lengths[edge.target])
            indexes = inner.get(number, [])
            solved = self._price(indexes, costs, ends, list(ends))
            if solved is None:
                return None
            for node, length in solved.items():
                lengths[node] = length
        return lengths

    def bound_as_whole(self, costs: Sequence[Number], starts: Mapping[int, Number]) -> Number | None:
        """What the paths from the starts cost at most, with one price of each constraint everywhere."""
        ends: dict[int, Number] = dict.fromkeys(range(self._size), 0)
        solved = self._price(range(len(self.edges)), costs, ends, list(starts))
        return max(cost + solved[node] for node, cost in starts.items()) if solved is not None else None

    def _price(
        self,
        indexes: Sequence[int],
        costs: Sequence[Number],
        ends: Mapping[int, Number],
        first: Sequence[int],
    ) -> dict[int, Number] | None:
        """What the paths along some edges cost at most, by their first node, with what comes at their end."""
        if not indexes:
            return dict(ends)
        part = set(indexes)
        constraints = [
            constraint
            for constraint in self._constraints
            if any(factor > 0 and index in part for index, factor in constraint.coefficients.items())
        ]
        pricing = _Pricing(self.edges, indexes, costs, ends, constraints)
        if not pricing.find_prices():
            return None
        pricing.lower_prices(first)
        return pricing.list_bounds()

    def _find_components(self, kept: Sequence[int]) -> dict[int, int]:
        successors: dict[int, list[int]] = {node: [] for node in range(self._size)}
        for index in kept:
            successors[self.edges[index].source].append(self.edges[index].target)
        return find_components(successors)


class _CounterUse:
    """Where one counter is moved, set back, and compared with numbers."""

    def __init__(
        self, counter: Fact, solver: GuardSolver, limit_values: Mapping[str, int], edges: Sequence[_Edge]
    ) -> None:
        self.moves: set[int] = set()
        self.resets: set[int] = set()
        self._late_moves: set[int] = set()
        """Edges that move it after their guards were evaluated."""
        self.most_values: dict[int, int] = {}
        """By edge that no great value lets through: the greatest value that does."""
        self._values: dict[int, frozenset[int]] = {}
        values: dict[tuple[tuple[str, bool], ...], frozenset[int] | None] = {}
        for index, edge in enumerate(edges):
            origin = edge.origin
            if resets_counter(origin, counter):
                self.resets.add(index)
            elif moves_counter(origin, counter):
                self.moves.add(index)
            elif counter.name == "iteration" and origin.ends_iteration:
                self.moves.add(index)
                self._late_moves.add(index)
            if counter.name == "iteration" and origin.ends_iteration and index not in self._late_moves:
                # Moved twice, or set back and moved: it is counted as moved, which is more than it may do.
                self.moves.add(index)
            parts = tuple(
                (text, truth)
                for guard in origin.guards
                for text, truth in split_conjunction(*guard)
                if counter.name in find_facts(text)
            )
            if parts not in values:
                values[parts] = _list_values(parts, counter.name, solver, limit_values)
            allowed = values[parts]
            if allowed is not None and index not in self.resets:
                self._values[index] = allowed
                self.most_values[index] = max(allowed, default=0)

    @property
    def has_free_moves(self) -> bool:
        """Whether an edge moves the counter that its own guards do not bound."""
        return bool(self.most_values) and not self.moves <= self.most_values.keys()

    def list_thresholds(self) -> list[int]:
        """The greatest values that guards allow, each once."""
        return sorted(set(self.most_values.values()))

    def list_direct_constraints(self) -> Iterator[_Constraint]:
        """Edges that move the counter and are bounded by it, for each greatest value."""
        for is_late in (False, True):  # an edge of each kind may be used at the same value
            bounded = [i for i in self.moves & self.most_values.keys() if (i in self._late_moves) is is_late]
            for most in sorted({self.most_values[index] for index in bounded}):
                used = [index for index in bounded if self.most_values[index] <= most]
                allowed = frozenset[int]().union(*(self._values[index] for index in used))
                number = len(allowed - (frozenset() if is_late else {0}))
                yield _Constraint(coefficients=self._build_coefficients(used, number), most=number)

    def build_indirect_constraint(self, most: int, moves_after: int) -> _Constraint:
        """All moves, where some edges need at most a value and a path without them has so many moves."""
        is_moved_late = any(self.most_values.get(index, most + 1) <= most for index in self._late_moves)
        number = most + moves_after + is_moved_late
        return _Constraint(coefficients=self._build_coefficients(sorted(self.moves), number), most=number)

    def _build_coefficients(self, used: Sequence[int], most: int) -> dict[int, int]:
        factors = dict.fromkeys(self.resets, -most)
        for index in used:  # one may set it back and move it late
            factors[index] = factors.get(index, 0) + 1
        return factors


def _list_values(
    parts: tuple[tuple[str, bool], ...], name: str, solver: GuardSolver, limit_values: Mapping[str, int]
) -> frozenset[int] | None:
    """The values of a counter under which guards may have these truths; None where there is no greatest."""
    known = {*limit_values, name}
    tops = {
        text: find_top(solver, [text], name, limit_values) for text, _ in parts if find_facts(text) <= known
    }
    # A guard that never settles, such as one over a remainder, may have either truth.
    settled = [(compile_guard(text), truth) for text, truth in parts if tops.get(text) is not None]
    # A guard over other facts too allows what some values of these allow: `a.count + b.count < 4`.
    limits = {f"{limit} == {value}": True for limit, value in limit_values.items()}
    others = {**limits, **{text: truth for text, truth in parts if text not in tops}}
    top = max((top for top in tops.values() if top is not None), default=0)
    if len(others) > len(limits):
        top = next(
            (n for n in _TOPS_OF_OTHERS if n >= top and not _allows(solver, others, f"{name} >= {n}")), top
        )
    allowed = frozenset(
        value
        for value in range(top + 1)
        if all(bool(guard({**limit_values, name: value})) is truth for guard, truth in settled)
        and (
            len(others) == len(limits)
            or _allows(solver, others, f"{name} {'>=' if value == top else '=='} {value}")
        )
    )
    return None if top in allowed else allowed  # the top stands for every greater value


_TOPS_OF_OTHERS = (4, 16, 64)


def _allows(solver: GuardSolver, truths: Mapping[str, bool], text: str) -> bool:
    return solver.is_satisfiable({**truths, text: True})


# -- prices --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Pricing:
    """The prices of constraints on some edges."""

    edges: Sequence[_Edge]
    indexes: Sequence[int]
    costs: Sequence[Number]
    ends: Mapping[int, Number]
    """What a path costs that ends in a node, or leaves these edges there; by node."""
    constraints: Sequence[_Constraint]
    prices: list[Number] = field(default_factory=list)
    _reduced: dict[int, Number] = field(default_factory=dict)
    _edges_from: dict[int, list[int]] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)
    _lengths: dict[int, Number] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prices = [0] * len(self.constraints)
        self._reduced = {index: self.costs[index] for index in self.indexes}
        for index in self.indexes:
            self._edges_from.setdefault(self.edges[index].source, []).append(index)
        self._order = self._sort_nodes()

    def find_prices(self) -> bool:
        """Raise prices until no cycle has a positive length; false where that cannot be reached."""
        for _ in range(_MAX_RAISES):
            cycle = self._find_positive_cycle()
            if cycle is None:
                return True
            length = sum(self._reduced[index] for index in cycle)
            choices: list[tuple[Number, int, Number]] = []
            for number, constraint in enumerate(self.constraints):
                uses = sum(constraint.coefficients.get(index, 0) for index in cycle)
                if uses > 0:
                    rise = _divide(length, uses)
                    choices.append((rise * constraint.most, number, rise))
            if not choices:
                return False
            _, number, rise = min(choices)
            self._change_price(number, rise)
        return False

    def lower_prices(self, first: Sequence[int]) -> None:
        """Lower each price as far as the bound of the paths from some nodes gets smaller."""
        best = self._measure(first)
        for number in sorted(
            range(len(self.prices)), key=lambda n: -self.prices[n] * self.constraints[n].most
        ):
            step = -self.prices[number]
            while step:
                self._change_price(number, step)
                bound = self._measure(first) if self._find_positive_cycle() is None else None
                if bound is not None and bound <= best:
                    best = bound
                    step = max(step, -self.prices[number])
                    continue
                self._change_price(number, -step)
                step = -floor(-step / 2)
        self._find_positive_cycle()

    def list_bounds(self) -> dict[int, Number]:
        """What the paths from each node cost at most."""
        paid = self._sum_payments()
        return {node: length + paid for node, length in self._lengths.items()}

    def _measure(self, first: Sequence[int]) -> Number:
        return max(self._lengths[node] for node in first) + self._sum_payments()

    def _sum_payments(self) -> Number:
        return sum(
            price * constraint.most for price, constraint in zip(self.prices, self.constraints, strict=True)
        )

    def _change_price(self, number: int, rise: Number) -> None:
        self.prices[number] += rise
        for index, factor in self.constraints[number].coefficients.items():
            if index in self._reduced:
                self._reduced[index] -= rise * factor

    def _find_positive_cycle(self) -> list[int] | None:
        """The edges of a cycle of a positive length; None where there is none; then lengths are known."""
        # Bellman and Ford, for longest paths. The edges that gave the nodes their lengths form a cycle after
        # some pass if there is a cycle of a positive length, and only then.
        lengths = dict(self.ends)
        chosen: dict[int, int] = {}
        while True:
            is_changed = False
            for node in self._order:
                best = lengths[node]
                for index in self._edges_from.get(node, ()):
                    length = self._reduced[index] + lengths[self.edges[index].target]
                    if length > best:
                        best = lengths[node] = length
                        chosen[node] = index
                        is_changed = True
            if not is_changed:
                self._lengths = lengths
                return None
            cycle = self._find_chosen_cycle(chosen)
            if cycle:
                return cycle

    def _find_chosen_cycle(self, chosen: Mapping[int, int]) -> list[int]:
        seen: dict[int, int] = {}
        for first in chosen:
            node, path = first, list[int]()
            while node in chosen and node not in seen:
                seen[node] = first
                path.append(chosen[node])
                node = self.edges[chosen[node]].target
            if node in chosen and seen[node] == first:
                starts = [self.edges[index].source for index in path]
                return path[starts.index(node) :]
        return []

    def _sort_nodes(self) -> list[int]:
        """The nodes, those that others lead to first where possible: then one pass finds most lengths."""
        order: list[int] = []
        seen: set[int] = set()
        for root in self.ends:
            if root in seen:
                continue
            seen.add(root)
            path = [(root, iter(self._edges_from.get(root, ())))]
            while path:
                node, indexes = path[-1]
                target = next((t for index in indexes if (t := self.edges[index].target) not in seen), None)
                if target is None:
                    order.append(node)
                    path.pop()
                else:
                    seen.add(target)
                    path.append((target, iter(self._edges_from.get(target, ()))))
        return order


def _divide(number: Number, divisor: int) -> Number:
    quotient = Fraction(number) / divisor
    return int(quotient) if quotient.denominator == 1 else quotient
