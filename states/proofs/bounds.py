"""Bounds: find loops without a bound, prove that every turn ends, and compute what it can cost at most.

**That a turn ends** is proved by ranking functions, as in termination analysis. Look at one strongly
connected component of the exploration graph. An edge in it cannot be taken for ever if it moves a counter
that its guards keep near a limit, and if nothing in the component resets that counter. Remove such edges,
split what remains into components again, and repeat. A component from which no edge can be removed holds
an unbounded cycle.

**The worst case** is the longest path through the graph with the counters as numbers.

**The formula** (`max_attempts * (max_iterations + 1)`) is fitted to the worst case at four pairs of limits.
It is reported only if further pairs agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import msgspec
from msgspec import to_builtins

from toolchart.states.core.vocabulary import EFFECTS
from toolchart.states.events import Limits
from toolchart.states.facts import FACTS, Fact
from toolchart.states.proofs.exploration import LAST_OUTCOME, ExplorationGraph, ExploredEdge, ExploredState
from toolchart.states.proofs.solver import compile_guard, find_facts, is_satisfiable, split_conjunction

_FAR_BEYOND_LIMITS = 2**70
"""A guard bounds a counter only if it cannot be this many times beyond every limit. Constants are smaller."""


@cache
def list_counters() -> tuple[Fact, ...]:
    """The facts that count, those of other packages too."""
    return tuple(fact for fact in FACTS if fact.moved_by)


@cache
def _add_limits() -> str:
    """The sum of every fact that limits a counter, as a guard spells it."""
    return " + ".join(sorted({fact.limit for fact in list_counters() if fact.limit}))


def find_unbounded_cycle(graph: ExplorationGraph) -> list[ExploredEdge]:
    """The edges of a component with an unbounded cycle; empty where every cycle is bounded."""
    # A person sends these events, so a cycle through one of them is as long as that person wants.
    edges = [edge for edge in graph.iterate_edges() if not edge.is_from_user]
    while True:
        parts = _find_cyclic_parts(graph.states, edges)
        if not parts:
            return []
        ranked_edges = {id(edge) for part in parts for edge in part if _decreases_ranking(edge, part)}
        if not ranked_edges:
            return parts[0]
        edges = [edge for part in parts for edge in part if id(edge) not in ranked_edges]


def _decreases_ranking(edge: ExploredEdge, part: list[ExploredEdge]) -> bool:
    """Whether the edge moves a counter that its guards bound and that nothing in this part resets."""
    return any(
        _moves_counter(edge, counter)
        and not any(other.event in counter.reset_by for other in part)
        and (counter.limit is None or _is_bounded_by_guards(edge, counter))
        for counter in list_counters()
    )


def _moves_counter(edge: ExploredEdge, counter: Fact) -> bool:
    if counter.name == "iteration":  # only the last outcome of a reply ends an iteration
        return edge.event in counter.moved_by and LAST_OUTCOME in edge.guards
    return edge.event in counter.moved_by


def _is_bounded_by_guards(edge: ExploredEdge, counter: Fact) -> bool:
    """Whether the guards of the edge keep the counter below a number, or near the limits."""
    far = f"{counter.name} >= ({_add_limits()}) * {_FAR_BEYOND_LIMITS} + {_FAR_BEYOND_LIMITS}"
    return not is_satisfiable({**dict(edge.guards), far: True}, edge.event)


def _find_cyclic_parts(
    states: Iterable[ExploredState], edges: list[ExploredEdge]
) -> list[list[ExploredEdge]]:
    """The edges inside each strongly connected component that has a cycle."""
    successors: dict[ExploredState, list[ExploredState]] = {state: [] for state in states}
    for edge in edges:
        successors.setdefault(edge.source, []).append(edge.target)
    component_of = _find_components(successors)
    edges_by_component: dict[int, list[ExploredEdge]] = {}
    for edge in edges:
        if component_of[edge.source] == component_of.get(edge.target, -1):
            edges_by_component.setdefault(component_of[edge.source], []).append(edge)
    return list(edges_by_component.values())


def _find_components(successors: dict[ExploredState, list[ExploredState]]) -> dict[ExploredState, int]:
    """The component of each state, by Tarjan's algorithm without recursion."""
    indexes: dict[ExploredState, int] = {}
    low_links: dict[ExploredState, int] = {}
    stack: list[ExploredState] = []
    component_of: dict[ExploredState, int] = {}
    for root in successors:
        if root in indexes:
            continue
        path = [(root, iter(successors[root]))]
        indexes[root] = low_links[root] = len(indexes)
        stack.append(root)
        while path:
            state, next_states = path[-1]
            next_state = next((p for p in next_states if p not in component_of), None)
            if next_state is not None and next_state not in indexes:
                indexes[next_state] = low_links[next_state] = len(indexes)
                stack.append(next_state)
                path.append((next_state, iter(successors.get(next_state, ()))))
            elif next_state is not None:
                low_links[state] = min(low_links[state], indexes[next_state])
            else:
                path.pop()
                if path:
                    low_links[path[-1][0]] = min(low_links[path[-1][0]], low_links[state])
                if low_links[state] == indexes[state]:
                    number = len(component_of)
                    while True:
                        member = stack.pop()
                        component_of[member] = number
                        if member == state:
                            break
    return component_of


