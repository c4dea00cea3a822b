"""That a turn ends: every cycle uses up a counter that a guard bounds, and how much it can cost at most.

The proof is the classical one by rankings. A strongly connected part of the graph is bounded when some
counter grows on an arc only while a guard keeps it below a bound, and nothing in that part resets it;
such arcs are taken out and what remains is looked at again. What is left with a cycle in it is unbounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolchart.states.events import Limits
from toolchart.states.facts import FACTS, Fact
from toolchart.states.proofs.exploration import LAST_OUTCOME, Arc, Graph, Place
from toolchart.states.proofs.solver import compile_guard, names_of, satisfiable, split

COUNTERS = tuple(fact for fact in FACTS.values() if fact.moved_by)

_LIMITS = " + ".join(sorted({fact.limit for fact in COUNTERS if fact.limit}))
_FAR = 1000
"""A counter that a guard lets grow this many times beyond every limit is not bounded by it."""


def unbounded_cycle(graph: Graph) -> list[Arc]:
    """The arcs of one cycle that nothing bounds; empty where every cycle is bounded."""
    # A turn is cancelled at most once, so no cycle goes through a cancellation for ever.
    arcs = [arc for arc in graph.arcs() if arc.event != "cancelled"]
    while True:
        parts = _cyclic_parts(graph.places, arcs)
        if not parts:
            return []
        used = {id(arc) for part in parts for arc in part if _is_used_up(arc, part)}
        if not used:
            return parts[0]
        arcs = [arc for part in parts for arc in part if id(arc) not in used]


def _is_used_up(arc: Arc, part: list[Arc]) -> bool:
    """Whether the arc moves a counter that is bounded here and that nothing in this part resets."""
    return any(
        _moves(arc, counter)
        and not any(other.event in counter.reset_by for other in part)
        and (counter.limit is None or _held(arc, counter))
        for counter in COUNTERS
    )


def _moves(arc: Arc, counter: Fact) -> bool:
    if counter.name == "iteration":  # only the last outcome ends an iteration
        return arc.event in counter.moved_by and LAST_OUTCOME in arc.guards
    return arc.event in counter.moved_by


def _held(arc: Arc, counter: Fact) -> bool:
    """Whether the guards of the arc keep the counter below a number, or near the limits."""
    far = f"{counter.name} >= ({_LIMITS}) * {_FAR} + {_FAR}"
    return not satisfiable({**dict(arc.guards), far: True}, arc.event)


def _cyclic_parts(places: Iterable[Place], arcs: list[Arc]) -> list[list[Arc]]:
    """Arcs within strongly connected parts (Tarjan, without recursion)."""
    out: dict[Place, list[Place]] = {place: [] for place in places}
    for arc in arcs:
        out.setdefault(arc.source, []).append(arc.target)
    component = _components(out)
    grouped: dict[int, list[Arc]] = {}
    for arc in arcs:
        if component[arc.source] == component.get(arc.target, -1):
            grouped.setdefault(component[arc.source], []).append(arc)
    return list(grouped.values())


def _components(out: dict[Place, list[Place]]) -> dict[Place, int]:
    index: dict[Place, int] = {}
    low: dict[Place, int] = {}
    stack: list[Place] = []
    component: dict[Place, int] = {}
    for root in out:
        if root in index:
            continue
        work = [(root, iter(out[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            place, following = work[-1]
            step = next((p for p in following if p not in component), None)
            if step is not None and step not in index:
                index[step] = low[step] = len(index)
                stack.append(step)
                work.append((step, iter(out.get(step, ()))))
            elif step is not None:
                low[place] = min(low[place], index[step])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[place])
                if low[place] == index[place]:
                    number = len(component)
                    while True:
                        member = stack.pop()
                        component[member] = number
                        if member == place:
                            break
    return component


# -- the worst case ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """What one turn can cost at most, each number by itself."""

    model_calls: int
    tool_rounds: int
    """Replies whose calls are run."""
    waits: int
    waiting_s: float
    """Seconds of all waits together."""


_MOST_NODES = 5000
"""Numbered places that the longest path is looked for in; beyond that no number is told."""


def worst_case(graph: Graph, limits: Limits) -> Worst | None:
    """The most that a bounded chart can ask for in one turn, under these limits.

    Counters are followed as numbers along every path, other facts are free; outcomes of the calls of one
    reply are one round. None where the numbers alone do not bound a path (the calls of a reply do).
    """
    kinds = (("call_model", "call_model_without_tools"), ("run_tools",), ("wait",))
    found = [_most(graph, limits, names) for names in kinds]
    if None in found:
        return None
    model_calls, tool_rounds, waits = (number or 0 for number in found)
    return Worst(
        model_calls=model_calls,
        tool_rounds=tool_rounds,
        waits=waits,
        waiting_s=waits * limits.max_wait_s,
    )


_Numbers = tuple[tuple[str, int], ...]


def _most(graph: Graph, limits: Limits, names: tuple[str, ...]) -> int | None:
    """The longest path, counted in effects of these names; None where there is no end to it."""
    fixed = {
        "max_iterations": limits.max_iterations,
        "max_attempts": limits.max_attempts,
        "max_repeats": limits.max_repeats,
        "max_tool_only_streak": limits.max_tool_only_streak,
    }
    best: dict[tuple[Place, _Numbers], int] = {}
    numbers: _Numbers = (("attempt", 0), ("cancelled", 0), ("iteration", 0), ("replies", 0))
    start = (graph.first, numbers)
    work, open_nodes = [start], {start}
    while work:
        if len(best) + len(work) > _MOST_NODES:
            return None
        node = work[-1]
        # A way back to an open node moves no number: another outcome of a round that is counted.
        follow = [one for one in _follow(graph, node, fixed) if one[1] not in open_nodes]
        missing = next((step for _, step in follow if step not in best), None)
        if missing is not None:
            work.append(missing)
            open_nodes.add(missing)
            continue
        best[node] = max(
            (sum(e in names for e in arc.move.effects) + best[step] for arc, step in follow),
            default=0,
        )
        open_nodes.discard(work.pop())
    return best[start] + sum(name in names for name in graph.first.waiting)


def _follow(
    graph: Graph, node: tuple[Place, _Numbers], fixed: dict[str, int]
) -> list[tuple[Arc, tuple[Place, _Numbers]]]:
    place, numbers = node
    found = []
    for arc in graph.places.get(place, ()):
        if arc.target == place and not arc.move.effects:
            continue  # another outcome of the same round, or a decision of the same review
        if arc.event == "cancelled" and dict(numbers)["cancelled"]:
            continue  # a turn is cancelled at most once
        moved = _moved(dict(numbers), arc)
        if _possible(arc, {**fixed, **moved}):
            found.append((arc, (arc.target, tuple(sorted(moved.items())))))
    return found


def _moved(numbers: dict[str, int], arc: Arc) -> dict[str, int]:
    if arc.event == "replied":
        numbers["replies"] += 1
        numbers["attempt"] = 0
    elif arc.event == "failed":
        numbers["attempt"] += 1
    elif arc.event == "tool_finished" and LAST_OUTCOME in arc.guards:
        numbers["iteration"] += 1
    elif arc.event == "cancelled":
        numbers["cancelled"] += 1
    return numbers


def _possible(arc: Arc, known: dict[str, int]) -> bool:
    """Whether the guards that these numbers decide have the truths of the arc; others may have them."""
    return all(
        not names_of(text) <= known.keys() or bool(compile_guard(text)(known)) is truth
        for guard in arc.guards
        for text, truth in split(*guard)
    )
