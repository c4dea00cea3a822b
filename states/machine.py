"""The machine: python-statemachine decides, a table remembers.

A chart is compiled by python-statemachine in its secure mode, and that library is the only authority
on what a step does. For a pure chart its answer depends on four things alone: the ordered
configuration, what history states remember, the event, and the truth of the guards that it asks.
None of them is hidden, so each answer is asked for once and remembered:

    (configuration, event) --> a tree: ask a guard --True--> ask another --...--> the answer
                                                  `-False--> the answer

A *hit* walks the tree over the facts and returns a ready answer. A *miss* starts the compiled
machine in that configuration, sends the event, and writes down which guards were asked, in the order
in which they were asked, which transitions fired, which effects were called and where it came to
rest. Guards of eventless, `done.state` and raised transitions inside the same step are asked too, so
the tree is keyed by what was asked and not by the guards of one row.

What is easy to get wrong, each with a regression test:

- the order of a configuration is semantic: two orders of one set can exit differently;
- a restored machine does not know that it had terminated, so that is part of the configuration;
- history lives beside the configuration and must be put back before the event is sent;
- left alone, the library counts a guard that raises as false and goes on with the next row;
- a chart that never rests spins inside `send`; a listener bounds the steps with an exception that
  the library does not catch.

Every live instance costs a millisecond and 25 kB, so conversations never own one: they hold a
configuration, which is a handful of words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from statemachine.exceptions import StateMachineError, TransitionNotAllowed
from statemachine.orderedset import OrderedSet

from toolchart.states.chart.loading import Chart
from toolchart.states.compiler import (
    MOST_MICROSTEPS,
    Facts,
    Guards,
    Probe,
    Spins,
    Taken,
    Trace,
    compile_chart,
    probe_class,
)
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.facts import FactView
from toolchart.states.snapshot import Configuration, Snapshot

START = "(start)"
"""The pseudo-event of a fresh machine that enters its initial state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What one event does to a chart: a ready answer."""

    configuration: Configuration
    effects: tuple[str, ...]
    """Names of the effects, in the order in which they were called."""
    guards: dict[str, bool]
    """Every guard that was asked, in order, with its truth: the reason for the move."""
    taken: tuple[Taken, ...]


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The remembered answer for an event that nothing takes."""

    guards: dict[str, bool]


@dataclass(slots=True)
class _Ask:
    """A node of the tree: ask this guard, then go on by its truth."""

    guard: int
    then: dict[bool, _Ask | Move | _Refusal]


