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
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolchart.states.chart.rules import find_raised_events
from toolchart.states.compiler import Move
from toolchart.states.errors import SpecError
from toolchart.states.events import UserSaid
from toolchart.states.machine import START, Machine
from toolchart.states.proofs.call_stages import (
    ANSWERED_STAGES,
    ITEMS_OF_EVENT,
    list_stages_after,
    update_calls,
    wake_agents,
)
from toolchart.states.proofs.explored_states import (
    HAS_PENDING_CALLS,
    HAS_UNDECIDED_CALLS,
    Arrival,
    CallStage,
    ExplorationGraph,
    ExploredEdge,
    ExploredEffect,
    ExploredStart,
    ExploredState,
    Memory,
    Refusal,
    find_list_source,
    is_agent_list,
    is_agent_run,
    waits_for_message,
)
from toolchart.states.proofs.persistent_facts import PersistentFacts
from toolchart.states.proofs.result_rules import build_solver, find_rules_event
from toolchart.states.proofs.solving.solver import GuardSolver, find_facts
from toolchart.states.vocabulary import get_events

MAX_STATES = 2000
"""Explored states at most. A chart with more is reported as `too large`, and nothing is proved."""

_MAX_STATES_WITH_MEMORY = 600
_TOPS = (6, 2, 1, 0)  # up to where counters are followed, the most precise one first


def explore_chart(machine: Machine, starts: Sequence[ExploredStart] = ()) -> ExplorationGraph:
    """Explore a chart from its initial state, or from these; `SpecError`: it never rests at its start."""
    return _Explorer(machine).explore(starts)


def explore_with_memory(
    machine: Machine, graph: ExplorationGraph, starts: Sequence[ExploredStart] = ()
) -> ExplorationGraph:
    """Explore a chart again, with memory of the facts that keep their value from event to event.

    Args:
        graph: the plain exploration; it is the answer where the other one would be too large.
    """
    if not graph.is_complete:
        return graph
    # Any of them is sound: a lower top only forgets more, which allows more runs and hides no fault.
    for top in _TOPS:
        facts = PersistentFacts(graph, top)
        if facts.is_empty:
            return graph
        explorer = _Explorer(machine, facts, graph.solver, max_states=_MAX_STATES_WITH_MEMORY)
        if (better_graph := explorer.explore(starts)).is_complete:
            return better_graph
    return graph


def merge_truths(
    guard_truths: Mapping[str, bool], known_truths: Mapping[str, bool]
) -> dict[str, bool] | None:
    """Both together; None where they give one guard two truths."""
    if any(guard_truths.get(text, truth) is not truth for text, truth in known_truths.items()):
        return None
    return {**guard_truths, **known_truths}


