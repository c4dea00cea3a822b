"""Finds runs in which the order of a stranger reaches a tool of high risk, with the core itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from toolchart.states.core.step import begin
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Answering, Cancelled, Configured, Event, TurnStarted
from toolchart.states.machine import get_machine
from toolchart.states.proofs.dataflow.agents import FlowAgent
from toolchart.testing.answers.flow_answers import build_variables
from toolchart.testing.answers.guard_terms import collect_guard_terms
from toolchart.testing.answers.possible_answers import list_next_events, list_turn_starts
from toolchart.testing.counterexamples.gullible_world import ORDER, GullibleWorld
from toolchart.testing.counterexamples.sightings import Moment
from toolchart.testing.manual_turn import ManualTurn, make_timestamp
from toolchart.testing.paths import find_equivalence_key

MAX_TURNS = 3


class FlowRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ends with an order at a sink."""

    sink: str
    state: str
    world: GullibleWorld
    configured: Configured
    events: tuple[Event, ...]


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    turn: ManualTurn
    events: tuple[Event, ...] = ()
    turns: int = 0
    moment: Moment | None = None


class FlowSearch:
    """A breadth-first search through the conversations of an agent in a gullible world.

    Args:
        max_situations: for each handler.
    """

    def __init__(self, agent: FlowAgent, max_situations: int = 3_000) -> None:
        self._agent = agent
        self._machine = get_machine(agent.chart)
        self._terms = collect_guard_terms(self._machine)
        self._max_situations = max_situations

    def iterate_runs(self) -> Iterator[FlowRun]:
        """Every arrival of the order at a sink that the search sees."""
        for handler in self._agent.handlers:
            world = GullibleWorld(self._agent, handler)
            first_event = world.make_configured_event()
            for node in self._walk(world, first_event):
                for effect in node.moment.step.effects if node.moment is not None else ():
                    for sink in world.list_sinks(effect):
                        yield FlowRun(
                            sink=sink,
                            state=effect.state,
                            world=world,
                            configured=first_event,
                            events=node.events,
                        )

    def _walk(self, world: GullibleWorld, first_event: Configured) -> Iterator[_Node]:
        fresh = _Node(turn=ManualTurn(machine=self._machine, snapshot=begin(first_event)))
        queue, visited = deque([fresh]), set[Any]()
        while queue and len(visited) < self._max_situations:
            for after in self._expand(queue.popleft(), world):
                yield after
                key = self._find_key(after)
                if key not in visited:
                    visited.add(key)
                    queue.append(after)

    def _expand(self, node: _Node, world: GullibleWorld) -> Iterator[_Node]:
        snapshot = node.turn.snapshot
        if snapshot.has_ended and node.turns < MAX_TURNS:
            variables = build_variables(self._agent.chart.vocabulary)
            for start in list_turn_starts(self._terms, variables)[:2]:
                yield from self._apply(node, world.start_turn(start))
        effects = {effect.id: effect for effect in node.turn.open_effects}
        for event in list_next_events(node.turn, self._terms):
            if isinstance(event, TurnStarted):
                yield from self._apply(node, world.start_turn(event))
            elif not isinstance(event, Cancelled):
                effect = effects.get(event.effect) if isinstance(event, Answering) else None
                for answer in world.list_answers(event, effect):
                    yield from self._apply(node, answer)

    def _apply(self, node: _Node, event: Event) -> Iterator[_Node]:
        event = replace(event, at=make_timestamp(len(node.events) + 1))
        try:
            turn, step = node.turn.apply_event(event)
        except IllegalEvent:
            return
        yield _Node(
            turn=turn,
            events=(*node.events, event),
            turns=node.turns + isinstance(event, TurnStarted),
            moment=Moment(before=node.turn.snapshot, event=event, step=step),
        )

    def _find_key(self, node: _Node) -> Any:
        """Situations are alike where guards cannot tell them apart and the order lies in the same places."""
        snapshot = node.turn.snapshot
        marked_results = frozenset(
            (name, field)
            for name, result in snapshot.results.items()
            for field in ("value", "rejected", "error", "items")
            if ORDER in repr(getattr(result, field))
        )
        marked_effects = tuple(ORDER in repr(_read_work(effect)) for effect in node.turn.open_effects)
        calls = tuple((c.call.name, ORDER in repr(c.call.arguments)) for c in snapshot.calls)
        has_messages = any(ORDER in repr(message) for message in snapshot.messages)
        return (
            find_equivalence_key(node.turn, self._terms),
            (min(node.turns, MAX_TURNS), has_messages, ORDER in (snapshot.answer or "")),
            (marked_results, marked_effects, calls),
        )


def _read_work(effect: Any) -> Any:
    """What an open effect works on."""
    request = getattr(effect, "request", None)
    if request is not None:
        return [message.content for message in request.messages]
    return [getattr(effect, name, None) for name in ("arguments", "messages", "history", "calls")]
