"""Explore a chart: the graph of every state that it can be in, with guards and effects on the edges.

This is explicit-state model checking. An *explored state* is a configuration together with what is open
there: effects without an answer, and the stage of the calls of the latest reply. From each explored state
every event that can arrive is sent, with every guard forced both ways. Combinations of guards that the
solver calls impossible are left out.

The machine answers each question, and so python-statemachine itself. Compound and parallel states,
history and eventless transitions need no rules of their own here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import msgspec

from toolchart.states.effects import EFFECTS
from toolchart.states.errors import SpecError
from toolchart.states.events import CHART_EVENTS
from toolchart.states.machine import START, Machine, Move
from toolchart.states.proofs.solver import is_satisfiable
from toolchart.states.snapshot import Configuration

MAX_STATES = 2000
"""Explored states at most. A chart with more is reported as `too large`, and nothing is proved."""

CallStage = Literal["none", "unreviewed", "undecided", "cleared"]
"""The stage of the calls of the latest reply: none is open; open and not reviewed; some wait for a person;
reviewed and none waits. The core knows this and the configuration does not show it."""

HAS_PENDING_CALLS = "pending_calls >= 1"
HAS_UNDECIDED_CALLS = "undecided_calls >= 1"

_HAS_OPEN_CALLS: dict[CallStage, bool] = {
    "none": False,
    "unreviewed": True,
    "undecided": True,
    "cleared": True,
}

_CHANGED_BY_EVENT: dict[str, tuple[str, ...]] = {
    "replied": (HAS_PENDING_CALLS, HAS_UNDECIDED_CALLS),
    "reviewed": (HAS_UNDECIDED_CALLS,),
    "decided": (HAS_UNDECIDED_CALLS,),
    "tool_finished": (HAS_PENDING_CALLS,),
}
"""Which of the two truths an event may change."""

LAST_OUTCOME = (HAS_PENDING_CALLS, False)
"""On `tool_finished`: no call of the reply is pending any more, so the iteration ends."""


class ExploredState(msgspec.Struct, frozen=True, kw_only=True):
    """One state of the exploration: a configuration and what is open in it."""

    configuration: Configuration
    open_effects: frozenset[str]
    """Names of the effects that were requested and not answered."""
    call_stage: CallStage = "none"

    @property
    def is_resting(self) -> bool:
        """Whether no event will arrive: no effect is open and no call waits for a decision."""
        return not self.open_effects and self.call_stage != "undecided"

    def list_required_events(self) -> tuple[str, ...]:
        """Events that need a transition here: answers to open effects, and the decision that is awaited."""
        required_events = {event for name in self.open_effects for event in EFFECTS[name].produces}
        if self.call_stage == "undecided" and "run_tools" not in self.open_effects:
            required_events.add("decided")
        return tuple(event for event in CHART_EVENTS if event in required_events)

    def get_known_truths(self, event: str) -> dict[str, bool]:
        """What is certain about the calls after this event has arrived here."""
        known_truths = {
            HAS_PENDING_CALLS: _HAS_OPEN_CALLS[self.call_stage],
            HAS_UNDECIDED_CALLS: self.call_stage == "undecided",
        }
        if event == "replied":
            return {HAS_UNDECIDED_CALLS: False}
        return {
            text: truth
            for text, truth in known_truths.items()
            if text not in _CHANGED_BY_EVENT.get(event, ())
        }


class ExploredEdge(msgspec.Struct, frozen=True, kw_only=True):
    """One edge: an event under certain guards, and the state that it leads to."""

    source: ExploredState
    event: str
    guards: tuple[tuple[str, bool], ...]
    """Truths of the guards that were evaluated, and what is known about the calls."""
    move: Move
    target: ExploredState


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An event that needs a transition and has none, or after which the chart never rests."""

    state: ExploredState
    event: str
    guard_truths: dict[str, bool]
    """Truths of the guards that were evaluated."""
    guards: dict[str, bool]
    """The same, and what is known about the calls."""
    never_rests: bool = False


