"""What the rows of facts and effects declare holds of every step: the proofs of `check` rest on it.

Random flows run in random worlds, without an engine. Each step is compared with the rows: which events
change a fact, how a counter moves, which events answer an effect and close it, what calls a model, waits or
ends a turn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from effort import choose_count
from flow_worlds import FlowWorld, Misbehaviour
from hypothesis import given, settings
from hypothesis import strategies as st
from random_flows import make_flow

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.core.fact_rows import FactView
from toolchart.states.core.step import Step
from toolchart.states.effects import AwaitUser, CallModel, Effect, EffectDescriptor, Wait
from toolchart.states.errors import SpecError
from toolchart.states.events import Answering, Event, Limits, TurnStarted
from toolchart.states.snapshot import Snapshot
from toolchart.states.vocabulary import Fact, get_facts

TYPES = {"integer": int, "boolean": bool, "text": str}


class RowWorld(FlowWorld):
    """A world in which each step must be as the rows say; `compared` counts what was looked at."""

    def __init__(self, chart: Chart, rng: random.Random, limits: Limits) -> None:
        super().__init__(chart, rng, limits)
        self.vocabulary = chart.vocabulary
        self.compared = 0

    def _apply(self, event: Event) -> Step:
        before = self._turn.snapshot
        result = super()._apply(event)
        problems = [*self._find_fact_problems(before, event, result)]
        problems += self._find_effect_problems(before, event, result)
        assert problems == [], f"{event.TYPE} in {result.source!r}"
        return result

    # -- facts -----------------------------------------------------------------------------------

    def _list_facts(self) -> Iterator[Fact]:
        yield from get_facts().values()
        yield from self.vocabulary.result_facts.values()

    def _find_fact_problems(self, before: Snapshot, event: Event, result: Step) -> Iterator[str]:
        old, new = FactView(before), FactView(result.snapshot)
        asked = [self.vocabulary.find_effect(effect.name) for effect in result.effects]
        for fact in self._list_facts():
            value = new[fact.name]
            self.compared += 1
            is_unset = "." in fact.name and type(value) is int and value == 0  # no result of the effect yet
            has_type = type(value) is TYPES[fact.type] and (not fact.words or value in fact.words)
            if not (has_type or is_unset):
                yield f"{fact.name} is {value!r}"
            if fact.type == "integer" and fact.minimum is not None and value < fact.minimum:
                yield f"{fact.name} is {value}, below its least value"
            if fact.maximum is not None and value > fact.maximum:
                yield f"{fact.name} is {value}, above its greatest value"
            if not isinstance(event, TurnStarted) and before.configuration is not None:
                name = self._name_event(before, event)
                yield from _find_change_problems(fact, old[fact.name], value, name, asked, result)

    @staticmethod
    def _name_event(before: Snapshot, event: Event) -> str:
        """The event as rows name it: that of an effect with a result has the effect's name."""
        effect = _find_answered(before, event)
        return f"{event.TYPE}.{effect.name}" if effect is not None and effect.result else event.TYPE

    # -- effects ---------------------------------------------------------------------------------

    def _find_effect_problems(self, before: Snapshot, event: Event, result: Step) -> Iterator[str]:
        after = {effect.id: effect for effect in result.snapshot.open_effects}
        old_ids = {effect.id for effect in before.open_effects}
        answered = None if result.is_late else _find_answered(before, event)
        if answered is not None:
            row = self.vocabulary.find_effect(answered.name)
            is_open = answered.id in after and answered.id not in result.cancels
            if event.TYPE not in row.answers:
                yield f"{event.TYPE} answers {answered.name}, whose row does not say so"
            if is_open and event.TYPE not in row.progress:
                yield f"{answered.name} is open after {event.TYPE}, which closes it"
            if not is_open and answered.id not in result.cancels and event.TYPE not in row.closing:
                yield f"{answered.name} is closed by {event.TYPE}, which does not close it"
        for effect in result.effects:
            row = self.vocabulary.find_effect(effect.name)
            self.compared += 1
            yield from _find_kind_problems(effect, row)
            if not row.closing and effect.id in after:
                yield f"{effect.name} is open, and nothing answers it"
            if row.closing and effect.id not in after and effect.id not in result.cancels:
                yield f"{effect.name} is not open after the step that asks for it"
            if row.ends_turn and not result.snapshot.is_over:
                yield f"{effect.name} gives the answer, and the turn goes on"
        for effect_id in result.cancels:
            if effect_id not in old_ids and effect_id not in [effect.id for effect in result.effects]:
                yield f"effect {effect_id} is cancelled and was not open"


