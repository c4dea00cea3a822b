"""Everything that a chart can do: a graph of the places in which it can be, with reasons on the edges.

A *place* is a configuration with what is awaited there: effects without an answer, and how far the calls
of the latest reply have come. From each place every event that may arrive is sent, with every guard
forced both ways, and what cannot hold is left out. The library itself answers each question, so compound
and parallel states, history and eventless transitions need no rules of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from toolchart.states.effects import EFFECTS
from toolchart.states.errors import SpecError
from toolchart.states.events import CHART_EVENTS
from toolchart.states.machine import START, Machine, Move
from toolchart.states.proofs.solver import satisfiable
from toolchart.states.snapshot import Configuration

MOST_PLACES = 2000
"""Places looked at; beyond that a chart is reported as too large to prove things of."""

Calls = Literal["none", "unreviewed", "undecided", "cleared"]
"""How far the calls of the latest reply have come: none is open; open and not looked at; some wait for a
person; none does. It is what the core knows and the configuration does not."""

PENDING = "pending_calls >= 1"
UNDECIDED = "undecided_calls >= 1"

_OPEN: dict[Calls, bool] = {"none": False, "unreviewed": True, "undecided": True, "cleared": True}

_CHANGED: dict[str, tuple[str, ...]] = {
    "replied": (PENDING, UNDECIDED),
    "reviewed": (UNDECIDED,),
    "decided": (UNDECIDED,),
    "tool_finished": (PENDING,),
}
"""What an event may change of the two; the rest is after it as it was before."""

LAST_OUTCOME = (PENDING, False)
"""On `tool_finished`: no call of the reply is left, which ends an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a chart can be."""

    configuration: Configuration
    waiting: frozenset[str]
    """Effects that were asked for and not answered."""
    calls: Calls = "none"

    @property
    def rests(self) -> bool:
        """Whether nothing will happen here by itself: no effect is open and nobody is asked."""
        return not self.waiting and self.calls != "undecided"

    def expected(self) -> tuple[str, ...]:
        """Events that have to be taken here: answers to effects, and the decision that is awaited."""
        due = {event for name in self.waiting for event in EFFECTS[name].produces}
        if self.calls == "undecided" and "run_tools" not in self.waiting:
            due.add("decided")
        return tuple(event for event in CHART_EVENTS if event in due)

    def known(self, event: str) -> dict[str, bool]:
        """What is certain of the calls when this event has arrived here."""
        known = {PENDING: _OPEN[self.calls], UNDECIDED: self.calls == "undecided"}
        if event == "replied":
            return {UNDECIDED: False}
        return {text: truth for text, truth in known.items() if text not in _CHANGED.get(event, ())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """One way from place to place."""

    source: Place
    event: str
    guards: tuple[tuple[str, bool], ...]
    """The guards that were asked, and what is known of the calls."""
    move: Move
    target: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An event that has to be taken and that nothing takes, or after which the chart never rests."""

    place: Place
    event: str
    asked: dict[str, bool]
    """The guards that were asked."""
    guards: dict[str, bool]
    """They, and what is known of the calls."""
    spins: bool = False


@dataclass(slots=True)
class Graph:
    """The places of a chart, the arcs between them, and what was refused."""

    first: Place
    places: dict[Place, list[Arc]] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    complete: bool = True

    def arcs(self) -> Iterator[Arc]:
        """Every arc."""
        for arcs in self.places.values():
            yield from arcs


def explore(machine: Machine) -> Graph:
    """The graph of a chart.

    Raises:
        SpecError: the chart never rests from its very start.
    """
    starts = [_started(move) for move in _beginnings(machine)]
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


def _beginnings(machine: Machine) -> Iterator[Move]:
    none_open = {PENDING: False, UNDECIDED: False}
    for asked, move in machine.outcomes(None, START, lambda path: _possible(path, none_open)):
        if isinstance(move, SpecError):
            raise move
        assert move is not None, f"every start enters a state, whatever {asked} says"
        yield move


