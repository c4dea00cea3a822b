"""Which facts still matter in a state: those that a guard may read before something sets them anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolchart.states.proofs.explored_states import (
    ExplorationGraph,
    ExploredEdge,
    ExploredState,
    find_list_source,
    is_result_of_list,
)
from toolchart.states.proofs.solving.solver import find_facts

Live = Mapping[ExploredState, frozenset[str]]


def find_live_facts(graph: ExplorationGraph, sets_anew: Callable[[ExploredEdge, str], bool]) -> Live:
    """The facts that may be read from each state on, found backwards along the edges.

    Args:
        sets_anew: whether an edge gives a fact a value that does not depend on the one before.
    """
    sources: dict[ExploredState, list[ExploredEdge]] = {}
    live: dict[ExploredState, set[str]] = {state: set() for state in graph.states}
    for edge in graph.iterate_edges():
        sources.setdefault(edge.target, []).append(edge)
        read_facts = {name for text, _ in edge.guards for name in find_facts(text)}
        live[edge.source] |= {name for name in read_facts if not sets_anew(edge, name)}
        live[edge.source] |= {name for name in list_facts_of_asks(graph, edge) if not sets_anew(edge, name)}
    for refusal in graph.refusals:
        live.setdefault(refusal.state, set()).update(
            name for text in refusal.guard_truths for name in find_facts(text)
        )
    # Until nothing changes. The sets only grow, so this ends, and gives the same in any order.
    queue = set(graph.states)
    while queue:
        target = queue.pop()
        for edge in sources.get(target, ()):
            new_facts = {
                name for name in live.get(target, set()) - live[edge.source] if not sets_anew(edge, name)
            }
            if new_facts:
                live[edge.source] |= new_facts
                queue.add(edge.source)
    return {state: frozenset(names) for state, names in live.items()}


def list_facts_of_asks(graph: ExplorationGraph, edge: ExploredEdge) -> set[str]:
    """The counters that say whether the lists have values that the effects of an edge work on."""
    vocabulary = graph.vocabulary
    sources = {find_list_source(vocabulary.find_effect(ask.effect)) for ask in edge.move.asks}
    results = [name for name in sources if name and name in vocabulary.result_names]
    # A list of answers has a value also where every one of them is a failure.
    failing = [name for name in results if is_result_of_list(vocabulary, name)]
    return {*(f"{name}.count" for name in results), *(f"{name}.failures" for name in failing)}
