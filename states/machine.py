"""The machine of a chart: which transition an event fires, and in which order they are tried.

In: a configuration, the name of an event and the facts of the new context (`try_event`). Out: the `Move`, or
that no row takes the event. Next: `core/requests.py`, part 3, makes effects of the names that the move has.

python-statemachine is the authority. It compiles the chart (in its secure mode) and it alone decides
what a step does. Nothing in this module re-implements the rules of statecharts.

It is slow to ask: a live instance costs a millisecond and 25 kB. But for a pure chart its answer
depends on only four things:

    1. the configuration: the active states, in order
    2. what the history states remember
    3. the event
    4. the truth of the guards that the library evaluates on the way

All four are visible from outside. So each question is put to the library once, and the answer is kept
in a table. The key is (configuration with history, event). The value is a decision tree over guards:

    (configuration, event) --> evaluate guard A --True--> evaluate guard B --True--> Move
                                                |                          `-False-> Move
                                                `-False-> no transition

A *hit* walks the tree: it evaluates the guard at each node under the present facts and ends at a
ready-made `Move`. A *miss* puts an idle instance into that configuration, sends the event, records the
guards in the order in which the library evaluated them, and adds that path to the tree.

Why a tree over the guards that were evaluated, and not over the guards of the matching rows? One event
can cause several microsteps (eventless transitions, `done.state` events, raised events), and each may
evaluate more guards. Only the library knows which.

Six properties of the library are easy to get wrong. Each has a regression test:

- The order of a configuration matters, and the library's own order has ties that depend on the way there. So
  a configuration is sorted by its states' positions in the chart before it is restored and after it rests.
  (Two orders of the same states differ only where transitions of parallel regions conflict. Such charts are
  refused when they are loaded.)
- A restored instance does not know that it had terminated, so `terminated` is part of the configuration.
- History lives beside the configuration and must be restored before the event is sent.
- By default, a guard that raises counts as false and the next row is tried.
- A chart that never rests loops inside `send`. Only a `BaseException` from a listener gets out.
- Transitions without an event fire before the event that was sent is looked at, also where nothing takes it.

A conversation never owns an instance. It holds a `Configuration`, which is a few strings.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from toolchart.states.chart.document import Chart
from toolchart.states.compiler import (
    MAX_MICROSTEPS,
    EndlessTransitions,
    Facts,
    GuardProbe,
    GuardTable,
    Move,
    Operation,
    TransitionTrace,
    build_probe_class,
    get_guard_truths,
    list_effect_names,
    summarise_operations,
)
from toolchart.states.core.fact_rows import FactView
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.snapshot import Configuration, Snapshot

START = "(start)"
"""The pseudo-event that enters the initial state."""


MAX_ANSWERS = 20_000
"""Answers that a machine stores. A chart with regions and history can have any number of configurations."""


class NoTransition(msgspec.Struct, frozen=True):
    """The stored answer for an event that fires no transition."""

    guards: dict[str, bool]


@dataclass(slots=True)
class _GuardNode:
    """An inner node of a decision tree: evaluate this guard, then follow the branch of its truth."""

    guard: int
    branches: dict[bool, _GuardNode | Move | NoTransition]


_Answer = Move | NoTransition
_TableKey = tuple[Configuration | None, str]
"""Configuration (None: not started yet) and event."""


class Machine:
    """A compiled chart and its table of answers."""

    def __init__(self, chart: Chart) -> None:
        from toolchart.states.library_hooks import compile_chart

        self.chart = chart
        self.vocabulary = chart.vocabulary
        self.reducers = chart.vocabulary.reducers
        """How the values of results over several rounds become one, by their names."""
        self._guards = GuardTable()
        self._class = compile_chart(chart, self._guards)
        self._states_by_id = {state.id: state for state in self._class.states_map.values()}
        self._document_order = {name: index for index, name in enumerate(self._states_by_id)}
        # One probe class per chart: a name that one chart uses must not shadow anything in another.
        names = list_effect_names(chart)
        self._probe_class = build_probe_class(names)
        self.effect_rows = {name: self.vocabulary.find_effect(name) for name in names}
        """The rows of the effects that the chart names."""
        self._table: dict[_TableKey, _GuardNode | _Answer] = {}
        self._answer_count = 0
        self._idle_instances: list[tuple[Any, TransitionTrace]] = []
        self._check_instance()

    # -- questions -------------------------------------------------------------------------------

    def start(self, facts: Facts) -> Move:
        """Enter the initial state."""
        move = self.try_event(None, START, facts)
        assert isinstance(move, Move)
        return move

    def advance(self, configuration: Configuration, event: str, facts: Facts) -> Move:
        """What `event` does in this configuration under these facts.

        Raises:
            IllegalEvent: no transition handles it, and none without an event fires.
        """
        answer = self.try_event(configuration, event, facts)
        if type(answer) is Move:
            return answer
        raise IllegalEvent(
            event,
            configuration.label,
            false_conditions=tuple(text for text, truth in answer.guards.items() if not truth),
            legal=self.legal_events(configuration),
        )

    def try_event(self, configuration: Configuration | None, event: str, facts: Facts) -> Move | NoTransition:
        """What `event` does in this configuration under these facts, if it does anything."""
        # Open effects are no part of the key: only what the library can see decides its answer. The event is
        # the dotted one (`replied.judge`), since a row may name the effect that it answers.
        node = self._table.get((configuration, event))
        evaluators = self._guards.evaluators
        while type(node) is _GuardNode:
            node = node.branches.get(evaluators[node.guard](facts))
        if node is None:
            return self._learn_answer(configuration, event, facts)
        return node  # type: ignore[return-value]  # the loop leaves only an answer

    def legal_events(self, configuration: Configuration) -> tuple[str, ...]:
        """Events for which an active state has a transition, whatever its guard says."""
        if configuration.terminated:
            return ()
        events: dict[str, None] = {}
        for name in configuration.states:
            for transition in self._states_by_id[name].transitions:
                for event in str(transition.event or "").split():
                    events[event] = None
        return tuple(events)

    def enumerate_outcomes(
        self,
        configuration: Configuration | None,
        event: str,
        is_possible: Callable[[Mapping[str, bool]], bool],
    ) -> Iterator[tuple[dict[str, bool], Move | SpecError | None]]:
        """Everything that an event can do here, for every combination of guard truths.

        Each guard is forced both ways, in the order in which the library evaluates them.
        Combinations for which `is_possible` is false are left out.

        Yields:
            The truths of the guards, and the move: None where no transition fires, a `SpecError`
            where the chart never rests.
        """
        if configuration is not None and configuration.terminated:
            return
        # Depth-first: run once with a forced prefix of truths, then flip each guard after the prefix.
        prefixes: list[list[tuple[int, bool]]] = [[]]
        while prefixes:
            prefix = prefixes.pop()
            operations: list[Operation] = []
            probe = self._probe_class(dict(prefix).get, operations)  # type: ignore[arg-type]
            outcome = self._try_step(configuration, event, probe, operations)
            path = [(guard, bool(truth)) for guard, truth in get_guard_truths(probe).items()]
            for index in range(len(prefix), len(path)):
                guard, truth = path[index]
                flipped_path = [*path[:index], (guard, not truth)]
                if is_possible(self._name_guards(flipped_path)):
                    prefixes.append(flipped_path)
            if is_possible(self._name_guards(path)):
                yield self._name_guards(path), outcome

    def _try_step(
        self, configuration: Configuration | None, event: str, probe: GuardProbe, operations: list[Operation]
    ) -> Move | SpecError | None:
        try:
            answer = self._run_library(configuration, event, probe, operations)
        except SpecError as error:
            return error
        return answer if isinstance(answer, Move) else None

    def _name_guards(self, path: list[tuple[int, bool]]) -> dict[str, bool]:
        return {self._guards.texts[guard]: truth for guard, truth in path}

    @property
    def table_size(self) -> int:
        """Answers stored so far."""
        return sum(_count_answers(node) for node in self._table.values())

    @property
    def guards(self) -> tuple[str, ...]:
        """Every guard over facts, in the order in which the chart names them."""
        return tuple(self._guards.texts)

    def restore_configuration(self, data: Mapping[str, Any]) -> Configuration:
        """A configuration from its plain form, checked against the chart.

        Raises:
            SpecError: it names states that the chart does not have.
        """
        unknown_states = [name for name in data["states"] if name not in self._states_by_id]
        if unknown_states:
            raise SpecError(f"the chart {self.chart.name!r} has no state {unknown_states[0]!r}")
        states = self._sort_states(data["states"])
        history = tuple((name, tuple(ids)) for name, ids in data.get("history", ()))
        return Configuration(
            states=states,
            history=history,
            terminated=bool(data.get("terminated")),
            label=self._format_label(states),
        )

    # -- the table -------------------------------------------------------------------------------

    def _learn_answer(self, configuration: Configuration | None, event: str, facts: Facts) -> _Answer:
        """Ask the library once, and store the answer under the guards that it evaluated."""
        if configuration is not None and configuration.terminated:
            # A restored instance would not know that it had terminated, so the library is not asked.
            answer: _Answer = NoTransition({})
            guard_truths: dict[int, bool] = {}
        else:
            operations: list[Operation] = []
            probe = self._probe_class(self._guards.bind_facts(facts), operations)
            answer = self._run_library(configuration, event, probe, operations)
            guard_truths = get_guard_truths(probe)
        self._store_answer((configuration, event), answer, list(guard_truths.items()))
        return answer

    def _store_answer(self, key: _TableKey, answer: _Answer, guard_truths: list[tuple[int, bool]]) -> None:
        # A path and not a vector of the guards of one row: guards of transitions without an event, of
        # `done.state` and of raised events that this step reached count too, in the order of asking.
        if self._answer_count >= MAX_ANSWERS:  # no answer ever changes: those in use are learned again
            self._table.clear()
            self._answer_count = 0
        self._answer_count += 1
        if not guard_truths:
            self._table[key] = answer
            return
        node = self._table.get(key)
        if not isinstance(node, _GuardNode):
            node = self._table[key] = _GuardNode(guard_truths[0][0], {})
        for (_, truth), (guard, _) in pairwise(guard_truths):
            child = node.branches.setdefault(truth, _GuardNode(guard, {}))
            # The library is deterministic: the same truths lead to the same next guard.
            assert isinstance(child, _GuardNode), "the library evaluated other guards than last time"
            node = child
        node.branches[guard_truths[-1][1]] = answer

    # -- the library -----------------------------------------------------------------------------

    def _run_library(
        self, configuration: Configuration | None, event: str, probe: GuardProbe, operations: list[Operation]
    ) -> _Answer:
        """One step of an instance; the probe and a trace record what happens."""
        try:
            if configuration is None:
                trace = TransitionTrace(operations)
                instance = self._class(model=probe, listeners=[trace])
            else:
                instance, trace = self._restore_instance(configuration, probe, operations)
                self._send_event(instance, event)
        except EndlessTransitions:
            raise SpecError(
                f"the chart {self.chart.name!r} never rests after {event!r}: "
                f"more than {MAX_MICROSTEPS} transitions without a further event",
                file=self.chart.source,
                hint="an eventless or raised transition needs a guard that ends it",
            ) from None
        guards = self._name_guards(list(get_guard_truths(probe).items()))
        answer: _Answer = NoTransition(guards)
        if configuration is None or trace.fired:
            asks, reset_states = summarise_operations(operations, self.vocabulary)
            answer = Move(
                configuration=self._read_configuration(instance),
                asks=asks,
                reset_states=reset_states,
                guards=guards,
                fired=tuple(trace.fired),
                is_taken=configuration is None or trace.has_fired_on_event,
            )
        if configuration is not None:
            instance.model._evaluate = bool  # what it evaluated may hold a whole conversation
            self._idle_instances.append((instance, trace))
        return answer

    def _restore_instance(
        self, configuration: Configuration, probe: GuardProbe, operations: list[Operation]
    ) -> tuple[Any, TransitionTrace]:
        """An instance in this configuration that asks this probe, and its trace.

        Making an instance binds the callbacks of every state, which takes a twentieth of a second for 200
        states. So one that has finished its step is used again, by one thread at a time. It gets a new
        engine, which holds what a step leaves behind: queues, and whether the machine has terminated.
        """
        probe.state = self._convert_states(configuration)
        try:
            instance, trace = self._idle_instances.pop()
        except IndexError:
            trace = TransitionTrace(operations)
            stand_in = self._probe_class(bool, [])
            stand_in.state = probe.state  # an instance without a state would enter the initial one
            instance = self._class(model=stand_in, listeners=[trace])
        trace.restart(operations)
        vars(instance.model).update(vars(probe))
        instance._engine = instance._get_engine()
        # History lives beside the configuration. The library reads it while it handles the event, so it is
        # restored after the instance is made and before `send`.
        instance.history_values.clear()
        for name, ids in configuration.history:
            instance.history_values[name] = [self._states_by_id[id_] for id_ in ids]
        return instance, trace

    @staticmethod
    def _send_event(instance: Any, event: str) -> None:
        # `send` first looks for an attribute of the instance with the event's name. So an unknown
        # name must not come this far: the rules for charts and the closed union of events prevent it.
        from statemachine.exceptions import TransitionNotAllowed

        try:
            instance.send(event)
        except TransitionNotAllowed:
            return

    def _sort_states(self, states: Iterable[str]) -> tuple[str, ...]:
        # By our own index: the library's order has ties (the second region equals the first region's first
        # child), so the same states would be several configurations: 452 in place of 64 for three regions of
        # four states. The index is that of the document, so it means the same in every process.
        return tuple(sorted(states, key=self._document_order.__getitem__))

    def _convert_states(self, configuration: Configuration) -> Any:
        """The active states in the form that the library keeps in its model."""
        # One state as itself, several as an ordered set of all of them, ancestors included. With leaves alone
        # the library takes a wrong configuration without a word; it refuses a list.
        if len(configuration.states) == 1:
            return configuration.states[0]
        from statemachine.orderedset import OrderedSet

        return OrderedSet(configuration.states)

    def _read_configuration(self, instance: Any) -> Configuration:
        states = self._sort_states(instance.configuration_values)
        return Configuration(
            states=states,
            history=tuple(
                sorted(
                    (name, tuple(state.id for state in remembered_states))
                    for name, remembered_states in instance.history_values.items()
                )
            ),
            terminated=bool(instance.is_terminated),  # the engine knows it, and no restored instance does
            label=self._format_label(states),
        )

    def _format_label(self, states: tuple[str, ...]) -> str:
        """The active leaves in document order, joined by `+`."""
        parents = {state.parent.id for name in states if (state := self._states_by_id[name]).parent}
        leaves = [name for name in states if name not in parents]
        return "+".join(sorted(leaves, key=self._document_order.__getitem__))

    def _check_instance(self) -> None:
        """The library resolves names of callbacks only when an instance is made, so make one now."""
        from statemachine.exceptions import StateMachineError

        try:
            self.start(FactView(Snapshot()))
        except StateMachineError as error:
            raise SpecError(
                f"the chart {self.chart.name!r} cannot be started: {error}", file=self.chart.source
            ) from None


MAX_MACHINES = 128
"""Machines that are kept though nobody uses them. One has about 100 kB and takes milliseconds to make."""

_machines: WeakValueDictionary[str, Machine] = WeakValueDictionary()
"""All that are kept or used, by the digests of their charts and the effects as these are written."""

_kept_machines: OrderedDict[str, Machine] = OrderedDict()
"""The one that was asked for last is the last."""

_machines_lock = Lock()


def get_machine(chart: Chart) -> Machine:
    """The machine of a chart; equal charts have the same one as long as it is kept or used.

    The newest `MAX_MACHINES` are kept. A server that accepts charts may see any number of them.
    """
    # The digest takes effects in any order for the same; what a turn records of them has an order. So a chart
    # that was read from a log must not lend its own order to the one of a spec.
    key = f"{chart.digest} {chart.effects!r}" if chart.effects else chart.digest
    with _machines_lock:
        machine = _machines.get(key)
    if machine is None:
        machine = Machine(chart)
    with _machines_lock:
        machine = _machines.setdefault(key, machine)
        _kept_machines[key] = machine
        _kept_machines.move_to_end(key)
        while len(_kept_machines) > MAX_MACHINES:
            _kept_machines.popitem(last=False)
    return machine


def _count_answers(node: _GuardNode | _Answer) -> int:
    return sum(map(_count_answers, node.branches.values())) if isinstance(node, _GuardNode) else 1
