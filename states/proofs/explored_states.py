"""The parts of an exploration: explored states, the effects open in them, and the edges between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.compiler import Facts, Move
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import UserSaid
from toolchart.states.proofs.solving.solver import GuardSolver
from toolchart.states.snapshot import Configuration
from toolchart.states.vocabulary import Fact, get_events, get_facts, list_chart_events

CallStage = Literal["none", "unreviewed", "undecided", "cleared"]
"""The stage of the calls of the latest reply: none is open; open and not reviewed; some wait for a person;
reviewed and none waits. The core knows this and the configuration does not show it."""

HAS_PENDING_CALLS = "pending_calls >= 1"
HAS_UNDECIDED_CALLS = "undecided_calls >= 1"

LAST_OUTCOME = (HAS_PENDING_CALLS, False)
"""On `tool_finished`: no call of the reply is pending any more, so the iteration ends."""


class ExploredEffect(msgspec.Struct, frozen=True, kw_only=True):
    """An open effect: who asked for it, and how far it is answered."""

    state: str
    name: str
    stage: Literal["asked", "empty", "begun", "resting"] = "asked"
    """`empty`: it has a list without items. `begun`: an event has answered it and left it open. `resting`:
    every child that is not done waits for the user."""

    def list_answers(self, vocabulary: Vocabulary) -> tuple[str, ...]:
        """The events that may answer it next. A review comes before the decisions that follow from it."""
        if self.stage == "resting":
            return ()
        answers = vocabulary.find_effect(self.name).answers
        if self.stage == "empty":
            return tuple(event for event in answers if event == "agent_finished")
        if "reviewed" in answers and "decided" in answers:
            earlier_event = "reviewed" if self.stage == "begun" else "decided"
            return tuple(event for event in answers if event != earlier_event)
        return answers


Truths = frozenset[tuple[str, bool]]
"""Guards with their truth."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What is known in a state about facts that were set before (`persistent_facts.py`)."""

    counts: tuple[int, ...] = ()
    """The value of each counter; the greatest that is followed stands for every greater value too."""
    truths: Truths = frozenset()
    """Guards that still have the truth that they had."""


class ExploredState(msgspec.Struct, frozen=True, kw_only=True):
    """One state of the exploration: a configuration and what is open in it."""

    configuration: Configuration
    open_effects: frozenset[ExploredEffect]
    """The effects that were asked for, not answered and not cancelled."""
    call_stage: CallStage = "none"
    has_answer: bool = False
    """Whether the turn has an answer for the user."""
    memory: Memory = Memory()
    """Empty in a plain exploration."""

    @property
    def is_resting(self) -> bool:
        """Whether no event will arrive, because no effect is open."""
        return not self.open_effects

    @property
    def innermost_state(self) -> str:
        """The last of the active states."""
        return self.configuration.states[-1]

    def awaits_user(self, vocabulary: Vocabulary) -> bool:
        """Whether the turn may end here, because only the user's next message and timers continue it."""
        is_waiting = False
        for effect in self.open_effects:
            row = vocabulary.find_effect(effect.name)
            if not (row.is_timer or row.waits_for_user or effect.stage == "resting"):
                return False
            is_waiting = is_waiting or not row.is_timer
        return is_waiting

    def list_answers(self, vocabulary: Vocabulary) -> tuple[tuple[str, ExploredEffect], ...]:
        """The events that need a transition here, each with the open effect that it answers."""
        answers = [
            (event, effect) for effect in self.open_effects for event in effect.list_answers(vocabulary)
        ]
        order = {event: index for index, event in enumerate(list_chart_events())}
        return tuple(sorted(answers, key=lambda answer: (order[answer[0]], answer[1].name)))


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """An event that arrives, and one of the things that it may do before the chart takes it."""

    event: str
    effect: ExploredEffect | None
    open_effects: frozenset[ExploredEffect]
    """What is open after it."""
    call_stage: CallStage
    has_answer: bool
    known_truths: dict[str, bool]
    starts_turn: bool = False
    needs_row: bool = True
    """Whether a chart without a row for it has a fault."""


class ExploredEdge(msgspec.Struct, frozen=True, kw_only=True):
    """One edge: an event under certain guards, and the state that it leads to."""

    source: ExploredState
    event: str
    """Name of the event, without the effect that it answers."""
    effect: ExploredEffect | None = None
    """The effect that it answers."""
    rules_event: str
    """The name under which the rules about facts know the event."""
    guards: tuple[tuple[str, bool], ...]
    """Truths of the guards that were evaluated, and what is known about calls and results."""
    move: Move
    target: ExploredState
    remembered: tuple[tuple[str, bool], ...] = ()
    """Truths of guards about facts that were set before the event."""
    starts_turn: bool = False
    """Whether the user's message begins the next turn of a chart that waited for it."""
    ends_iteration: bool = False
    """Whether the last open calls of a reply are interrupted, which ends an iteration after the guards."""

    @property
    def all_truths(self) -> dict[str, bool]:
        """Everything that is known about the facts while the guards are evaluated."""
        return {**dict(self.remembered), **dict(self.guards)}

    @property
    def is_from_user(self) -> bool:
        """Whether a person outside sends the event, so that the chart cannot cause it again and again."""
        return self.starts_turn or get_events()[self.event].is_external

    @property
    def full_event(self) -> str:
        """The event with the effect that it answers: `replied.write_draft`."""
        return f"{self.event}.{self.effect.name}" if self.effect is not None else self.event


