"""Scenarios from a chart: scripted turns that together take every transition.

The search is plain and complete up to its bound: from every opening of a turn, the real core is fed
each answer that could make a difference, breadth first, and situations that no guard of the chart can
tell apart are visited once. So a scenario is among the shortest that take its transition, it is a
turn that can really happen, and where no scenario is found the search has seen why.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from toolchart.states.chart.loading import Chart
from toolchart.states.core.step import Step
from toolchart.states.encoding import encode_event
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import AnyEvent, Limits
from toolchart.states.facts import FACTS
from toolchart.states.machine import machine_of
from toolchart.states.snapshot import Snapshot
from toolchart.testing.manual_turn import Walk, moment, play
from toolchart.testing.possible_answers import Questions, answers, openings, questions_of
from toolchart.testing.transitions import ChartLike, Transition, chart_of, keys, transitions_of
from toolchart.testing.untaken_reasons import Sightings, Untaken

__all__ = ["Paths", "Scenario", "Untaken", "find_paths"]

MOST_SITUATIONS = 10_000
"""Situations that a search visits at most, a few seconds' work; the largest shipped chart has 5000."""

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scripted turn, from the user's message to a state in which the chart rests."""

    chart: Chart
    events: tuple[AnyEvent, ...]
    """What comes in, in order: replies, failures, verdicts, decisions, outcomes."""
    takes: tuple[Transition, ...]
    """The transitions that it takes, each once, in the order in which they are first taken."""
    ends_in: str
    """The state in which it rests: a final one, if one can be reached from there."""

    def steps(self) -> list[Step]:
        """The scenario run through the real core, one step an event."""
        return play(self.chart, machine_of(self.chart), self.events)[0]

    def log(self) -> list[bytes]:
        """The record lines that a driver would have written, configuration first."""
        return play(self.chart, machine_of(self.chart), self.events)[1]

    def to_dict(self) -> dict[str, Any]:
        """The scenario as JSON data."""
        return {
            "events": [{"at": event.at, **encode_event(event)} for event in self.events],
            "takes": [str(one) for one in self.takes],
            "ends_in": self.ends_in,
        }

    def __str__(self) -> str:
        return " > ".join([event.TYPE for event in self.events] + [self.ends_in])


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Scenarios that together take every transition that can be taken. Iterates over them."""

    scenarios: tuple[Scenario, ...]
    untaken: tuple[Untaken, ...]
    """Transitions that no scenario takes, each with the reason."""

    def __iter__(self) -> Iterator[Scenario]:
        return iter(self.scenarios)

    def __len__(self) -> int:
        return len(self.scenarios)


def find_paths(chart: ChartLike, *, most_situations: int = MOST_SITUATIONS) -> Paths:
    """Scripted turns that together take every transition of a chart, and what none can take.

    Args:
        chart: a chart, the name of a shipped one, a path, or an inline mapping.
        most_situations: bound of the search; a transition beyond it is reported as not found.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
    """
    found = chart_of(chart)
    search = _Search(found, most_situations)
    search.run()
    return Paths(scenarios=_needed(list(search.scenarios())), untaken=tuple(search.untaken()))


def _needed(scenarios: list[Scenario]) -> tuple[Scenario, ...]:
    """The scenarios without those whose transitions the others take as well, the shortest going first."""
    times = Counter(one.key for scenario in scenarios for one in scenario.takes)
    kept = []
    for scenario in reversed(scenarios):
        if any(times[one.key] == 1 for one in scenario.takes):
            kept.append(scenario)
        else:
            times.subtract(one.key for one in scenario.takes)
    return tuple(reversed(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Situation:
    """One place of the search, and how it was come by."""

    walk: Walk
    place: int
    """Events so far."""
    before: _Situation | None = None
    event: AnyEvent | None = None
    took: tuple[Key, ...] = ()

    def history(self) -> list[_Situation]:
        """The situations that led here, the first event's first."""
        here: _Situation | None = self
        found = []
        while here is not None and here.event is not None:
            found.append(here)
            here = here.before
        return found[::-1]


