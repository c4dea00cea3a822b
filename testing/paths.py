"""Finds scenarios for a chart: scripted turns that together take every transition that can be taken.

The search is breadth first and complete up to its bound. It begins with every start of a turn that could
make a difference and feeds the real core each possible next event. Situations that no guard of the chart
can tell apart are visited once. So each scenario is a turn that can really happen and one of the shortest
that take its transition. For a transition without a scenario the search has recorded the reason.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.states.chart.loading import Chart
from toolchart.states.core.encoding import encode_event
from toolchart.states.core.fact_rows import FactView
from toolchart.states.core.step import Step
from toolchart.states.effects import Effect, RunAgent
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Event, Limits
from toolchart.states.flows.budgets import compute_elapsed_s
from toolchart.states.machine import get_machine
from toolchart.states.snapshot import Snapshot
from toolchart.testing.answers.flow_answers import build_variables, count_list_items
from toolchart.testing.answers.guard_terms import GuardTerms, collect_guard_terms
from toolchart.testing.answers.possible_answers import list_next_events, list_turn_starts
from toolchart.testing.manual_turn import ManualTurn, make_timestamp, play_events
from toolchart.testing.transitions import (
    ChartLike,
    Transition,
    list_transition_keys,
    list_transitions,
    resolve_chart,
)
from toolchart.testing.untaken_transitions import SearchObservations, UntakenTransition

__all__ = ["Paths", "Scenario", "UntakenTransition", "find_paths"]

MAX_SITUATIONS = 30_000
"""Most situations that a search visits: some seconds of work. Of the shipped charts `compacting` needs most,
more than 20,000: its rows for pauses tell apart how many replies a turn had, and its rows for failures which
replies could not be used."""

Key = tuple[str, int]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One scripted turn, from the user's message to the state in which it ends."""

    chart: Chart
    events: tuple[Event, ...]
    """The events of the turn in order: replies, failures, reviews, decisions, outcomes."""
    transitions: tuple[Transition, ...]
    """The transitions that the turn takes, each once, in the order in which they are first taken."""
    ends_in: str
    """The state in which the turn ends: a final one, if one can be reached."""

    def run_steps(self) -> list[Step]:
        """Run the scenario through the real core; one step for each event."""
        return play_events(self.chart, get_machine(self.chart), self.events)[0]

    def write_log(self) -> list[bytes]:
        """Return the record lines that a driver would have written for the scenario, configuration first."""
        return play_events(self.chart, get_machine(self.chart), self.events)[1]

    def to_dict(self) -> dict[str, Any]:
        """Return the scenario as JSON data."""
        return {
            "events": [{"at": event.at, **encode_event(event)} for event in self.events],
            "takes": [str(transition) for transition in self.transitions],
            "ends_in": self.ends_in,
        }

    def __str__(self) -> str:
        return " > ".join([event.TYPE for event in self.events] + [self.ends_in])


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Scenarios that together take every transition that can be taken. Iterates over the scenarios."""

    scenarios: tuple[Scenario, ...]
    untaken_transitions: tuple[UntakenTransition, ...]
    """The transitions that no scenario takes, each with the reason."""

    def __iter__(self) -> Iterator[Scenario]:
        return iter(self.scenarios)

    def __len__(self) -> int:
        return len(self.scenarios)


def find_paths(chart: ChartLike, *, max_situations: int = MAX_SITUATIONS) -> Paths:
    """Find scripted turns that together take every transition of a chart that can be taken.

    Args:
        chart: a chart, the name of a shipped one, a path, or an inline mapping.
        max_situations: bound of the search; transitions beyond it are reported as not found.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
    """
    search = _Search(resolve_chart(chart), max_situations)
    search.explore()
    return Paths(
        scenarios=_drop_redundant_scenarios(list(search.build_scenarios())),
        untaken_transitions=tuple(search.explain_untaken()),
    )


def _drop_redundant_scenarios(scenarios: list[Scenario]) -> tuple[Scenario, ...]:
    """Drop scenarios whose transitions the others take too, beginning with the shortest."""
    times = Counter(transition.key for scenario in scenarios for transition in scenario.transitions)
    needed_scenarios = []
    for scenario in reversed(scenarios):
        if any(times[transition.key] == 1 for transition in scenario.transitions):
            needed_scenarios.append(scenario)
        else:
            times.subtract(transition.key for transition in scenario.transitions)
    return tuple(reversed(needed_scenarios))


class _SearchNode(msgspec.Struct, frozen=True, kw_only=True):
    """One situation of the search, and the event that led to it."""

    turn: ManualTurn
    depth: int
    """Number of events so far."""
    parent: _SearchNode | None = None
    event: Event | None = None
    transition_keys: tuple[Key, ...] = ()

    def list_path(self) -> list[_SearchNode]:
        """Return the nodes from the first event to this one."""
        here: _SearchNode | None = self
        nodes = []
        while here is not None and here.event is not None:
            nodes.append(here)
            here = here.parent
        return nodes[::-1]


class _Search:
    """A breadth-first search over the situations of a chart."""

    def __init__(self, chart: Chart, max_situations: int) -> None:
        self._chart = chart
        self._machine = get_machine(chart)
        self._terms = collect_guard_terms(self._machine)
        self._transitions = {transition.key: transition for transition in list_transitions(chart)}
        self._first_taken: dict[Key, _SearchNode] = {}
        self._observations = SearchObservations()
        self._max_situations = max_situations
        self._visited: set[Any] = set()

    def explore(self) -> None:
        """Visit situations until every transition is taken, all are visited, or the bound is reached."""
        queue = deque(self._list_start_nodes())
        while queue and len(self._first_taken) < len(self._transitions):
            if len(self._visited) > self._max_situations:
                self._observations.cut_short = True
                return
            for after in self._expand_node(queue.popleft()):
                if self._mark_visited(after):
                    queue.append(after)

    def build_scenarios(self) -> Iterator[Scenario]:
        """Yield complete turns, the longest first; each takes a transition that none before it takes."""
        covered_keys: set[Key] = set()
        deepest = sorted(self._first_taken.items(), key=lambda item: -item[1].depth)
        for key, node in deepest:
            if key not in covered_keys:
                scenario = self._make_scenario(self._complete_turn(node))
                covered_keys.update(transition.key for transition in scenario.transitions)
                yield scenario

    def explain_untaken(self) -> Iterator[UntakenTransition]:
        """Yield the transitions that were not taken, each with the reason."""
        for key, transition in self._transitions.items():
            if key not in self._first_taken:
                yield self._observations.explain_transition(transition)

    # -- one event ---------------------------------------------------------------------------------

    def _list_start_nodes(self) -> Iterator[_SearchNode]:
        fresh = _SearchNode(turn=ManualTurn.start(self._machine, self._chart), depth=0)
        for turn_start in list_turn_starts(self._terms, build_variables(self._chart.vocabulary)):
            yield from self._apply_event(fresh, turn_start)

    def _expand_node(self, node: _SearchNode) -> Iterator[_SearchNode]:
        for event in list_next_events(node.turn, self._terms):
            yield from self._apply_event(node, event)

    def _apply_event(self, node: _SearchNode, event: Event) -> Iterator[_SearchNode]:
        """Yield the node after one more event; nothing where the chart refuses the event."""
        event = replace(event, at=make_timestamp(node.depth + 1))
        active = node.turn.snapshot.configuration
        try:
            turn, result = node.turn.apply_event(event)
        except IllegalEvent as refusal:
            self._observations.add_refusal(active, event, refusal)
            return
        transition_keys = list_transition_keys(result.fired)
        self._observations.add_step(active, event, result)
        after = _SearchNode(
            turn=turn, depth=node.depth + 1, parent=node, event=event, transition_keys=transition_keys
        )
        for key in transition_keys:
            self._first_taken.setdefault(key, after)
        yield after

    def _mark_visited(self, node: _SearchNode) -> bool:
        """Remember a situation; whether it is new."""
        key = find_equivalence_key(node.turn, self._terms)
        if key in self._visited:
            return False
        self._visited.add(key)
        return True

    # -- complete turns --------------------------------------------------------------------------

    def _complete_turn(self, node: _SearchNode) -> _SearchNode:
        """Return the nearest node in which the turn is over; this node if none is found."""
        queue = deque([node])
        visited_keys: set[Any] = set()
        while queue and len(visited_keys) <= self._max_situations:
            here = queue.popleft()
            if here.turn.snapshot.is_over:
                return here
            for after in self._expand_node(here):
                key = find_equivalence_key(after.turn, self._terms)
                if key not in visited_keys:
                    visited_keys.add(key)
                    queue.append(after)
        return node

    def _make_scenario(self, last: _SearchNode) -> Scenario:
        path = last.list_path()
        transition_keys = dict.fromkeys(key for node in path for key in node.transition_keys)
        return Scenario(
            chart=self._chart,
            events=tuple(node.event for node in path if node.event is not None),
            transitions=tuple(self._transitions[key] for key in transition_keys),
            ends_in=last.turn.snapshot.state,
        )


def find_equivalence_key(turn: ManualTurn, terms: GuardTerms) -> Any:
    """Return a value that is equal for situations that no guard of the chart can tell apart.

    Numbers above the largest one that a guard compares with count as equal, the tokens of a conversation too:
    whether it is too long is decided by the start of the turn, and telling it apart later doubles the search.
    So does a strict policy, which is told apart until the first reply was reviewed.
    """
    snapshot = turn.snapshot
    bounds = [name for name in terms.facts if name.startswith("max_")]
    top = 2 + max((terms.largest, *(int(FactView(snapshot)[name]) for name in bounds)))
    facts = tuple(_cap_number(FactView(snapshot)[name], top) for name in sorted(terms.facts))
    calls = tuple((call.ruling, call.outcome is None) for call in snapshot.calls)
    effects = tuple(
        (_describe_open_effect(effect), effect.id in turn.reviewed_effects) for effect in turn.open_effects
    )
    return (
        snapshot.configuration,
        facts,
        calls,
        effects,
        count_list_items(turn.machine.vocabulary, snapshot),
        _read_remaining_budget(snapshot),
        bool(snapshot.offered_tools),
        snapshot.settings is not None and snapshot.settings.strict and snapshot.replies <= 1,
    )


def _describe_open_effect(effect: Effect) -> Any:
    if isinstance(effect, RunAgent):
        return effect.name, len(effect.messages), len(effect.answered), len(effect.resting)
    return effect.name


def _read_remaining_budget(snapshot: Snapshot) -> Any:
    """Return what is left of the budget, if there is one: it decides when `budget_spent` turns true."""
    limits = snapshot.settings.limits if snapshot.settings else Limits()
    if limits.max_tokens is not None:
        return "tokens", limits.max_tokens - (snapshot.usage.total or 0)
    if limits.max_seconds is not None:
        return "seconds", max(0.0, round(limits.max_seconds - compute_elapsed_s(snapshot), 3))
    return limits.max_tool_calls


def _cap_number(value: Any, top: int) -> Any:
    return min(value, top) if isinstance(value, int) and not isinstance(value, bool) else value