# -- the worst case ------------------------------------------------------------------------------


class WorstCase(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn can cost at most. Each number is a maximum on its own."""

    model_calls: int
    tool_rounds: int
    """Replies whose calls are run."""
    waits: int
    waiting_s: float
    """Seconds of all waits together, at `max_wait_s` each."""


_MAX_NODES = 5000
"""Nodes (state and counters) at most in the search for the longest path; beyond that there is no number."""


def compute_worst_case(graph: ExplorationGraph, limits: Limits) -> WorstCase | None:
    """The most that a bounded chart can request in one turn, under these limits.

    Counters are followed as numbers along every path; other facts are free. The outcomes of the calls of
    one reply count as one round. None where the counters alone do not bound a path.
    """
    numbers = _find_longest_paths(graph, limits, _group_effects())
    if numbers is None:
        return None
    model_calls, tool_rounds, waits = numbers
    return WorstCase(
        model_calls=model_calls, tool_rounds=tool_rounds, waits=waits, waiting_s=waits * limits.max_wait_s
    )


def _group_effects() -> tuple[frozenset[str], ...]:
    """The names of the effects that call the model, of those that run calls, and of those that wait."""
    rows = list(EFFECTS)
    return (
        frozenset(row.name for row in rows if row.calls_model),
        frozenset(row.name for row in rows if "tool_finished" in row.closing),
        frozenset(row.name for row in rows if row.is_timer),
    )


_PathNode = tuple[ExploredState, tuple[tuple[str, int], ...]]
"""A state and the values of the counters that end cycles."""


def _find_longest_paths(
    graph: ExplorationGraph, limits: Limits, groups: tuple[frozenset[str], ...]
) -> tuple[int, ...] | None:
    """By group of names: the longest path, measured in effects of that group; None where it has no end."""
    limit_values = {
        "max_iterations": limits.max_iterations,
        "max_attempts": limits.max_attempts,
        "max_repeats": limits.max_repeats,
        "max_tool_only_streak": limits.max_tool_only_streak,
    }
    longest_from: dict[_PathNode, tuple[int, ...]] = {}
    start: _PathNode = (graph.first_state, tuple((name, 0) for name in _list_counter_names(graph)))
    path: list[_PathNode] = [start]
    successors: dict[_PathNode, list[tuple[ExploredEdge, _PathNode]]] = {}  # of the open nodes
    while path:
        if len(longest_from) + len(path) > _MAX_NODES:
            return None
        node = path[-1]
        if node not in successors:
            successors[node] = []
            # An edge back to an open node moves no counter: it is a further outcome of a counted round.
            all_nodes = _list_next_nodes(graph, node, limit_values)
            successors[node] = [successor for successor in all_nodes if successor[1] not in successors]
        next_nodes = (next_node for _, next_node in successors[node])
        next_unvisited = next((next_node for next_node in next_nodes if next_node not in longest_from), None)
        if next_unvisited is not None:
            path.append(next_unvisited)
            continue
        longest_from[node] = tuple(
            max(
                (
                    _count_effects(edge.move.effects, names) + longest_from[next_node][index]
                    for edge, next_node in successors[node]
                ),
                default=0,
            )
            for index, names in enumerate(groups)
        )
        del successors[path.pop()]
    first_effects = [effect.name for effect in graph.first_state.open_effects]
    return tuple(
        number + _count_effects(first_effects, names)
        for number, names in zip(longest_from[start], groups, strict=True)
    )


def _count_effects(effects: Iterable[str], names: frozenset[str]) -> int:
    return sum(effect in names for effect in effects)


_OWN_COUNTERS = ("attempt", "iteration", "replies")
"""Counters of Toolchart that grow, and that end cycles."""


def _list_added_counters() -> list[Fact]:
    """The growing counters of other packages."""
    own_names = {fact.name for fact in FACTS.builtin_rows}
    return [fact for fact in list_counters() if fact.limit and fact.name not in own_names]


def _list_counter_names(graph: ExplorationGraph) -> list[str]:
    """The counters to follow as numbers, sorted: our own, and those of other packages that guards name."""
    guards = {text for edge in graph.iterate_edges() for text, _ in edge.guards}
    named_facts = {name for text in guards for name in find_facts(text)}
    added = [fact.name for fact in _list_added_counters() if fact.name in named_facts]
    return sorted([*_OWN_COUNTERS, "cancelled", *added])


def _list_next_nodes(
    graph: ExplorationGraph, node: _PathNode, limit_values: dict[str, int]
) -> list[tuple[ExploredEdge, _PathNode]]:
    state, counters = node
    next_nodes = []
    for edge in graph.states.get(state, ()):
        if edge.target == state and not edge.move.effects:
            continue  # a further outcome of the same round, or a decision of the same review
        if edge.event == "cancelled" and dict(counters)["cancelled"]:
            continue  # a turn is cancelled at most once
        if edge.is_from_user and edge.event != "cancelled":
            continue  # what a further message of the user costs is not part of the number
        next_counters = _count_event(dict(counters), edge)
        if _is_possible(edge, {**limit_values, **next_counters}):
            next_nodes.append((edge, (edge.target, tuple(sorted(next_counters.items())))))
    return next_nodes


def _count_event(counters: dict[str, int], edge: ExploredEdge) -> dict[str, int]:
    if edge.event == "replied":
        counters["replies"] += 1
        counters["attempt"] = 0
    elif edge.event == "failed":
        counters["attempt"] += 1
    elif edge.event == "tool_finished" and LAST_OUTCOME in edge.guards:
        counters["iteration"] += 1
    elif edge.event == "cancelled":
        counters["cancelled"] += 1
    for fact in _list_added_counters():
        if fact.name in counters and edge.event in fact.reset_by:
            counters[fact.name] = 0
        elif fact.name in counters and edge.event in fact.moved_by:
            counters[fact.name] += 1
    return counters


def _is_possible(edge: ExploredEdge, fact_values: dict[str, int]) -> bool:
    """Whether the guards that these values decide have the truths of the edge. Other guards may be either."""
    return all(
        not find_facts(text) <= fact_values.keys() or bool(compile_guard(text)(fact_values)) is truth
        for guard in edge.guards
        for text, truth in split_conjunction(*guard)
    )


# -- the worst case as a formula -----------------------------------------------------------------

_BASE_PAIRS = ((2, 2), (3, 2), (2, 3), (3, 3))
_CHECK_PAIRS = ((1, 1), (1, 4), (4, 1), (5, 3))
"""Pairs of `max_iterations` and `max_attempts`: four to fit the coefficients, and four to check them."""


def fit_formulas(graph: ExplorationGraph) -> dict[str, str]:
    """Each number of the worst case as a formula over the limits; a number without a formula is left out."""
    table: dict[tuple[int, int], Mapping[str, int]] = {}
    for pair in (*_BASE_PAIRS, *_CHECK_PAIRS):
        worst_case = compute_worst_case(graph, Limits(max_iterations=pair[0], max_attempts=pair[1]))
        if worst_case is None:
            return {}
        table[pair] = {name: n for name, n in to_builtins(worst_case).items() if name != "waiting_s"}
    formulas = {}
    for name in table[_BASE_PAIRS[0]]:
        terms = _fit_terms({pair: numbers[name] for pair, numbers in table.items()})
        if terms is not None:
            formulas[name] = _format_terms(terms)
    return formulas


_Terms = tuple[int, int, int, int]
"""Coefficients of the product of both limits, of each limit, and the constant."""


def _fit_terms(numbers: Mapping[tuple[int, int], int]) -> _Terms | None:
    """The coefficients that give these numbers at every pair of limits; None where there are none."""
    (i, a), (next_i, _), (_, next_a), both = _BASE_PAIRS
    base, by_i, by_a = numbers[i, a], numbers[next_i, a], numbers[i, next_a]
    product = numbers[both] - by_i - by_a + base
    factor_i, factor_a = by_i - base - product * a, by_a - base - product * i
    terms = (product, factor_i, factor_a, base - product * i * a - factor_i * i - factor_a * a)
    is_exact = all(_evaluate_terms(terms, *pair) == number for pair, number in numbers.items())
    return terms if is_exact else None


def _evaluate_terms(terms: _Terms, i: int, a: int) -> int:
    product, factor_i, factor_a, constant = terms
    return product * i * a + factor_i * i + factor_a * a + constant


def _format_terms(terms: _Terms) -> str:
    factor_names = ("max_iterations * max_attempts", "max_iterations", "max_attempts", "")
    text = ""
    for factor, name in zip(terms, factor_names, strict=True):
        if factor == 0:
            continue
        term = str(abs(factor)) if not name else name if abs(factor) == 1 else f"{abs(factor)} * {name}"
        sign = "-" if factor < 0 else "+"
        text = f"{text} {sign} {term}" if text else f"-{term}" if factor < 0 else term
    return text or "0"
