"""Everything that a chart can do: a graph of the places in which it can be, with reasons on the edges.

A *place* is a configuration with the effects that are still to be answered there. From each place every
event that may arrive is sent, with every guard forced both ways, and what cannot hold is left out. The
library itself answers each question, so compound and parallel states, history and eventless transitions
need no rules of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from toolchart.states.effects import EFFECTS
from toolchart.states.events import CHART_EVENTS
from toolchart.states.logic import satisfiable
from toolchart.states.machine import START, Machine, Move
from toolchart.states.snapshot import Configuration

MOST_PLACES = 2000
"""Places looked at; beyond that a chart is reported as too large to prove things of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a chart can be."""

    configuration: Configuration
    waiting: frozenset[str]
    """Effects that were asked for and not answered."""

    def expected(self) -> tuple[str, ...]:
        """Events with which a driver may answer here."""
        return tuple(e for e in CHART_EVENTS if any(e in EFFECTS[w].produces for w in self.waiting))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """One way from place to place."""

    source: Place
    event: str
    guards: tuple[tuple[str, bool], ...]
    move: Move
    target: Place


@dataclass(slots=True)
class Graph:
    """The places of a chart, the arcs between them, and what was refused."""

    first: Place
    places: dict[Place, list[Arc]] = field(default_factory=dict)
    refused: list[tuple[Place, str, dict[str, bool]]] = field(default_factory=list)
    """Events that may arrive and that nothing takes, with the guards' truths."""
    complete: bool = True

    def arcs(self) -> Iterator[Arc]:
        """Every arc."""
        for arcs in self.places.values():
            yield from arcs


def explore(machine: Machine) -> Graph:
    """The graph of a chart."""
    starts = [
        Place(configuration=move.configuration, waiting=_asked(move))
        for _, move in machine.outcomes(None, START, lambda path: satisfiable(path))
        if move is not None
    ]
    graph = Graph(first=starts[0])
    waiting = deque(starts)
    while waiting:
        place = waiting.popleft()
        if place in graph.places:
            continue
        if len(graph.places) >= MOST_PLACES:
            graph.complete = False
            break
        graph.places[place] = list(_arcs(machine, place, graph))
        waiting.extend(arc.target for arc in graph.places[place])
    return graph


def _arcs(machine: Machine, place: Place, graph: Graph) -> Iterator[Arc]:
    expected = place.expected()
    legal = machine.legal_events(place.configuration)
    anything = "*" in legal
    for event in CHART_EVENTS:
        if event not in expected and event not in legal and not anything:
            continue
        if event not in expected and not _from_outside(event, place):
            continue
        for path, move in machine.outcomes(
            place.configuration,
            event,
            lambda truths, event=event: satisfiable(truths, event),  # type: ignore[misc]
        ):
            if move is None:
                if event in expected:
                    graph.refused.append((place, event, path))
                continue
            yield Arc(
                source=place, event=event, guards=tuple(path.items()), move=move,
                target=_next(place, event, path, move),
            )  # fmt: skip


def _from_outside(event: str, place: Place) -> bool:
    """Whether somebody outside may send the event here: a cancellation always, a decision once the calls
    have been reviewed; all others come only as answers to effects."""
    if event == "decided":
        return "review_calls" not in place.waiting
    return not any(event in kind.produces for kind in EFFECTS.values())


def _asked(move: Move) -> frozenset[str]:
    return frozenset(name for name in move.effects if EFFECTS[name].produces)


def _next(place: Place, event: str, path: dict[str, bool], move: Move) -> Place:
    """Where an event leads: its effect is answered, unless more answers to it are to come."""
    left = {name for name in place.waiting if event not in EFFECTS[name].produces}
    if event == "tool_finished" and satisfiable({**path, "pending_calls >= 1": True}, event):
        left |= {name for name in place.waiting if event in EFFECTS[name].produces}
    if move.configuration.terminated:
        return Place(configuration=move.configuration, waiting=frozenset())
    return Place(configuration=move.configuration, waiting=frozenset(left) | _asked(move))
