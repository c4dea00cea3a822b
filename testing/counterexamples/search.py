"""Finds the events of a run that shows a finding: a breadth-first search with the core itself.

The search is that of `find_paths`: situations that no guard of the chart can tell apart are visited once. So
a run is a shortest one, and a situation that comes back can come back for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.states.chart.document import Chart
from toolchart.states.core.answers import find_answered_effect
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Answering, Cancelled, Event, TurnStarted, UserSaid
from toolchart.states.machine import get_machine
from toolchart.states.proofs.findings import Finding
from toolchart.states.snapshot import Snapshot
from toolchart.testing.answers.flow_answers import build_variables
from toolchart.testing.answers.guard_terms import collect_guard_terms
from toolchart.testing.answers.possible_answers import list_next_events, list_turn_starts
from toolchart.testing.counterexamples.sightings import Moment, shows_finding
from toolchart.testing.manual_turn import ManualTurn, make_timestamp
from toolchart.testing.paths import find_equivalence_key

MAX_SITUATIONS = 4_000
"""Situations that a search visits at most."""

ROUNDS = 20
"""How often a run without a bound goes round its cycle."""

_OUTSIDE = (TurnStarted, UserSaid, Cancelled)


class SearchNode(msgspec.Struct, frozen=True, kw_only=True):
    """One situation, and the events that led to it."""

    turn: ManualTurn
    events: tuple[Event, ...]
    moment: Moment | None = None


class RunSearch:
    """A search through the situations of one chart."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._machine = get_machine(chart)
        self._terms = collect_guard_terms(self._machine)

    def find_run(self, finding: Finding) -> tuple[Event, ...] | None:
        """The events of a run that shows a finding; None where none was found."""
        match finding.kind:
            case "unbounded":
                return self._find_endless_run(finding)
            case "dead end":
                return self._find_run_without_end(finding)
        for node in self._walk(self._list_starts()):
            if node.moment is not None and shows_finding(finding, node.moment):
                return node.events
        return None

    def _find_run_without_end(self, finding: Finding) -> tuple[Event, ...] | None:
        """A run into a state from which the whole rest of the search finds no end without a cancellation."""
        for node in self._walk(self._list_starts()):
            if node.moment is not None and shows_finding(finding, node.moment):
                later = self._walk([node], lambda event: not isinstance(event, Cancelled))
                return None if any(_has_end(after.turn.snapshot) for after in later) else node.events
        return None

    # -- cycles ----------------------------------------------------------------------------------

    def _find_endless_run(self, finding: Finding) -> tuple[Event, ...] | None:
        """A run that goes round a cycle through a state `ROUNDS` times, in one turn."""
        for node in self._walk(self._list_starts()):
            if node.moment is None or not shows_finding(finding, node.moment):
                continue
            cycle = self._find_cycle(node)
            if cycle is not None:
                return self._go_round(node, cycle)
        return None

    def _find_cycle(self, start: SearchNode) -> list[Any] | None:
        """The keys of a shortest way from a situation back to it, without events from outside."""
        home = self._find_key(start)
        queue: deque[tuple[SearchNode, list[Any]]] = deque([(start, [])])
        visited: set[Any] = set()
        while queue and len(visited) < MAX_SITUATIONS:
            node, keys = queue.popleft()
            for after in self._expand(node, _is_from_inside):
                key = self._find_key(after)
                if key == home:
                    return [*keys, key]
                if key not in visited and not after.turn.snapshot.is_over:
                    visited.add(key)
                    queue.append((after, [*keys, key]))
        return None

    def _go_round(self, node: SearchNode, cycle: list[Any]) -> tuple[Event, ...] | None:
        for key in cycle * ROUNDS:
            found = (after for after in self._expand(node, _is_from_inside) if self._find_key(after) == key)
            next_node = next(found, None)
            if next_node is None:
                return None
            node = next_node
        return node.events

    # -- situations ------------------------------------------------------------------------------

    def _list_starts(self) -> Iterator[SearchNode]:
        fresh = SearchNode(turn=ManualTurn.start(self._machine, self._chart), events=())
        for event in list_turn_starts(self._terms, build_variables(self._chart.vocabulary)):
            yield from self._apply(fresh, event)

    def _walk(
        self, starts: Any, allows: Callable[[Event], bool] = lambda event: True
    ) -> Iterator[SearchNode]:
        """Every step of the search, breadth first, those into known situations too."""
        queue: deque[SearchNode] = deque()
        visited: set[Any] = set()
        for start in starts:
            yield start
            queue.append(start)
        while queue and len(visited) < MAX_SITUATIONS:
            for after in self._expand(queue.popleft(), allows):
                yield after
                key = self._find_key(after)
                if key not in visited:
                    visited.add(key)
                    queue.append(after)

    def _expand(self, node: SearchNode, allows: Callable[[Event], bool]) -> Iterator[SearchNode]:
        for event in list_next_events(node.turn, self._terms):
            if allows(event):
                yield from self._apply(node, event)

    def _apply(self, node: SearchNode, event: Event) -> Iterator[SearchNode]:
        event = replace(event, at=make_timestamp(len(node.events) + 1))
        before = node.turn.snapshot
        try:
            if isinstance(event, Answering) and not event.effect:
                effect = find_answered_effect(before, event)
                event = replace(event, effect=effect.id if effect is not None else 0)
            turn, step = node.turn.apply_event(event)
        except IllegalEvent:
            return
        moment = Moment(before=before, event=event, step=step)
        yield SearchNode(turn=turn, events=(*node.events, event), moment=moment)

    def _find_key(self, node: SearchNode) -> Any:
        return find_equivalence_key(node.turn, self._terms)


def _has_end(snapshot: Snapshot) -> bool:
    """Whether the chart has ended by itself, or waits for the user's next message."""
    is_final = snapshot.configuration is not None and snapshot.configuration.terminated
    return is_final or snapshot.awaits_user


def _is_from_inside(event: Event) -> bool:
    return not isinstance(event, _OUTSIDE)
