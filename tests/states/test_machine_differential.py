"""The table against the library itself, on random charts: the one property everything rests on."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_charts import EFFECT_NAMES, EVENTS, charts, worlds
from statemachine.io import load

from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.machine import Machine

MOST = 200


class Spun(BaseException):
    """The plain machine did not come to rest."""


class PlainModel:
    """A model for a machine loaded with the library's own `load`: facts are attributes."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.__dict__.update(world)
        self.called: list[str] = []


def _effect(name: str) -> Any:
    def call(self: PlainModel) -> None:
        self.called.append(name)

    return call


for _name in EFFECT_NAMES:
    setattr(PlainModel, _name, _effect(_name))


class Watch:
    """Counts transitions of the plain machine and notes whether it took the sent event."""

    def __init__(self) -> None:
        self.count = 0
        self.took = False

    def before_transition(self, event: Any, source: Any, transition: Any) -> None:
        """Called by the library before every transition."""
        self.count += 1
        self.took |= event is not None and not event.internal
        if self.count > MOST:
            raise Spun


class Plain:
    """One live machine of the library, started once and fed every event."""

    def __init__(self, document: dict[str, Any], world: dict[str, Any]) -> None:
        # The library reads plain YAML here, by its own reader and its own evaluator.
        made = load(yaml.safe_dump(document, sort_keys=False), format="yaml", name="PlainRandom")
        made.catch_errors_as_events = False
        self.model = PlainModel(world)
        self.watch = Watch()
        self.machine = made(model=self.model, listeners=[self.watch])

    def send(self, event: str, world: dict[str, Any]) -> bool:
        """Whether the event was taken."""
        self.model.__dict__.update(world)
        self.model.called.clear()
        self.watch.count, self.watch.took = 0, False
        self.machine.send(event)
        return self.watch.took

    @property
    def states(self) -> tuple[str, ...]:
        """The configuration in the library's own order."""
        return tuple(self.machine.configuration_values)


@settings(
    max_examples=400,
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

    The library keeps one live machine from beginning to end; the table starts from a saved
    configuration at every event. Whatever the table forgot to save would show as a difference.
    """
    try:
        machine = Machine(make_chart(document))
        move = machine.start(first)
    except SpecError as error:
        if "never rests" not in str(error):
            raise
        return
    plain = Plain(document, first)
    assert (move.configuration.states, list(move.effects)) == (plain.states, plain.model.called)
    for event, world in script:
        try:
            moved = machine.advance(move.configuration, event, world)
        except IllegalEvent:
            assert not _sent(plain, event, world)
            return  # the library may have taken eventless rows on the way: the two part here
        except SpecError:
            assert _spins(plain, event, world)
            return
        assert plain.send(event, world)
        assert moved.configuration.states == plain.states
        assert moved.configuration.terminated == plain.machine.is_terminated
        assert list(moved.effects) == plain.model.called
        assert machine.advance(move.configuration, event, world) is moved
        move = moved


def _sent(plain: Plain, event: str, world: dict[str, Any]) -> bool:
    return plain.send(event, world)


def _spins(plain: Plain, event: str, world: dict[str, Any]) -> bool:
    try:
        plain.send(event, world)
    except Spun:
        return True
    return False
