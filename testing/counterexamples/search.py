"""Finds the events of a run that shows a finding: a best-first search with the core itself.

Situations that no guard of the chart can tell apart are visited once. The exploration of the chart says how
far each state is from that of the finding, and what seems nearest is tried first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.states.chart.document import Chart
from toolchart.states.core.step import find_answered_effect
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Answering, Cancelled, Event, TurnStarted, UserSaid
from toolchart.states.machine import get_machine
from toolchart.states.proofs.exploration import explore_chart
from toolchart.states.proofs.findings import Finding
from toolchart.states.snapshot import Snapshot
from toolchart.testing.answers.flow_answers import build_variables
from toolchart.testing.answers.guard_terms import collect_guard_terms
from toolchart.testing.answers.possible_answers import list_next_events, list_turn_starts
from toolchart.testing.counterexamples.sightings import Moment, is_in_state, shows_finding
from toolchart.testing.manual_turn import ManualTurn, make_timestamp
from toolchart.testing.paths import find_equivalence_key

MAX_SITUATIONS = 4_000
"""Situations that a search visits at most."""

ROUNDS = 20
"""How often a run without a bound goes round its cycle."""

_MAX_HOMES = 20
"""Situations in the state of a cycle from which a search goes round it at most."""

_MAX_STEPS_OF_A_CYCLE = 1_500
"""Situations that are expanded on the way round a cycle at most."""

_OUTSIDE = (TurnStarted, UserSaid, Cancelled)


class SearchNode(msgspec.Struct, frozen=True, kw_only=True):
    """One situation, and the events that led to it."""

    turn: ManualTurn
    events: tuple[Event, ...]
    moment: Moment | None = None


class RunSearch:
    """A search through the situations of one chart.

    Args:
        starts: the situations where it begins; by default each start of a first turn that may matter.
        rounds: how often a run without a bound goes round its cycle.
    """

    def __init__(self, chart: Chart, starts: Sequence[SearchNode] = (), *, rounds: int = ROUNDS) -> None:
        self._chart = chart
        self._machine = get_machine(chart)
        self._terms = collect_guard_terms(self._machine)
        self._given_starts = starts
        self._rounds = rounds
        self._distances: dict[str, Mapping[str, int]] = {}

    def find_run(self, finding: Finding) -> tuple[Event, ...] | None:
        """The events of a run that shows a finding; None where none was found."""
        if finding.kind == "unbounded":
            return self._find_endless_run(finding)
        for node in self._walk(self._list_starts(), finding.state):
            if node.moment is None or not shows_finding(finding, node.moment):
                continue
            if finding.kind != "dead end":
                return node.events
            # No end may be in reach without a cancellation.
            later = self._walk([node], finding.state, lambda event: not isinstance(event, Cancelled))
            return None if any(_has_end(after.turn.snapshot) for after in later) else node.events
        return None

    # -- cycles ----------------------------------------------------------------------------------

    def _find_endless_run(self, finding: Finding) -> tuple[Event, ...] | None:
        """A run that goes round a cycle through a state again and again, in one turn."""
        homes: set[Any] = set()
        for node in self._walk(self._list_starts(), finding.state):
            if node.moment is None or not shows_finding(finding, node.moment):
                continue
            key = self._find_key(node)
            if key in homes or node.turn.snapshot.has_ended:
                continue
            homes.add(key)
            events = self._go_round(node, finding)
            if events is not None or len(homes) >= _MAX_HOMES:
                return events
        return None

    def _go_round(self, home: SearchNode, finding: Finding) -> tuple[Event, ...] | None:
        """The events of a run that comes to a state so many times, without events from outside.

        The way that has come there most often is followed first.
        """
        distances = self._find_distances(finding.state)
        queue: list[tuple[int, int, int, SearchNode]] = [(0, 0, 0, home)]
        numbers = count(1)
        visited: set[Any] = set()
        while queue and len(visited) < _MAX_STEPS_OF_A_CYCLE:
            less_rounds, _, _, node = heappop(queue)
            for after in self._expand(node, _is_from_inside):
                rounds = -less_rounds + self._is_round(after, finding)
                key = (rounds, self._find_key(after))
                if after.turn.snapshot.has_ended or key in visited:
                    continue
                if rounds >= self._rounds:
                    return after.events
                visited.add(key)
                distance = distances.get(after.turn.snapshot.state, FAR)
                heappush(queue, (-rounds, distance, next(numbers), after))
        return None

    def _is_round(self, node: SearchNode, finding: Finding) -> bool:
        moment = node.moment
        return moment is not None and bool(moment.step.fired) and shows_finding(finding, moment)

    # -- situations ------------------------------------------------------------------------------

    def _list_starts(self) -> Iterator[SearchNode]:
        if self._given_starts:
            yield from self._given_starts
            return
        fresh = SearchNode(turn=ManualTurn.start(self._machine, self._chart), events=())
        for event in list_turn_starts(self._terms, build_variables(self._chart.vocabulary)):
            yield from self._apply(fresh, event)

    def _walk(
        self, starts: Iterable[SearchNode], label: str, allows: Callable[[Event], bool] = lambda event: True
    ) -> Iterator[SearchNode]:
        """Every step of a search for a state, those into known situations too."""
        distances, numbers = self._find_distances(label), count()
        queue: list[tuple[int, int, SearchNode]] = []
        visited: set[Any] = set()

        def add(node: SearchNode) -> None:
            distance = distances.get(node.turn.snapshot.state, FAR)
            heappush(queue, (len(node.events) + 2 * distance, next(numbers), node))

        for start in starts:
            yield start
            add(start)
        while queue and len(visited) < MAX_SITUATIONS:
            for after in self._expand(heappop(queue)[-1], allows):
                yield after
                key = self._find_key(after)
                if key not in visited:
                    visited.add(key)
                    add(after)

    def _find_distances(self, label: str) -> Mapping[str, int]:
        if label not in self._distances:
            self._distances[label] = compute_distances(self._chart, label)
        return self._distances[label]

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


# -- distances -----------------------------------------------------------------------------------


FAR = 1_000
"""Farther than any state of a chart that can be explored is from another on a way that a search follows."""


def compute_distances(chart: Chart, label: str) -> Mapping[str, int]:
    """By label of a state of the exploration: the least number of events to one with this label."""
    graph = explore_chart(get_machine(chart))
    sources: dict[str, set[str]] = {}
    for edge in graph.iterate_edges():
        sources.setdefault(edge.target.configuration.label, set()).add(edge.source.configuration.label)
    labels = {state.configuration.label for state in graph.states}
    ends = [label, *(other for other in labels if other != label and is_in_state(other, label))]
    distances, queue = dict.fromkeys(ends, 0), deque(ends)
    while queue:
        target = queue.popleft()
        for source in sources.get(target, ()):
            if source not in distances:
                distances[source] = distances[target] + 1
                queue.append(source)
    return distances
