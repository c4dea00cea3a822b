"""What is good to know of a sound chart: what its order decides, what never arrives, what is not taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.guards import asks_configuration
from toolchart.states.proofs.exploration import Graph
from toolchart.states.proofs.findings import Finding, line_of, shown
from toolchart.states.proofs.solver import satisfiable, witness


def notes(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """What is sound and good to know."""
    for state, body, _ in walk_states(chart):
        yield from _decided_by_order(chart, state, body.get("transitions") or [])
    yield from _idle(chart, graph)
    yield from _not_cancelled(chart, graph)


def _idle(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """Transitions on an event that never arrives where they stand: inherited, or kept for later."""
    entered = {state for place in graph.places for state in place.configuration.states}
    for state, body, _ in walk_states(chart):
        for row, transition in enumerate(body.get("transitions") or ()):
            event = str(transition.get("event") or "")
            if state in entered and not may_arrive(graph, state, event):
                yield Finding(
                    kind="idle",
                    state=state,
                    event=event,
                    line=line_of(chart, state, row),
                    message=f"in {state!r} the event {event!r} never arrives: transition {row + 1} stands by",
                )


def _decided_by_order(chart: Chart, state: str, rows: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Pairs of guarded transitions that could both be taken; a last one without a guard says `else`."""
    for (first, before), (second, after) in combinations(enumerate(rows), 2):
        event, one, other = str(before.get("event") or ""), _guards(before), _guards(after)
        if event != str(after.get("event") or "") or not one or not other or _same(before, after):
            continue
        both = {**one, **other}
        if any(both[text] is not truth for text, truth in one.items()):
            continue
        if any(map(asks_configuration, both)) or not satisfiable(both, event):
            continue
        facts = witness(both, event)
        when = f" when {shown(facts)}" if facts else ""
        yield Finding(
            kind="order",
            state=state,
            event=event or None,
            counterexample=facts,
            line=line_of(chart, state, second),
            message=f"in {state!r}, on {event!r}, transition {first + 1} goes before transition "
            f"{second + 1}{when}",
        )


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two transitions do the same, so that their order decides nothing."""
    return all(one.get(key) == other.get(key) for key in {*one, *other} - {"cond", "unless"})


def _guards(row: Mapping[str, Any]) -> dict[str, bool]:
    """What must be true, and what false, for a transition to be taken."""
    found: dict[str, bool] = {}
    for key, truth in (("cond", True), ("unless", False)):
        guards = row.get(key) or []
        found |= {str(one): truth for one in (guards if isinstance(guards, list) else [guards])}
    return found


def _not_cancelled(chart: Chart, graph: Graph) -> Iterator[Finding]:
    """A cancelled turn rests in the log where the chart has no row for it, and is resumed from there."""
    taking = {arc.source for arc in graph.arcs() if arc.event == "cancelled"}
    told: set[str] = set()
    for place in graph.places:
        label = place.configuration.label
        if place.configuration.terminated or place in taking or label in told:
            continue
        told.add(label)
        yield Finding(
            kind="not cancelled",
            state=label,
            event="cancelled",
            line=line_of(chart, place.configuration.states[-1]),
            message=f"in {label!r} nothing takes 'cancelled': the turn stays open, to be resumed",
        )


def may_arrive(graph: Graph, state: str, event: str) -> bool:
    """Whether the event arrives at all while the state is active: a row kept for later is not dead.

    What the chart itself sends, and what needs no event, always may.
    """
    if not event or event.startswith("done.state."):
        return True
    arrived = [(arc.source, arc.event) for arc in graph.arcs()]
    arrived += [(refusal.place, refusal.event) for refusal in graph.refused]
    return any(
        state in place.configuration.states and one in event.split() for place, one in arrived
    )
