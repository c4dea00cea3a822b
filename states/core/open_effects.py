"""The open effects of a step: new ones are built, those of states that were left are cancelled."""

from __future__ import annotations

from collections.abc import Iterable

from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.compiler import Ask
from toolchart.states.core.answers import describe_effect
from toolchart.states.core.calls import interrupt_requested_calls
from toolchart.states.core.requests import end_turn_by_core
from toolchart.states.effects import Effect, RunTools
from toolchart.states.flows.budgets import get_turn_limits
from toolchart.states.snapshot import SnapshotBuilder


def build_effects(
    vocabulary: Vocabulary, builder: SnapshotBuilder, asks: Iterable[Ask]
) -> tuple[tuple[Effect, ...], bool]:
    """The effects as values under new ids; those that an event answers are open from now on.

    Returns:
        The effects, and whether one of them ends the turn.
    """
    effects, ends_turn = [], False
    for ask in asks:
        row = vocabulary.find_effect(ask.effect)
        assert row.build is not None, "a row without it is refused"
        effect = row.build(builder, ask.effect, builder.next_effect, ask.state)
        builder.next_effect += 1
        if row.closing:
            builder.open_effects = (*builder.open_effects, effect)
        ends_turn = ends_turn or row.ends_turn
        effects.append(effect)
    return tuple(effects), ends_turn


def list_effects_on_calls(builder: SnapshotBuilder) -> list[int]:
    """Ids of the open effects that are answered call by call."""
    effects = builder.open_effects
    return [effect.id for effect in effects if describe_effect(effect).uses_calls]


def cancel_effects(builder: SnapshotBuilder, ids: list[int]) -> tuple[int, ...]:
    """Cancel open effects. Calls that may have begun are closed as `interrupted`."""
    if not ids:
        return ()
    cancelled_effects = [effect for effect in builder.open_effects if effect.id in ids]
    builder.open_effects = tuple([effect for effect in builder.open_effects if effect.id not in ids])
    for effect in cancelled_effects:
        if isinstance(effect, RunTools):
            interrupt_requested_calls(builder, effect)
    return tuple(ids)


def end_hopeless_turn(builder: SnapshotBuilder) -> tuple[int, ...]:
    """End a turn that no event can continue, or that has taken too many steps; the ids that this cancels."""
    configuration = builder.configuration
    assert configuration is not None, "a step of a turn has a configuration"
    if configuration.terminated:
        return ()
    if not builder.open_effects:
        end_turn_by_core(builder, "stuck", f"no event can arrive in state {configuration.label!r}")
    elif builder.steps >= get_turn_limits(builder).max_steps:
        cancels = cancel_effects(builder, [effect.id for effect in builder.open_effects])
        end_turn_by_core(builder, "too_many_steps", f"the turn took {builder.steps} steps")
        return cancels
    return ()
