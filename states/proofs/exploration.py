"""Explore a chart: the graph of every state that it can be in, with guards and effects on the edges.

This is explicit-state model checking. An *explored state* is a configuration together with what is open
there: the effects of its states, and the stage of the calls of the latest reply. From each explored state
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

from toolchart.states.compiler import Move
from toolchart.states.core.vocabulary import EFFECTS, EVENTS, list_chart_events
from toolchart.states.errors import SpecError
from toolchart.states.machine import START, Machine
from toolchart.states.proofs.solver import is_satisfiable
from toolchart.states.snapshot import Configuration

MAX_STATES = 2000
"""Explored states at most. A chart with more is reported as `too large`, and nothing is proved."""

CallStage = Literal["none", "unreviewed", "undecided", "cleared"]
"""The stage of the calls of the latest reply: none is open; open and not reviewed; some wait for a person;
reviewed and none waits. The core knows this and the configuration does not show it."""

HAS_PENDING_CALLS = "pending_calls >= 1"
HAS_UNDECIDED_CALLS = "undecided_calls >= 1"

LAST_OUTCOME = (HAS_PENDING_CALLS, False)
"""On `tool_finished`: no call of the reply is pending any more, so the iteration ends."""


class ExploredEffect(msgspec.Struct, frozen=True, kw_only=True):
    """An open effect: who asked for it, and whether an event has answered a part of it."""

    state: str
    name: str
    is_begun: bool = False
    """Whether an event has answered it and left it open."""

    def list_answers(self) -> tuple[str, ...]:
        """The events that may answer it next. A review comes before the decisions that follow from it."""
        answers = EFFECTS.find(self.name).answers
        if "reviewed" in answers and "decided" in answers:
            earlier_event = "reviewed" if self.is_begun else "decided"
            return tuple(event for event in answers if event != earlier_event)
        return answers


class ExploredState(msgspec.Struct, frozen=True, kw_only=True):
    """One state of the exploration: a configuration and what is open in it."""

    configuration: Configuration
    open_effects: frozenset[ExploredEffect]
    """The effects that were asked for, not answered and not cancelled."""
    call_stage: CallStage = "none"

    @property
    def is_resting(self) -> bool:
        """Whether no event will arrive, because no effect is open."""
        return not self.open_effects

    def list_answers(self) -> tuple[tuple[str, ExploredEffect], ...]:
        """The events that need a transition here, each with the open effect that it answers."""
        answers = [(event, effect) for effect in self.open_effects for event in effect.list_answers()]
        order = {event: index for index, event in enumerate(list_chart_events())}
        return tuple(sorted(answers, key=lambda answer: (order[answer[0]], answer[1].name)))

    def get_known_truths(self, event: str) -> dict[str, bool]:
        """What is certain about the calls after this event has arrived here."""
        has_calls, has_undecided = self.call_stage != "none", self.call_stage == "undecided"
        match event:
            case "replied":
                return {HAS_UNDECIDED_CALLS: False}
            case "reviewed":
                return {HAS_PENDING_CALLS: has_calls}
            case "decided":
                return {HAS_PENDING_CALLS: has_calls, **_keep_false(HAS_UNDECIDED_CALLS, has_undecided)}
            case "tool_finished":
                return {
                    **_keep_false(HAS_PENDING_CALLS, has_calls),
                    **_keep_false(HAS_UNDECIDED_CALLS, has_undecided),
                }
        return {HAS_PENDING_CALLS: has_calls, HAS_UNDECIDED_CALLS: has_undecided}


def _keep_false(text: str, truth: bool) -> dict[str, bool]:
    """What is certain about a truth that an event can make false and cannot make true."""
    return {} if truth else {text: False}


class ExploredEdge(msgspec.Struct, frozen=True, kw_only=True):
    """One edge: an event under certain guards, and the state that it leads to."""

    source: ExploredState
    event: str
    """Name of the event, without the effect that it answers."""
    guards: tuple[tuple[str, bool], ...]
    """Truths of the guards that were evaluated, and what is known about the calls."""
    move: Move
    target: ExploredState

    @property
    def is_from_user(self) -> bool:
        """Whether a person outside sends the event, so that the chart cannot cause it again and again."""
        return EVENTS.find(self.event).is_external


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
    for event, effect in _list_arriving_events(machine, state):
        known_truths = state.get_known_truths(event)
        sent_event = f"{event}.{effect.name}" if effect is not None else event
        for guard_truths, move in machine.enumerate_outcomes(
            state.configuration, sent_event, partial(_is_possible, known_truths=known_truths, event=event)
        ):
            for guards in _enumerate_cases(state, event, guard_truths):
                if isinstance(move, Move):
                    yield from _build_edges(state, event, effect, guards, move)
                elif effect is not None or move is not None:
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
    machine: Machine, state: ExploredState
) -> Iterator[tuple[str, ExploredEffect | None]]:
    """Events that can arrive here: the answers to open effects, and those from outside that a row takes."""
    yield from state.list_answers()
    legal = machine.legal_events(state.configuration)
    for row in EVENTS:
        if row.is_external and (row.name in legal or "*" in legal):
            yield row.name, None


def _enumerate_cases(
    state: ExploredState, event: str, guard_truths: Mapping[str, bool]
) -> Iterator[dict[str, bool]]:
    """The truths of the guards, once for each thing that the event may have done to the calls."""
    known_truths = state.get_known_truths(event)
    match event:
        case "replied" | "tool_finished":
            cases = [{HAS_PENDING_CALLS: True}, {HAS_PENDING_CALLS: False}]
        case "reviewed" | "decided" if state.call_stage != "none":
            cases = [{HAS_UNDECIDED_CALLS: True}, {HAS_UNDECIDED_CALLS: False}]
        case "reviewed" | "decided":
            cases = [{HAS_UNDECIDED_CALLS: False}]
        case _:
            cases = [{}]
    for case in cases:
        if any(known_truths.get(text, truth) is not truth for text, truth in case.items()):
            continue
        truths = merge_truths(guard_truths, {**known_truths, **case})
        if truths is not None and is_satisfiable(truths, event):
            yield truths


# -- the state after an event --------------------------------------------------------------------


def _build_edges(
    state: ExploredState, event: str, effect: ExploredEffect | None, guards: Mapping[str, bool], move: Move
) -> Iterator[ExploredEdge]:
    """The edges of a move: one for each way in which the effect that was answered and the calls may go on."""
    call_stage = _update_calls(state.call_stage, event, guards)
    for open_effects in _list_open_effects(state, event, effect, guards):
        kept_effects = frozenset(other for other in open_effects if other.state not in move.reset_states)
        for stage in _list_stages(call_stage, open_effects - kept_effects):
            yield ExploredEdge(
                source=state,
                event=event,
                guards=tuple(guards.items()),
                move=move,
                target=_build_next_state(move, kept_effects, stage),
            )


def _list_open_effects(
    state: ExploredState, event: str, effect: ExploredEffect | None, guards: Mapping[str, bool]
) -> Iterator[frozenset[ExploredEffect]]:
    """What is open after an event: the effect that it answers is closed, begun, or either."""
    if effect is None:
        yield state.open_effects
        return
    row = EFFECTS.find(effect.name)
    others = state.open_effects - {effect}
    begun = others | {msgspec.structs.replace(effect, is_begun=True)}
    if event not in row.closing:
        yield begun
    elif event not in row.progress:
        yield others
    elif (has_open_items := guards.get(_ITEMS_OF_EVENT.get(event, ""))) is not None:
        yield begun if has_open_items else others
    else:
        yield from (begun, others)


_ITEMS_OF_EVENT = {
    "reviewed": HAS_UNDECIDED_CALLS,
    "decided": HAS_UNDECIDED_CALLS,
    "tool_finished": HAS_PENDING_CALLS,
}
"""By event: the truth that says whether items of the effect that it answers are still open."""


def _update_calls(before: CallStage, event: str, guards: Mapping[str, bool]) -> CallStage:
    match event:
        case "replied":
            return "unreviewed" if guards[HAS_PENDING_CALLS] else "none"
        case "reviewed" | "decided" if before != "none":
            return "undecided" if guards[HAS_UNDECIDED_CALLS] else "cleared"
        case "tool_finished" if not guards[HAS_PENDING_CALLS]:
            return "none"
    return before


def _list_stages(
    call_stage: CallStage, cancelled_effects: frozenset[ExploredEffect]
) -> tuple[CallStage, ...]:
    """The stages after these effects were cancelled: calls that may have begun end as interrupted."""
    runs_calls = any("tool_finished" in EFFECTS.find(effect.name).answers for effect in cancelled_effects)
    return ("none", call_stage) if runs_calls and call_stage != "none" else (call_stage,)


def _build_next_state(
    move: Move, kept_effects: frozenset[ExploredEffect], call_stage: CallStage
) -> ExploredState:
    """The state after a move: its effects are open too, if anything answers them."""
    if move.configuration.terminated:
        return ExploredState(configuration=move.configuration, open_effects=frozenset())
    new_effects = set()
    for ask in move.asks:
        row = EFFECTS.find(ask.effect)
        if "replied" in row.answers:
            call_stage = "none"  # open calls are closed before the model is called again
        if row.closing:
            new_effects.add(ExploredEffect(state=ask.state, name=ask.effect))
    return ExploredState(
        configuration=move.configuration, open_effects=kept_effects | new_effects, call_stage=call_stage
    )