class Machine:
    """A compiled chart with its table."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self._guards = Guards()
        self._class = compile_chart(chart, self._guards)
        self._by_id = {state.id: state for state in self._class.states_map.values()}
        self._order = {name: place for place, name in enumerate(self._by_id)}
        self._table: dict[tuple[Configuration | None, str], _Ask | Move | _Refusal] = {}
        self._check_instance()

    def start(self, facts: Facts) -> Move:
        """Enter the initial state."""
        move = self._look_up(None, START, facts)
        assert isinstance(move, Move)
        return move

    def advance(self, configuration: Configuration, event: str, facts: Facts) -> Move:
        """What `event` does in this configuration under these facts.

        Raises:
            IllegalEvent: no transition takes it.
        """
        move = self._look_up(configuration, event, facts)
        if type(move) is Move:
            return move
        raise IllegalEvent(
            event,
            configuration.label,
            refused=tuple(text for text, truth in move.guards.items() if not truth),
            legal=self.legal_events(configuration),
        )

    def legal_events(self, configuration: Configuration) -> tuple[str, ...]:
        """Events that some transition of the active states takes, guards aside."""
        if configuration.terminated:
            return ()
        events: dict[str, None] = {}
        for name in configuration.states:
            for transition in self._by_id[name].transitions:
                for event in str(transition.event or "").split():
                    events[event] = None
        return tuple(events)

    def outcomes(
        self,
        configuration: Configuration | None,
        event: str,
        possible: Callable[[Mapping[str, bool]], bool],
    ) -> Iterator[tuple[dict[str, bool], Move | SpecError | None]]:
        """Everything that an event can do here: the truths of the guards asked, and the move.

        Every guard is forced both ways, in the order in which the library asks; None means that nothing
        takes the event, an error that the chart never rests. What `possible` denies is left out.
        """
        if configuration is not None and configuration.terminated:
            return
        waiting: list[list[tuple[int, bool]]] = [[]]
        while waiting:
            forced = waiting.pop()
            probe = probe_class()(dict(forced).get)  # type: ignore[arg-type]
            answer = self._tried(configuration, event, probe)
            path = [(guard, bool(truth)) for guard, truth in probe.asked.items()]
            for place in range(len(forced), len(path)):
                flipped = [*path[:place], (path[place][0], not path[place][1])]
                if possible(self._told(flipped)):
                    waiting.append(flipped)
            if possible(self._told(path)):
                yield self._told(path), answer

    def _tried(
        self, configuration: Configuration | None, event: str, probe: Probe
    ) -> Move | SpecError | None:
        try:
            answer = self._run(configuration, event, probe)
        except SpecError as error:
            return error
        return answer if isinstance(answer, Move) else None

    def _told(self, path: list[tuple[int, bool]]) -> dict[str, bool]:
        return {self._guards.texts[guard]: truth for guard, truth in path}

    @property
    def table_size(self) -> int:
        """Answers remembered so far."""
        return sum(_leaves(node) for node in self._table.values())

    @property
    def guards(self) -> tuple[str, ...]:
        """Every guard over facts, in the order in which the chart names them."""
        return tuple(self._guards.texts)

    def restore(self, data: Mapping[str, Any]) -> Configuration:
        """A configuration from its plain form, checked against the chart.

        Raises:
            SpecError: it names states that the chart does not have.
        """
        unknown = [name for name in data["states"] if name not in self._by_id]
        if unknown:
            raise SpecError(f"the chart {self.chart.name!r} has no state {unknown[0]!r}")
        states = tuple(data["states"])
        history = tuple((name, tuple(ids)) for name, ids in data.get("history", ()))
        return Configuration(
            states=states,
            history=history,
            terminated=bool(data.get("terminated")),
            label=self._label(states),
        )

    # -- the table -------------------------------------------------------------------------------

    def _look_up(
        self, configuration: Configuration | None, event: str, facts: Facts
    ) -> Move | _Refusal:
        node = self._table.get((configuration, event))
        evaluate = self._guards.evaluate
        while type(node) is _Ask:
            node = node.then.get(evaluate[node.guard](facts))
        if node is None:
            return self._learn(configuration, event, facts)
        return node  # type: ignore[return-value]  # a while over _Ask leaves the other two

    def _learn(
        self, configuration: Configuration | None, event: str, facts: Facts
    ) -> Move | _Refusal:
        """Ask the library once, and remember the answer under the guards that it asked."""
        if configuration is not None and configuration.terminated:
            answer: Move | _Refusal = _Refusal({})
            asked: dict[int, bool] = {}
        else:
            probe = probe_class()(self._guards.judge(facts))
            answer, asked = self._run(configuration, event, probe), probe.asked
        self._remember((configuration, event), answer, list(asked.items()))
        return answer

    def _remember(
        self,
        key: tuple[Configuration | None, str],
        answer: Move | _Refusal,
        asked: list[tuple[int, bool]],
    ) -> None:
        if not asked:
            self._table[key] = answer
            return
        node = self._table.get(key)
        if not isinstance(node, _Ask):
            node = self._table[key] = _Ask(asked[0][0], {})
        for (_, truth), (guard, _) in pairwise(asked):
            below = node.then.setdefault(truth, _Ask(guard, {}))
            assert isinstance(below, _Ask), "the library asked other guards than last time"
            node = below
        node.then[asked[-1][1]] = answer

    # -- the library -----------------------------------------------------------------------------

    def _run(
        self, configuration: Configuration | None, event: str, probe: Probe
    ) -> Move | _Refusal:
        trace = Trace()
        if configuration is not None:
            probe.state = self._restored(configuration)
        try:
            machine = self._class(model=probe, listeners=[trace])
            if configuration is not None:
                trace.taken.clear()
                for name, ids in configuration.history:
                    machine.history_values[name] = [self._by_id[one] for one in ids]
                self._send(machine, event)
        except Spins:
            raise SpecError(
                f"the chart {self.chart.name!r} never rests after {event!r}: "
                f"more than {MOST_MICROSTEPS} transitions without a further event",
                file=self.chart.source,
                hint="an eventless or raised transition needs a guard that ends it",
            ) from None
        guards = {self._guards.texts[index]: truth for index, truth in probe.asked.items()}
        if configuration is not None and not trace.took_sent:
            return _Refusal(guards)
        return Move(
            configuration=self._rest(machine),
            effects=tuple(probe.effects),
            guards=guards,
            taken=tuple(trace.taken),
        )

    @staticmethod
    def _send(machine: Any, event: str) -> None:
        # `send` first reads the machine's attribute of that name, so a name that is none of ours
        # must not come this far; the chart's rules and the events' vocabulary see to that.
        try:
            machine.send(event)
        except TransitionNotAllowed:
            return

    def _restored(self, configuration: Configuration) -> Any:
        if len(configuration.states) == 1:
            return configuration.states[0]
        return OrderedSet(configuration.states)

    def _rest(self, machine: Any) -> Configuration:
        states = tuple(machine.configuration_values)
        return Configuration(
            states=states,
            history=tuple(
                sorted(
                    (name, tuple(state.id for state in kept))
                    for name, kept in machine.history_values.items()
                )
            ),
            terminated=bool(machine.is_terminated),
            label=self._label(states),
        )

    def _label(self, states: tuple[str, ...]) -> str:
        """Active leaves in document order."""
        parents = {state.parent.id for name in states if (state := self._by_id[name]).parent}
        leaves = [name for name in states if name not in parents]
        return "+".join(sorted(leaves, key=self._order.__getitem__))

    def _check_instance(self) -> None:
        """Names of callbacks are resolved only when a machine is made, so make one now."""
        try:
            self.start(FactView(Snapshot()))
        except StateMachineError as error:
            raise SpecError(
                f"the chart {self.chart.name!r} cannot be started: {error}", file=self.chart.source
            ) from None


_machines: dict[str, Machine] = {}


def machine_of(chart: Chart) -> Machine:
    """The machine of a chart, compiled once per process: the library never frees a class."""
    machine = _machines.get(chart.digest)
    if machine is None:
        machine = _machines[chart.digest] = Machine(chart)
    return machine


def _leaves(node: _Ask | Move | _Refusal) -> int:
    return sum(map(_leaves, node.then.values())) if isinstance(node, _Ask) else 1