class _Search:
    """Breadth first over the situations of a chart."""

    def __init__(self, chart: Chart, most: int) -> None:
        self._chart = chart
        self._machine = machine_of(chart)
        self._questions = questions_of(self._machine)
        self._all = {one.key: one for one in transitions_of(chart)}
        self._first: dict[Key, _Situation] = {}
        self._sightings = Sightings()
        self._most = most
        self._seen: set[Any] = set()

    def run(self) -> None:
        """Visit situations until every transition is taken, or all are visited, or enough are."""
        queue = deque(self._opened())
        while queue and len(self._first) < len(self._all):
            if len(self._seen) > self._most:
                self._sightings.cut_short = True
                return
            for after in self._expanded(queue.popleft()):
                if self._is_new(after):
                    queue.append(after)

    def scenarios(self) -> Iterator[Scenario]:
        """Whole turns, the longest first, each with something that none before it takes."""
        covered: set[Key] = set()
        deepest = sorted(self._first.items(), key=lambda item: -item[1].place)
        for key, situation in deepest:
            if key not in covered:
                whole = self._to_the_end(situation)
                scenario = self._scenario(whole)
                covered.update(one.key for one in scenario.takes)
                yield scenario

    def untaken(self) -> Iterator[Untaken]:
        """What was not taken, with the reason."""
        for key, transition in self._all.items():
            if key not in self._first:
                yield self._sightings.explain(transition)

    # -- one step --------------------------------------------------------------------------------

    def _opened(self) -> Iterator[_Situation]:
        fresh = _Situation(walk=Walk.of(self._machine, self._chart), place=0)
        for opening in openings(self._questions):
            yield from self._after(fresh, opening)

    def _expanded(self, situation: _Situation) -> Iterator[_Situation]:
        for event in answers(situation.walk, self._questions):
            yield from self._after(situation, event)

    def _after(self, situation: _Situation, event: AnyEvent) -> Iterator[_Situation]:
        """The situation after one more event; none where the chart does not take it."""
        event = replace(event, at=moment(situation.place + 1))
        active = situation.walk.snapshot.configuration
        try:
            walk, taken = situation.walk.take(event)
        except IllegalEvent as refusal:
            self._sightings.refused(active, event, refusal)
            return
        took = keys(taken.taken)
        self._sightings.saw(active, event, taken)
        after = _Situation(
            walk=walk, place=situation.place + 1, before=situation, event=event, took=took
        )
        for key in took:
            self._first.setdefault(key, after)
        yield after

    def _is_new(self, situation: _Situation) -> bool:
        key = _distinction(situation.walk, self._questions)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    # -- whole turns -----------------------------------------------------------------------------

    def _to_the_end(self, situation: _Situation) -> _Situation:
        """The shortest way on from a situation until the turn is over, if there is one."""
        queue = deque([situation])
        seen: set[Any] = set()
        while queue and len(seen) <= self._most:
            here = queue.popleft()
            if here.walk.snapshot.over:
                return here
            for after in self._expanded(here):
                key = _distinction(after.walk, self._questions)
                if key not in seen:
                    seen.add(key)
                    queue.append(after)
        return situation

    def _scenario(self, last: _Situation) -> Scenario:
        history = last.history()
        took = dict.fromkeys(key for one in history for key in one.took)
        return Scenario(
            chart=self._chart,
            events=tuple(one.event for one in history if one.event is not None),
            takes=tuple(self._all[key] for key in took),
            ends_in=last.walk.snapshot.state,
        )


def _distinction(walk: Walk, questions: Questions) -> Any:
    """What the chart can tell two situations apart by; numbers count up to where no guard looks."""
    snapshot = walk.snapshot
    bounds = [name for name in questions.facts if name.startswith("max_")]
    top = 2 + max((questions.largest, *(int(FACTS[name].read(snapshot)) for name in bounds)))
    facts = tuple(_capped(FACTS[name].read(snapshot), top) for name in sorted(questions.facts))
    calls = tuple((opened.ruling, opened.outcome is None) for opened in snapshot.calls)
    kinds = tuple(effect.name for effect in walk.waiting)
    return snapshot.configuration, facts, calls, kinds, _budget(snapshot), bool(snapshot.offered)


def _budget(snapshot: Snapshot) -> Any:
    """How much of a budget is left, where there is one: it decides when `budget_spent` turns true."""
    limits = snapshot.settings.limits if snapshot.settings else Limits()
    if limits.max_tokens is not None:
        return "tokens", limits.max_tokens - (snapshot.usage.total or 0)
    return limits.max_tool_calls


def _capped(value: Any, top: int) -> Any:
    return min(value, top) if isinstance(value, int) and not isinstance(value, bool) else value
