"""Differential test: on random charts the machine's table agrees with python-statemachine."""

from __future__ import annotations

from typing import Any

import yaml
from effort import choose_count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_charts import EFFECT_NAMES, EVENTS, charts, worlds
from statemachine.io import load

from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.machine import Machine

MAX_TRANSITIONS = 200


class NeverRested(BaseException):
    """The library's machine did not come to rest."""


class PlainModel:
    """A model for a machine loaded with the library's own `load`: facts are attributes."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.__dict__.update(world)
        self.effect_calls: list[str] = []


def _build_effect_method(name: str) -> Any:
    def record_call(self: PlainModel) -> None:
        self.effect_calls.append(name)

    return record_call


for _name in EFFECT_NAMES:
    setattr(PlainModel, _name, _build_effect_method(_name))


class TransitionCounter:
    """Counts transitions, and records whether one fired on the event that was sent."""

    def __init__(self) -> None:
        self.transition_count = 0
        self.has_fired_on_event = False

    def before_transition(self, event: Any, source: Any, transition: Any) -> None:
        """Called by the library before every transition."""
        self.transition_count += 1
        self.has_fired_on_event |= event is not None and not event.internal
        if self.transition_count > MAX_TRANSITIONS:
            raise NeverRested


class LibraryMachine:
    """One live machine of the library that receives every event."""

    def __init__(self, document: dict[str, Any], world: dict[str, Any]) -> None:
        # The library reads plain YAML here, by its own reader and its own evaluator.
        machine_class = load(yaml.safe_dump(document, sort_keys=False), format="yaml", name="PlainRandom")
        machine_class.catch_errors_as_events = False
        self.model = PlainModel(world)
        self.counter = TransitionCounter()
        self.machine = machine_class(model=self.model, listeners=[self.counter])

    def send(self, event: str, world: dict[str, Any]) -> bool:
        """Send the event; true if a transition fired on it."""
        self.model.__dict__.update(world)
        self.model.effect_calls.clear()
        self.counter.transition_count, self.counter.has_fired_on_event = 0, False
        self.machine.send(event)
        return self.counter.has_fired_on_event

    @property
    def states(self) -> tuple[str, ...]:
        """The configuration in the library's own order."""
        return tuple(self.machine.configuration_values)


@settings(
    max_examples=choose_count(short=200, long=400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    document=charts(),
    first=worlds,
    script=st.lists(st.tuples(st.sampled_from(EVENTS), worlds), min_size=4, max_size=20),
)
def test_the_table_answers_as_the_library_does(
    document: dict[str, Any], first: dict[str, Any], script: list[tuple[str, dict[str, Any]]]
) -> None:
    """Random charts and events give equal ordered configurations and equal effects on both sides.

    The library keeps one live machine throughout. The table starts from a saved configuration at every
    event, so anything that is missing from a configuration shows as a difference.
    """
    try:
        machine = Machine(make_chart(document))
        move = machine.start(first)
    except SpecError as error:
        if "never rests" not in str(error):
            raise
        return
    library_machine = LibraryMachine(document, first)
    assert (move.configuration.states, list(move.effects)) == (
        library_machine.states,
        library_machine.model.effect_calls,
    )
    for event, world in script:
        try:
            next_move = machine.advance(move.configuration, event, world)
        except IllegalEvent:
            assert not _send_event(library_machine, event, world)
            return  # the library may have fired eventless rows, so the two differ from here on
        except SpecError:
            assert _never_rests(library_machine, event, world)
            return
        assert library_machine.send(event, world)
        assert next_move.configuration.states == library_machine.states
        assert next_move.configuration.terminated == library_machine.machine.is_terminated
        assert list(next_move.effects) == library_machine.model.effect_calls
        assert machine.advance(move.configuration, event, world) is next_move
        move = next_move


def _send_event(library_machine: LibraryMachine, event: str, world: dict[str, Any]) -> bool:
    return library_machine.send(event, world)


def _never_rests(library_machine: LibraryMachine, event: str, world: dict[str, Any]) -> bool:
    try:
        library_machine.send(event, world)
    except NeverRested:
        return True
    return False
