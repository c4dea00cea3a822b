"""Differential test: on random charts the machine's table agrees with python-statemachine."""

from __future__ import annotations

from typing import Any

import yaml
from effort import choose_count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_charts import EFFECT_NAMES, EVENTS, QUIET_EFFECTS, charts, worlds
from statemachine.io import load

from toolchart.states.chart.loading import make_chart
from toolchart.states.compiler import Move
from toolchart.states.errors import SpecError
from toolchart.states.machine import Machine, NoTransition

MAX_TRANSITIONS = 200


class NeverRested(BaseException):
    """The library's machine did not come to rest."""


class PlainModel:
    """A model for a machine loaded with the library's own `load`: facts are attributes."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.__dict__.update(world)
        self.operations: list[tuple[str, str]] = []
        """Effects with the states that asked for them, and states that were entered or left."""

    def list_lasting_effects(self) -> list[str]:
        """The effects that outlive the step: those whose state was not left after it asked for them."""
        return [
            effect
            for index, (effect, state) in enumerate(self.operations)
            if effect and (effect in QUIET_EFFECTS or ("", state) not in self.operations[index:])
        ]


def _build_effect_method(name: str) -> Any:
    def record_call(self: PlainModel, state: Any) -> None:
        self.operations.append((name, state.id))

    return record_call


for _name in EFFECT_NAMES:
    setattr(PlainModel, _name, _build_effect_method(_name))


class TransitionCounter:
    """Counts transitions, and records states that are left and entered."""

    def __init__(self, model: PlainModel) -> None:
        self.model = model
        self.transition_count = 0
        self.has_fired_on_event = False

    def before_transition(self, event: Any, source: Any, transition: Any) -> None:
        """Called by the library before every transition."""
        self.transition_count += 1
        self.has_fired_on_event |= event is not None and not event.internal
        if self.transition_count > MAX_TRANSITIONS:
            raise NeverRested

    def on_exit_state(self, state: Any) -> None:
        """Called by the library when a state is left."""
        self.model.operations.append(("", state.id))

    def on_enter_state(self, state: Any) -> None:
        """Called by the library when a state is entered."""
        self.model.operations.append(("", state.id))


class LibraryMachine:
    """One live machine of the library that receives every event."""

    def __init__(self, document: dict[str, Any], world: dict[str, Any]) -> None:
        # The library reads plain YAML here, by its own reader and its own evaluator.
        machine_class = load(yaml.safe_dump(document, sort_keys=False), format="yaml", name="PlainRandom")
        machine_class.catch_errors_as_events = False
        self.model = PlainModel(world)
        self.counter = TransitionCounter(self.model)
        self.machine = machine_class(model=self.model, listeners=[self.counter])

    def send(self, event: str, world: dict[str, Any]) -> None:
        """Send the event."""
        self.model.__dict__.update(world)
        self.model.operations.clear()
        self.counter.transition_count, self.counter.has_fired_on_event = 0, False
        self.machine.send(event)

    @property
    def states(self) -> set[str]:
        """The active states; the library's order depends on the way there."""
        return set(self.machine.configuration_values)


@settings(
    max_examples=choose_count(short=50, long=400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(
    document=charts(),
    first=worlds,
    script=st.lists(st.tuples(st.sampled_from(EVENTS), worlds), min_size=4, max_size=20),
)
def test_the_table_answers_as_the_library_does(
    document: dict[str, Any], first: dict[str, Any], script: list[tuple[str, dict[str, Any]]]
) -> None:
    """Random charts and events give equal configurations and equal effects on both sides.

    The library keeps one live machine throughout. The table starts from a saved configuration at every
    event, so anything that is missing from a configuration shows as a difference. An event that no row takes
    may still enable rows without an event; both sides then go on from there.
    """
    try:
        machine = Machine(make_chart(document))
        move = machine.start(first)
    except SpecError as error:
        if "never rests" not in str(error):
            raise
        return
    library_machine = LibraryMachine(document, first)
    _compare_move(move, library_machine)
    for event, world in script:
        try:
            answer = machine.try_event(move.configuration, event, world)
        except SpecError:
            assert _never_rests(library_machine, event, world)
            return
        if move.configuration.terminated:
            assert isinstance(answer, NoTransition)
            return  # the library ignores that it has terminated once an event was sent
        library_machine.send(event, world)
        if isinstance(answer, NoTransition):
            assert not library_machine.counter.transition_count
            continue
        assert answer.is_taken == library_machine.counter.has_fired_on_event
        _compare_move(answer, library_machine)
        assert machine.try_event(move.configuration, event, world) is answer
        move = answer


def _compare_move(move: Move, library_machine: LibraryMachine) -> None:
    assert set(move.configuration.states) == library_machine.states
    assert move.configuration.terminated == library_machine.machine.is_terminated
    assert list(move.effects) == library_machine.model.list_lasting_effects()


def _never_rests(library_machine: LibraryMachine, event: str, world: dict[str, Any]) -> bool:
    try:
        library_machine.send(event, world)
    except NeverRested:
        return True
    return False
