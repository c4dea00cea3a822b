"""Tables by class are complete: a new class of effects or events has all its rows, or nothing loads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from toolchart.engine.log.record import _ASK_DETAILS, check_ask_details
from toolchart.engine.runtime.allowed_effects import list_undeclared_types
from toolchart.engine.runtime.performers import _PERFORMERS, check_performers
from toolchart.states.core.step import _CONVERSATION_STEPS, check_conversation_steps
from toolchart.states.effects import (
    EFFECT_CLASSES,
    AskApproval,
    AwaitUser,
    CallModel,
    Compact,
    CountTokens,
    Effect,
    ReviewCalls,
    RunTools,
    Wait,
)
from toolchart.states.errors import SpecError
from toolchart.states.vocabulary import describe_effect_class, get_events


class Sing(msgspec.Struct, tag="run_tools"):
    """A class of effects with a row that an event answers, and nothing else."""


class Hum(msgspec.Struct, tag="hum"):
    """A class of effects without a row."""


SING: Any = Sing
HUM: Any = Hum


def test_every_class_of_effects_is_known() -> None:
    """The classes of effects are listed, and each has a row in the table of effects."""
    own = [type_ for type_ in Effect.__subclasses__() if type_.__module__ == Effect.__module__]
    assert list(EFFECT_CLASSES) == own
    assert [describe_effect_class(type_).name for type_ in EFFECT_CLASSES]


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(lambda classes: check_performers(_PERFORMERS, classes), id="performers"),
        pytest.param(lambda classes: check_ask_details(_ASK_DETAILS, classes), id="ask details"),
    ],
)
def test_a_class_of_effects_without_its_row_is_refused(check: Any) -> None:
    """A class that a table lacks is an error that names the class and the table, and not one of a turn."""
    check(EFFECT_CLASSES)
    with pytest.raises(SpecError, match=r"_[A-Z_]+ in engine/\S+\.py: a row for Sing is missing"):
        check([*EFFECT_CLASSES, SING])


@pytest.mark.parametrize("list_types", [list_undeclared_types, lambda c: check_performers(_PERFORMERS, c)])
def test_a_class_of_effects_without_a_descriptor_is_refused(list_types: Any) -> None:
    """A class whose tag names no row of the table of effects is an error that names it."""
    with pytest.raises(SpecError, match="unknown effect 'hum'"):
        list_types([*EFFECT_CLASSES, HUM])


def test_a_performer_that_nothing_answers_is_refused() -> None:
    """A performer of an effect that is done when it is asked for would never run."""
    with pytest.raises(SpecError, match="Compact has a row and needs none"):
        check_performers([*_PERFORMERS, Compact])


def test_the_descriptors_say_what_needs_no_declaration() -> None:
    """What a chart names by itself is allowed without a declaration; what only flows declare is not."""
    expected = {CallModel, ReviewCalls, AskApproval, RunTools, CountTokens, Wait, AwaitUser}
    assert set(list_undeclared_types()) == expected


def test_an_event_of_the_whole_conversation_without_its_step_is_refused() -> None:
    """An event without a `reduce` has a step of its own, and an event with one has none."""
    rows = list(get_events().values())
    replied = get_events()["replied"]
    with pytest.raises(SpecError, match="a row for Replied is missing"):
        check_conversation_steps(_CONVERSATION_STEPS, [*rows, replace(replied, reduce=None)])
    with pytest.raises(SpecError, match="Replied has a row and needs none"):
        check_conversation_steps([*_CONVERSATION_STEPS, replied.type], rows)