@dataclass(slots=True)
class ExplorationGraph:
    """The explored states of a chart, the edges between them, and the refusals."""

    first_state: ExploredState
    states: dict[ExploredState, list[ExploredEdge]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    is_complete: bool = True

    def iterate_edges(self) -> Iterator[ExploredEdge]:
        """Every edge."""
        for edges in self.states.values():
            yield from edges


def explore_chart(machine: Machine) -> ExplorationGraph:
    """Explore a chart from its initial state.

    Raises:
        SpecError: the chart never rests from its very start.
    """
    starts = [_build_first_state(move) for move in _enumerate_starts(machine)]
    graph = ExplorationGraph(first_state=starts[0])
    queue = deque(starts)
    while queue:
        state = queue.popleft()
        if state in graph.states:
            continue
        if len(graph.states) >= MAX_STATES:
            graph.is_complete = False
            break
        graph.states[state] = list(_explore_edges(machine, state, graph))
        queue.extend(edge.target for edge in graph.states[state])
    return graph


def _enumerate_starts(machine: Machine) -> Iterator[Move]:
    no_calls_open = {HAS_PENDING_CALLS: False, HAS_UNDECIDED_CALLS: False}
    for guard_truths, move in machine.enumerate_outcomes(
        None, START, lambda path: _is_possible(path, no_calls_open)
    ):
        if isinstance(move, SpecError):
            raise move
        assert move is not None, f"every start enters a state, whatever {guard_truths} says"
        yield move


def _build_first_state(move: Move) -> ExploredState:
    return _build_next_state(move, frozenset(), "none")


def _is_possible(guard_truths: Mapping[str, bool], known_truths: Mapping[str, bool], event: str = "") -> bool:
    truths = merge_truths(guard_truths, known_truths)
    return truths is not None and is_satisfiable(truths, event)


def merge_truths(
    guard_truths: Mapping[str, bool], known_truths: Mapping[str, bool]
) -> dict[str, bool] | None:
    """Both together; None where they give one guard two truths."""
    if any(guard_truths.get(text, truth) is not truth for text, truth in known_truths.items()):
        return None
    return {**guard_truths, **known_truths}


def _explore_edges(machine: Machine, state: ExploredState, graph: ExplorationGraph) -> Iterator[ExploredEdge]:
    required_events = state.list_required_events()
    for event in _list_arriving_events(machine, state, required_events):
        known_truths = state.get_known_truths(event)
        for guard_truths, move in machine.enumerate_outcomes(
            state.configuration, event, partial(_is_possible, known_truths=known_truths, event=event)
        ):
            for guards in _enumerate_cases(state, event, guard_truths):
                if isinstance(move, Move):
                    yield _build_edge(state, event, guards, move)
                elif event in required_events or move is not None:
                    graph.refusals.append(
                        Refusal(
                            state=state,
                            event=event,
                            guard_truths=guard_truths,
                            guards=guards,
                            never_rests=move is not None,
                        )
                    )


def _list_arriving_events(
    machine: Machine, state: ExploredState, required_events: tuple[str, ...]
) -> Iterator[str]:
    """Events that can arrive here.

    Those that need a transition, and those from outside where the chart has rows for them: a cancellation
    at any time, a decision while one is awaited.
    """
    legal = machine.legal_events(state.configuration)
    for event in CHART_EVENTS:
        may_be_sent = event == "cancelled" or (event == "decided" and state.call_stage == "undecided")
        if event in required_events or (may_be_sent and (event in legal or "*" in legal)):
            yield event


def _enumerate_cases(
    state: ExploredState, event: str, guard_truths: Mapping[str, bool]
) -> Iterator[dict[str, bool]]:
    """The truths of the guards, once for each thing that the event may have done to the calls."""
    known_truths = state.get_known_truths(event)
    open_before = _HAS_OPEN_CALLS[state.call_stage]
    match event:
        case "replied" | "tool_finished":
            cases = [{HAS_PENDING_CALLS: True}, {HAS_PENDING_CALLS: False}]
        case "reviewed" | "decided" if open_before:
            cases = [{HAS_UNDECIDED_CALLS: True}, {HAS_UNDECIDED_CALLS: False}]
        case "reviewed":
            cases = [{HAS_UNDECIDED_CALLS: False}]
        case _:
            cases = [{}]
    for case in cases:
        truths = merge_truths(guard_truths, {**known_truths, **case})
        if truths is not None and is_satisfiable(truths, event):
            yield truths


def _build_edge(state: ExploredState, event: str, guards: Mapping[str, bool], move: Move) -> ExploredEdge:
    """The edge of a move. The event closes the effect that it answers, unless more outcomes follow."""
    call_stage = _update_calls(state.call_stage, event, guards)
    has_more_outcomes = event == "tool_finished" and guards[HAS_PENDING_CALLS]
    remaining_effects = frozenset(
        name for name in state.open_effects if has_more_outcomes or event not in EFFECTS[name].produces
    )
    return ExploredEdge(
        source=state,
        event=event,
        guards=tuple(guards.items()),
        move=move,
        target=_build_next_state(move, remaining_effects, call_stage),
    )


def _update_calls(before: CallStage, event: str, guards: Mapping[str, bool]) -> CallStage:
    match event:
        case "replied":
            return "unreviewed" if guards[HAS_PENDING_CALLS] else "none"
        case "reviewed" | "decided" if before != "none":
            return "undecided" if guards[HAS_UNDECIDED_CALLS] else "cleared"
        case "tool_finished" if not guards[HAS_PENDING_CALLS]:
            return "none"
    return before


def _build_next_state(move: Move, remaining_effects: frozenset[str], call_stage: CallStage) -> ExploredState:
    """The state after a move: its effects are open too, if anything answers them."""
    if move.configuration.terminated:
        return ExploredState(configuration=move.configuration, open_effects=frozenset())
    new_effects = set()
    for name in move.effects:
        if "replied" in EFFECTS[name].produces:
            call_stage = "none"  # open calls are closed before the model is called again
        if EFFECTS[name].produces and (name != "run_tools" or call_stage != "none"):
            new_effects.add(name)  # without a call to run there is no outcome
    return ExploredState(
        configuration=move.configuration, open_effects=remaining_effects | new_effects, call_stage=call_stage
    )