def _find_change_problems(
    fact: Fact, before: Any, now: Any, event: str, asked: list[EffectDescriptor], result: Step
) -> Iterator[str]:
    """How a fact changed within a turn, where its row says otherwise."""
    name = f"{fact.name}: {before!r} to {now!r} by {event}"
    changes = any(fact.changed_by_effect and fact.changed_by_effect(row) for row in asked)
    clears = any(fact.cleared_by_effect and fact.cleared_by_effect(row) for row in asked)
    sets = any(effect.name in fact.set_by for effect in result.effects)
    if fact.limit:  # it grows by one, and is set back to zero
        if now != before and event not in (*fact.moved_by, *fact.reset_by):
            yield f"{name}, which does not move it"
        if event in fact.moved_by and event not in fact.reset_by and now - before not in (0, 1):
            yield f"{name}, which moves it by one"
        if event in fact.reset_by and now not in (0, before) and event not in fact.moved_by:
            yield f"{name}, which sets it back"
    elif (
        fact.moved_by or fact.reset_by
    ) and "." not in fact.name:  # it falls by one, and is set back to any number
        if now > before and event not in fact.reset_by:
            yield f"{name}, which does not set it back"
        if event in fact.moved_by and event not in fact.reset_by and now - before not in (0, -1):
            yield f"{name}, which moves it by one"
    elif fact.changed_by is not None and now != before:
        by_event = event in fact.changed_by or f"{event.partition('.')[0]}.*" in fact.changed_by
        is_cleared = clears and not now
        if not (by_event or changes or is_cleared or sets):
            yield f"{name}, which does not change it"
    if fact.changed_by is not None and clears and not changes and now:
        yield f"{name}, and an effect clears it"
    if fact.set_by and sets and not now:
        yield f"{name}, and an effect sets it"
    if (fact.is_latched or fact.set_by) and before and not now:
        yield f"{name}, and it stays true"
    if result.is_late and fact.changed_by is not None and now != before:
        yield f"{name}, which is late"


def _find_answered(before: Snapshot, event: Event) -> Effect | None:
    """The open effect that an event answers; None for any other event."""
    if not isinstance(event, Answering):
        return None
    return next((effect for effect in before.open_effects if effect.id == event.effect), None)


def _find_kind_problems(effect: Effect, row: EffectDescriptor) -> Iterator[str]:
    """What an effect is, where its row says otherwise."""
    declared = {"calls_model": CallModel, "is_timer": Wait, "waits_for_user": AwaitUser}
    for flag, kind in declared.items():
        if getattr(row, flag) != isinstance(effect, kind):
            yield f"{effect.name} is a {type(effect).__name__}, and {flag} is {getattr(row, flag)}"
    if row.result != effect.result:
        yield f"{effect.name} keeps {effect.result!r}, and its row says {row.result!r}"


def run_world(chart: Chart, rng: random.Random) -> int:
    """Run turns in a world; how many values were compared."""
    limits = Limits(max_iterations=rng.choice([1, 3]), max_attempts=rng.choice([1, 2]), max_tool_calls=4)
    world = RowWorld(chart, rng, limits)
    with suppress(Misbehaviour):  # a flow that `check` would refuse: its steps count all the same
        world.run_turns(rng.randint(1, 6))
    return world.compared


@settings(max_examples=choose_count(short=25, long=3000), deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_rows_hold_in_random_flows(flow: int, world: int) -> None:
    """In random flows and worlds, late answers included, every step does what the rows say."""
    try:
        chart = make_chart(make_flow(flow))
    except SpecError:
        return
    run_world(chart, random.Random(world))


@pytest.mark.parametrize("name", list_shipped_charts())
def test_rows_hold_in_the_charts_that_ship(name: str) -> None:
    """The same for each chart that ships, in sixty worlds."""
    compared = sum(run_world(load_chart(name), random.Random(seed)) for seed in range(60))
    assert compared > 5_000