class ExploredStart(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which the chart may start."""

    state: ExploredState
    move: Move
    counts: Mapping[str, int] = {}
    """Values of counters, where the exploration begins in the middle of a run."""
    facts: Facts = {}
    """The facts there."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An event that needs a transition and has none, or after which the chart never rests."""

    state: ExploredState
    event: str
    effect: ExploredEffect | None = None
    rules_event: str
    guard_truths: dict[str, bool]
    """Truths of the guards that were evaluated."""
    guards: dict[str, bool]
    """The same, and what is known about calls and results."""
    never_rests: bool = False


@dataclass(slots=True)
class ExplorationGraph:
    """The explored states of a chart, the edges between them, and the refusals."""

    vocabulary: Vocabulary
    solver: GuardSolver
    starts: list[ExploredStart]
    states: dict[ExploredState, list[ExploredEdge]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    is_complete: bool = True
    _runs: dict[ExploredState, tuple[str, ...]] = field(default_factory=dict)
    """The shortest run to each state; filled where one is asked for."""
    _arrivals: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """By active state, the events that arrive; filled where they are asked for."""
    live_counters: dict[ExploredState, tuple[bool, ...]] = field(default_factory=dict)
    """By state, whether each counter that guards name may still be read; filled by the search for bounds."""

    def iterate_edges(self) -> Iterator[ExploredEdge]:
        """Every edge."""
        for edges in self.states.values():
            yield from edges

    def iterate_moves(self) -> Iterator[Move]:
        """Every move, those of the starts too."""
        yield from (start.move for start in self.starts)
        yield from (edge.move for edge in self.iterate_edges())

    def find_arrivals(self, state_name: str) -> Collection[tuple[str, str]]:
        """The events that arrive while a state is active, each with the effect that it answers, if any."""
        if not self._arrivals:
            arrivals = [(edge.source, edge.event, edge.effect) for edge in self.iterate_edges()]
            arrivals += [(refusal.state, refusal.event, refusal.effect) for refusal in self.refusals]
            for state, event, effect in arrivals:
                for name in state.configuration.states:
                    names = self._arrivals.setdefault(name, set())
                    names.add((event, effect.name if effect is not None else ""))
        return self._arrivals.get(state_name, ())

    def find_run(self, state: ExploredState, *events: str) -> tuple[str, ...]:
        """The events of a shortest run from the user's message to a state, and more events after them."""
        if not self._runs:
            self._find_runs()
        return (*self._runs.get(state, ()), *events)

    def find_run_over(self, edge: ExploredEdge) -> tuple[str, ...]:
        """The events of a shortest run that ends with an edge."""
        return self.find_run(edge.source, edge.full_event)

    def _find_runs(self) -> None:
        queue = deque(start.state for start in self.starts)
        self._runs.update(dict.fromkeys(queue, ("turn_started",)))
        while queue:
            state = queue.popleft()
            for edge in self.states.get(state, ()):
                if edge.target not in self._runs:
                    event = "turn_started" if edge.starts_turn else edge.full_event
                    self._runs[edge.target] = (*self._runs[state], event)
                    queue.append(edge.target)

    def list_entered_states(self) -> set[str]:
        """Every state that is ever active, those that are only passed through too."""
        names = {name for state in self.states for name in state.configuration.states}
        for move in self.iterate_moves():
            names |= move.reset_states
        return names


def is_agent_list(row: EffectDescriptor) -> bool:
    """Whether an effect runs one agent for each item of a list."""
    return bool(row.list_source)


def find_list_source(row: EffectDescriptor) -> str:
    """The name that stands first in the path of the list of a `for_each`; empty where there is none."""
    return row.list_source.partition(".")[0]


def is_result_of_list(vocabulary: Vocabulary, result: str) -> bool:
    """Whether a result is a list with one answer for each item of a `for_each`."""
    return any(row.result == result and row.list_source for row in vocabulary.declared.values())


def is_agent_run(row: EffectDescriptor) -> bool:
    """Whether an effect runs agents."""
    return row.cost == "agent_runs"


def waits_for_message(row: EffectDescriptor) -> bool:
    """Whether the user's next message answers an effect."""
    return UserSaid.TYPE in row.closing


def list_counters(vocabulary: Vocabulary, names: Collection[str]) -> list[Fact]:
    """Those of some facts of a chart that count upwards: of the core and of its results."""
    order = (*vocabulary.result_facts, *get_facts())
    facts = [vocabulary.find_fact(name) for name in dict.fromkeys(order) if name in names]
    return [fact for fact in facts if fact is not None and fact.moved_by and _grows(fact)]


def _grows(fact: Fact) -> bool:
    """Whether a counter grows; the counters of open calls go down, and need no bound."""
    return bool(fact.limit) or "." in fact.name