def _started(move: Move) -> Place:
    return _arrived(move, frozenset(), "none")


def _possible(asked: Mapping[str, bool], known: Mapping[str, bool], event: str = "") -> bool:
    both = joined(asked, known)
    return both is not None and satisfiable(both, event)


def joined(asked: Mapping[str, bool], known: Mapping[str, bool]) -> dict[str, bool] | None:
    """Both together; None where they contradict each other in so many words."""
    if any(asked.get(text, truth) is not truth for text, truth in known.items()):
        return None
    return {**asked, **known}


def _arcs(machine: Machine, place: Place, graph: Graph) -> Iterator[Arc]:
    expected = place.expected()
    for event in _arriving(machine, place, expected):
        known = place.known(event)
        for asked, move in machine.outcomes(
            place.configuration,
            event,
            lambda path, known=known, event=event: _possible(path, known, event),  # type: ignore[misc]
        ):
            for guards in _cases(place, event, asked):
                if isinstance(move, Move):
                    yield _arc(place, event, guards, move)
                elif event in expected or move is not None:
                    graph.refused.append(
                        Refusal(
                            place=place,
                            event=event,
                            asked=asked,
                            guards=guards,
                            spins=move is not None,
                        )
                    )


def _arriving(machine: Machine, place: Place, expected: tuple[str, ...]) -> Iterator[str]:
    """Events that have to be taken, and those that somebody may send where the chart has rows for them:
    a cancellation at any time, a decision while one is awaited."""
    legal = machine.legal_events(place.configuration)
    for event in CHART_EVENTS:
        offered = event == "cancelled" or (event == "decided" and place.calls == "undecided")
        if event in expected or (offered and (event in legal or "*" in legal)):
            yield event


def _cases(place: Place, event: str, asked: Mapping[str, bool]) -> Iterator[dict[str, bool]]:
    """What was asked, under each thing that the event may have done to the calls."""
    known = place.known(event)
    open_before = _OPEN[place.calls]
    match event:
        case "replied" | "tool_finished":
            cases = [{PENDING: True}, {PENDING: False}]
        case "reviewed" | "decided" if open_before:
            cases = [{UNDECIDED: True}, {UNDECIDED: False}]
        case "reviewed":
            cases = [{UNDECIDED: False}]
        case _:
            cases = [{}]
    for case in cases:
        both = joined(asked, {**known, **case})
        if both is not None and satisfiable(both, event):
            yield both


def _arc(place: Place, event: str, guards: Mapping[str, bool], move: Move) -> Arc:
    """An event answers its effect, unless more answers to it are to come."""
    calls = _calls_after(place.calls, event, guards)
    more = event == "tool_finished" and guards[PENDING]
    left = frozenset(name for name in place.waiting if more or event not in EFFECTS[name].produces)
    return Arc(
        source=place,
        event=event,
        guards=tuple(guards.items()),
        move=move,
        target=_arrived(move, left, calls),
    )


def _calls_after(before: Calls, event: str, guards: Mapping[str, bool]) -> Calls:
    match event:
        case "replied":
            return "unreviewed" if guards[PENDING] else "none"
        case "reviewed" | "decided" if before != "none":
            return "undecided" if guards[UNDECIDED] else "cleared"
        case "tool_finished" if not guards[PENDING]:
            return "none"
    return before


def _arrived(move: Move, left: frozenset[str], calls: Calls) -> Place:
    """The place after a move: its effects are awaited, too, as far as anything answers them."""
    if move.configuration.terminated:
        return Place(configuration=move.configuration, waiting=frozenset())
    asked = set()
    for name in move.effects:
        if "replied" in EFFECTS[name].produces:
            calls = "none"  # what was left open is answered before the model is asked again
        if EFFECTS[name].produces and (name != "run_tools" or calls != "none"):
            asked.add(name)  # no outcome comes where there is nothing to run
    return Place(configuration=move.configuration, waiting=left | asked, calls=calls)
