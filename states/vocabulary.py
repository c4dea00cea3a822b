"""The vocabulary of charts: what a fact is, and the tables of effects, events and facts.

Facts are the plain values that guards can read. A guard such as `iteration >= max_iterations` can name facts
and nothing else. An unknown name is an error when the chart is loaded. Every fact is a number, a boolean or
one word of a finite list, and never None, so no comparison can fail in the middle of a conversation.

The rows stand beside the functions that they name: those that build effects in `core/requests.py` and
`core/kinds.py`, those that reduce events in `core/reduce.py`, those that read facts in `core/fact_rows.py`.
The tables load them by reference when they are first used. So what reads a table (charts, the machine,
`check`) stands below what fills it, and imports nothing of it. The core, the rules for charts and `check`
read these rows and keep no list of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

from toolchart.states.descriptors import Descriptor, build_table, find_row, find_text_gaps, load_reference
from toolchart.states.effects import Effect, EffectDescriptor
from toolchart.states.events import EventDescriptor
from toolchart.states.snapshot import SnapshotFields

# -- facts -----------------------------------------------------------------------------------------

FactType = Literal["integer", "boolean", "text"]
TestEffect = Callable[[EffectDescriptor], bool]


class Fact(Descriptor, frozen=True, kw_only=True):
    """Describes one fact: its name, type and meaning, and what changes it."""

    type: FactType = "boolean"
    """What a guard may do with it."""
    meaning: str = ""
    """What it says, without a full stop."""
    changes: str = ""
    """When its value changes."""
    read: Callable[[SnapshotFields], Any] | None = None
    """Returns its value."""
    words: tuple[str, ...] = ()
    """The possible values of a text fact."""
    moved_by: tuple[str, ...] = ()
    """Events that move a counter by one: up to its limit, or down to zero if it has none."""
    reset_by: tuple[str, ...] = ()
    """Events that set a counter back."""
    changed_by: tuple[str, ...] | None = None
    """For a fact that is no counter and no result: every event that may change it within a turn; None: any.
    An event that answers an effect with a result of its own is not meant, unless the name ends with `.*`."""
    changed_by_effect: TestEffect | None = None
    """Whether asking for an effect may change a fact that has `changed_by`."""
    cleared_by_effect: TestEffect | None = None
    """Whether asking for an effect makes a fact that has `changed_by` zero or false."""
    set_by: tuple[str, ...] = ()
    """Effects after which a flag is true for the rest of the turn."""
    is_latched: bool = False
    """For a flag with `changed_by`: whether it stays true for the rest of the turn once it is."""
    limit: str | None = None
    """The fact of Toolchart that limits a growing counter."""
    reads_limits: tuple[str, ...] = ()
    """The `limits` of a turn that its value depends on."""
    minimum: int | None = 0
    """The least value of an integer fact; None if it has none. What is possible below it is not proved."""
    maximum: int | None = None
    """The greatest value of an integer fact; None if it has none."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each; empty if it is complete."""
        gaps = [*super().find_gaps(), *find_text_gaps(meaning=self.meaning, changes=self.changes)]
        if self.read is None:
            gaps.append("`read` is missing: the function that returns its value")
        if self.type == "text" and not self.words:
            gaps.append("`words` is missing: every value that a text fact can have")
        if self.type != "text" and self.words:
            gaps.append("`words` are for text facts")
        if self.type != "integer" and (self.moved_by or self.reset_by or self.limit):
            gaps.append("`moved_by`, `reset_by` and `limit` are for integer facts")
        if self.type != "integer" and (self.minimum or self.maximum is not None):
            gaps.append("`minimum` and `maximum` are for integer facts")
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            gaps.append(f"`minimum` is {self.minimum} and `maximum` is {self.maximum}: no value lies between")
        if self.limit is not None and self.limit not in [
            row.name for row in _load_rows("fact_rows:FACT_ROWS")
        ]:
            gaps.append(f"`limit` is {self.limit!r}, which is no fact")
        return gaps


# -- the tables ------------------------------------------------------------------------------------


def _load_rows(reference: str) -> Any:
    return load_reference(f"toolchart.states.core.{reference}")


@cache
def get_effects() -> dict[str, EffectDescriptor]:
    """Every effect by its name, and every kind of declared effects."""
    return build_table("effect", _load_rows("kinds:ALL_EFFECT_ROWS"))


def find_effect(name: str) -> EffectDescriptor:
    """The row of an effect, or of a kind of effects.

    Raises:
        SpecError: there is none of this name.
    """
    return find_row(get_effects(), "effect", name)


def describe_effect_class(type_: type[Effect]) -> EffectDescriptor:
    """The row of a class of effects, by its tag.

    Raises:
        SpecError: the class has no row.
    """
    return find_effect(str(type_.__struct_config__.tag))


@cache
def get_events() -> dict[str, EventDescriptor]:
    """Every event by its name."""
    return build_table("event", _load_rows("reduce:EVENT_ROWS"))


@cache
def get_facts() -> dict[str, Fact]:
    """Every fact by its name."""
    return build_table("fact", _load_rows("fact_rows:FACT_ROWS"))


@cache
def list_chart_events() -> tuple[str, ...]:
    """The events that a chart may name, which the core sends to the machine, in the order of their table."""
    return tuple(name for name, row in get_events().items() if row.reduce is not None)
