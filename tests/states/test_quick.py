"""Values that are made quickly are the values that `dataclasses` would make."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from typing import Any

import pytest

from toolchart.states.messages import Message, Reply, Request, ToolCall, Usage
from toolchart.states.quick import quick


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A field of each kind, as `dataclasses` makes it."""

    needed: str
    plain: int = 3
    made: list[int] = dataclasses.field(default_factory=list)


@quick
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fast:
    """The same, quickly."""

    needed: str
    plain: int = 3
    made: list[int] = dataclasses.field(default_factory=list)


@quick
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Further(Fast):
    """With a field of its own behind those that it has from its base."""

    more: str = "more"


def fields_of(value: Any) -> dict[str, Any]:
    """Every field by its name."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


@pytest.mark.parametrize(
    "given", [{"needed": "a"}, {"needed": "b", "plain": 4}, {"needed": "c", "made": [1]}]
)
def test_every_field_is_set_as_it_would_be(given: dict[str, Any]) -> None:
    """What is given is there, and what is not has its default."""
    assert fields_of(Fast(**given)) == fields_of(Slow(**given))
    assert fields_of(Further(**given)) == {**fields_of(Slow(**given)), "more": "more"}


def test_a_made_default_is_made_for_each() -> None:
    """Two values never share the list that neither was given."""
    assert Fast(needed="a").made is not Fast(needed="a").made


@pytest.mark.parametrize("given", [{}, {"needed": "a", "other": 1}])
def test_wrong_fields_are_refused_as_they_would_be(given: dict[str, Any]) -> None:
    """A missing field and an unknown one are told in the same words."""
    told = []
    for kind in (Slow, Fast):
        with pytest.raises(TypeError) as caught:
            kind(**given)
        told.append(str(caught.value).replace(kind.__name__, ""))
    assert told[0] == told[1]
    with pytest.raises(TypeError):
        Fast("a")  # type: ignore[misc]  # only by its name


@pytest.mark.parametrize("kind", [ToolCall, Message, Request, Usage, Reply])
def test_a_quick_value_stays_a_value(kind: Any) -> None:
    """Frozen, comparable, copied, pickled, replaced, and open to whoever reads its signature."""
    hints = typing.get_type_hints(kind.__init__)
    parameters = inspect.signature(kind).parameters
    assert list(parameters) == [field.name for field in dataclasses.fields(kind)]
    assert hints.keys() - {"return"} == parameters.keys()
    needed = [name for name, one in parameters.items() if one.default is inspect.Parameter.empty]
    value = kind(**dict.fromkeys(needed, "tool_calls"))
    for twin in (
        copy.deepcopy(value),
        pickle.loads(pickle.dumps(value)),
        dataclasses.replace(value),
    ):
        assert twin == value
        assert twin is not value
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, None)