class _Explorer:
    """The exploration of one chart."""

    def __init__(
        self,
        machine: Machine,
        facts: PersistentFacts | None = None,
        solver: GuardSolver | None = None,
        max_states: int = MAX_STATES,
    ) -> None:
        self._machine = machine
        self._facts = facts
        self._max_states = max_states
        self._vocabulary = machine.vocabulary
        self._solver = solver or build_solver(machine.vocabulary)
        self._graph = ExplorationGraph(vocabulary=machine.vocabulary, solver=self._solver, starts=[])
        self._outcomes: dict[Any, list[tuple[dict[str, bool], Move | SpecError | None]]] = {}
        fact_names = {name for text in machine.guards for name in find_facts(text)}
        facts_of_guards = filter(None, map(machine.vocabulary.find_fact, fact_names))
        self._heard_events = {event for fact in facts_of_guards for event in fact.changed_by or ()}
        self._raised_events = {event for event, _ in find_raised_events(machine.chart)}
        self._counted_results = [
            name for name in machine.vocabulary.result_names if f"{name}.pending" in fact_names
        ]

    def explore(self, starts: Sequence[ExploredStart]) -> ExplorationGraph:
        """The graph of the chart, from these states or from its beginning."""
        graph = self._graph
        graph.starts = list(map(self._add_memory, starts)) or list(self._enumerate_starts())
        queue = deque(start.state for start in graph.starts)
        while queue:
            state = queue.popleft()
            if state in graph.states:
                continue
            if len(graph.states) >= self._max_states:
                graph.is_complete = False
                break
            graph.states[state] = list(self._explore_edges(state))
            queue.extend(edge.target for edge in graph.states[state])
        return graph

    def _enumerate_starts(self) -> Iterator[ExploredStart]:
        for guard_truths, move in self._list_outcomes(None, START, START):
            if isinstance(move, SpecError):
                raise move
            assert move is not None, f"every start enters a state, whatever {guard_truths} says"
            no_results = self._vocabulary.result_names
            state = self._build_next_state(move, frozenset(), "none", False, no_results)
            if self._facts is not None:
                memory = self._facts.begin(guard_truths)
                memory = self._facts.apply_move(memory, START, {}, move.effects, state, ends_iteration=False)
                state = replace(state, memory=memory)
            yield ExploredStart(state=state, move=move)

    def _add_memory(self, start: ExploredStart) -> ExploredStart:
        memory = self._facts.restore(start) if self._facts is not None else Memory()
        return replace(start, state=replace(start.state, memory=memory))

    def _list_outcomes(
        self, configuration: Any, event: str, rules_event: str
    ) -> list[tuple[dict[str, bool], Move | SpecError | None]]:
        """What the machine answers to an event, whatever is known about calls and results."""
        key = (configuration, event, rules_event)
        if key not in self._outcomes:
            self._outcomes[key] = list(
                self._machine.enumerate_outcomes(
                    configuration, event, lambda path: self._solver.is_satisfiable(path, rules_event)
                )
            )
        return self._outcomes[key]

    # -- edges -----------------------------------------------------------------------------------

    def _explore_edges(self, state: ExploredState) -> Iterator[ExploredEdge]:
        for arrival in self._list_arrivals(state):
            effect = arrival.effect
            sent_event = f"{arrival.event}.{effect.name}" if effect is not None else arrival.event
            rules_event = find_rules_event(
                self._vocabulary,
                arrival.event,
                effect.name if effect is not None else None,
                starts_turn=arrival.starts_turn,
            )
            memory = self._update_memory(state, arrival, rules_event)
            remembered = self._facts.list_truths(memory) if self._facts is not None else {}
            for guard_truths, move in self._list_outcomes(state.configuration, sent_event, rules_event):
                # The outcomes are those of the configuration alone, so that they are computed once. What is
                # known of this arrival, and remembered of this state, leaves some of them out here.
                guards = merge_truths(guard_truths, arrival.known_truths)
                truths = merge_truths(guards, remembered) if guards is not None else None
                if guards is None or truths is None or not self._solver.is_satisfiable(truths, rules_event):
                    continue
                if move is None and not arrival.needs_row:
                    move = _build_quiet_move(state, guard_truths)
                if isinstance(move, Move):
                    yield from self._build_edges(state, arrival, rules_event, guards, move, memory)
                    continue
                refusal = Refusal(
                    state=state,
                    event=arrival.event,
                    effect=effect,
                    rules_event=rules_event,
                    guard_truths=guard_truths,
                    guards=truths,
                    never_rests=move is not None,
                )
                self._graph.refusals.append(refusal)

    def _update_memory(self, state: ExploredState, arrival: Arrival, rules_event: str) -> Memory:
        """What is remembered of a state when an event has arrived."""
        if self._facts is None:
            return state.memory
        effect = arrival.effect.name if arrival.effect is not None else None
        return self._facts.apply_event(
            state.memory, rules_event, effect, arrival.known_truths, starts_turn=arrival.starts_turn
        )

    def _build_edges(
        self,
        state: ExploredState,
        arrival: Arrival,
        rules_event: str,
        guards: dict[str, bool],
        move: Move,
        memory: Memory,
    ) -> Iterator[ExploredEdge]:
        """The edges of a move: one for each way in which the calls may go on."""
        kept_effects = frozenset(
            other for other in arrival.open_effects if other.state not in move.reset_states
        )
        cancelled_effects = arrival.open_effects - kept_effects
        remembered = self._facts.list_truths(memory) if self._facts is not None else {}
        for stage in list_stages_after(self._vocabulary, arrival.call_stage, cancelled_effects):
            ends_iteration = stage != arrival.call_stage
            empty_results = self._facts.list_empty_results(memory) if self._facts is not None else ()
            target = self._build_next_state(move, kept_effects, stage, arrival.has_answer, empty_results)
            if self._facts is not None and not move.configuration.terminated:
                new_memory = self._facts.apply_move(
                    memory, rules_event, guards, move.effects, target, ends_iteration=ends_iteration
                )
                target = replace(target, memory=new_memory)
            yield ExploredEdge(
                source=state,
                event=arrival.event,
                effect=arrival.effect,
                rules_event=rules_event,
                guards=tuple(guards.items()),
                move=move,
                target=target,
                remembered=tuple(remembered.items()),
                starts_turn=arrival.starts_turn,
                ends_iteration=ends_iteration,
            )

    def _build_next_state(
        self,
        move: Move,
        kept_effects: frozenset[ExploredEffect],
        call_stage: CallStage,
        has_answer: bool,
        empty_results: Collection[str] = (),
    ) -> ExploredState:
        """The state after a move: its effects are open too, if anything answers them."""
        rows = [(ask, self._vocabulary.find_effect(ask.effect)) for ask in move.asks]
        has_answer = has_answer or any(row.ends_turn or row.waits_for_user for _, row in rows)
        if move.configuration.terminated:
            return ExploredState(
                configuration=move.configuration, open_effects=frozenset(), has_answer=has_answer
            )
        open_effects = kept_effects | {
            ExploredEffect(
                state=ask.state,
                name=ask.effect,
                stage="empty" if find_list_source(row) in empty_results else "asked",
            )
            for ask, row in rows
            if row.closing
        }
        if any(row.ends_turn for _, row in rows):  # the answer closes the calls, and whoever works on them
            open_effects = frozenset(
                effect for effect in open_effects if not self._vocabulary.find_effect(effect.name).uses_calls
            )
        if any(row.closes_calls for _, row in rows):
            call_stage = "none"
        return ExploredState(
            configuration=move.configuration,
            open_effects=open_effects,
            call_stage=call_stage,
            has_answer=has_answer,
        )

    # -- events that arrive ----------------------------------------------------------------------

    def _list_arrivals(self, state: ExploredState) -> Iterator[Arrival]:
        """Events that can arrive: answers to open effects, and those from outside that a row takes."""
        if state.configuration.terminated or state.is_resting:  # the core ends a turn that is stuck
            return
        awaits_user = state.awaits_user(self._vocabulary)
        for event, effect in state.list_answers(self._vocabulary):
            yield from self._list_answer_arrivals(state, event, effect, awaits_user)
        legal = {name.partition(".")[0] for name in self._machine.legal_events(state.configuration)}
        for row in (row for row in get_events().values() if row.is_external):
            is_message = row.name == UserSaid.TYPE
            if is_message and any(
                waits_for_message(self._vocabulary.find_effect(e.name)) for e in state.open_effects
            ):
                continue  # it is an answer, and listed above
            starts_turn = is_message and awaits_user
            if starts_turn or row.name in self._heard_events or row.name in legal or "*" in legal:
                open_effects = wake_agents(state.open_effects) if starts_turn else state.open_effects
                yield self._build_arrival(
                    state, row.name, None, open_effects, starts_turn=starts_turn, needs_row=False
                )

    def _list_answer_arrivals(
        self, state: ExploredState, event: str, effect: ExploredEffect, awaits_user: bool
    ) -> Iterator[Arrival]:
        """An answer closes the effect, leaves it begun or resting: one arrival for each that is possible."""
        row = self._vocabulary.find_effect(effect.name)
        others = state.open_effects - {effect}
        closed, begun = others, others | {replace(effect, stage="begun")}
        resting = others | {replace(effect, stage="resting")}
        is_main = not row.result
        if is_agent_run(row):
            stages = [resting] if event == "agent_rested" else [closed]
            if is_agent_list(row) and effect.stage != "empty":
                stages = [begun, resting] if event == "agent_rested" else [closed, begun, resting]
            for open_effects in stages:
                yield self._build_arrival(
                    state, event, effect, open_effects, needs_row=open_effects is closed, is_main=is_main
                )
        elif waits_for_message(row):
            open_effects = wake_agents(others) if awaits_user else others
            yield self._build_arrival(state, event, effect, open_effects, starts_turn=awaits_user)
        elif event == "replied" and is_main:
            for has_calls in (True, False):
                yield self._build_arrival(state, event, effect, closed, {HAS_PENDING_CALLS: has_calls})
        elif event in ITEMS_OF_EVENT and state.call_stage in ANSWERED_STAGES[event]:
            text = ITEMS_OF_EVENT[event]
            yield self._build_arrival(state, event, effect, closed, {text: False})
            yield self._build_arrival(state, event, effect, begun, {text: True})
            if (
                event == "tool_finished" and state.call_stage == "undecided"
            ):  # the call may have been that one
                decided_state = replace(state, call_stage="cleared")
                yield self._build_arrival(decided_state, event, effect, begun, {text: True})
        elif event in ITEMS_OF_EVENT:
            yield self._build_arrival(state, event, effect, closed, {ITEMS_OF_EVENT[event]: False})
        elif event not in row.closing:
            yield self._build_arrival(state, event, effect, begun)
        else:
            yield self._build_arrival(state, event, effect, closed)
            if event in row.progress:
                yield self._build_arrival(state, event, effect, begun)

    def _build_arrival(
        self,
        state: ExploredState,
        event: str,
        effect: ExploredEffect | None,
        open_effects: frozenset[ExploredEffect],
        call_truths: Mapping[str, bool] | None = None,
        *,
        starts_turn: bool = False,
        needs_row: bool = True,
        is_main: bool = True,
    ) -> Arrival:
        stage = update_calls(state.call_stage, event, call_truths or {}, is_main)
        truths = {
            HAS_PENDING_CALLS: stage != "none",
            HAS_UNDECIDED_CALLS: stage == "undecided",
            **self._count_pending(open_effects),
        }
        if starts_turn:
            stage = "none"
        return Arrival(
            event=event,
            effect=effect,
            open_effects=open_effects,
            call_stage=stage,
            has_answer=(state.has_answer and not starts_turn) or event == "agent_rested",
            known_truths=truths,
            starts_turn=starts_turn,
            needs_row=needs_row,
        )

    def _count_pending(self, open_effects: frozenset[ExploredEffect]) -> dict[str, bool]:
        """What is certain about `X.pending` of each result that a guard asks for it."""
        truths: dict[str, bool] = {}
        for name in self._counted_results:
            rows = [self._vocabulary.find_effect(effect.name) for effect in open_effects]
            rows = [row for row in rows if row.result == name]
            if any(map(is_agent_list, rows)):
                truths[f"{name}.pending >= {len(rows)}"] = True
            else:
                truths[f"{name}.pending == {len(rows)}"] = True
        return truths


def _build_quiet_move(state: ExploredState, guard_truths: dict[str, bool]) -> Move:
    """What happens where no row takes an event: nothing."""
    same, nothing = state.configuration, frozenset[str]()
    return Move(
        configuration=same, asks=(), reset_states=nothing, guards=guard_truths, fired=(), is_taken=False
    )
