"""Values to JSON data and back, from the dataclasses themselves: one place for every logged form.

A field that has its default is left out, so that the log stays small and readable and a field added
later does not change old hashes. Reading is strict: an unknown key, a missing one or a wrong type is
a `ValueError` that names the place.
"""

from __future__ import annotations

import dataclasses
import operator
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from toolchart.states.events import EVENTS, AnyEvent

Value = TypeVar("Value")
Reader = Callable[[Any, str], Any]

_AS_IS = frozenset({str, int, float, bool, type(None), dict})


def encode(value: Any) -> Any:
    """JSON data of a value: dataclasses become objects without their default fields."""
    kind = type(value)
    if kind in _AS_IS:
        return value
    if kind is tuple or kind is list:
        return [item if type(item) in _AS_IS else encode(item) for item in value]
    names, defaults, read = _written(kind)  # type: ignore[arg-type]  # classes are hashable
    return {
        name: item if type(item) in _AS_IS else encode(item)
        for name, default, item in zip(names, defaults, read(value), strict=False)
        if item is not default and item != default
    }


@cache
def _written(kind: Any) -> tuple[tuple[str, ...], tuple[Any, ...], Callable[[Any], Any]]:
    """Names and defaults of the fields that are written, and how to read them all at once."""
    fields = dataclasses.fields(kind)
    names = tuple(field.name for field in fields)
    defaults = tuple(_default(field) for field in fields)
    if len(names) == 1:
        only = operator.attrgetter(names[0])
        return names, defaults, lambda value: (only(value),)
    return names, defaults, operator.attrgetter(*names)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def encode_event(event: AnyEvent) -> dict[str, Any]:
    """The event with its `type` tag and without `at`, which the record carries."""
    data = cast(dict[str, Any], encode(event))
    data.pop("at", None)
    data["type"] = event.TYPE
    return data


def decode_event(data: Any, at: str) -> AnyEvent:
    """The event of a record.

    Raises:
        ValueError: not an event of this format, with the place.
    """
    if not isinstance(data, dict) or data.get("type") not in EVENTS:
        known = ", ".join(EVENTS)
        raise ValueError(f"/event/type: not a known event (known: {known})")
    fields = {key: item for key, item in data.items() if key != "type"}
    return decode(EVENTS[data["type"]], {**fields, "at": at}, "/event")


def decode(kind: type[Value], data: Any, place: str = "") -> Value:
    """A value of the dataclass `kind` from JSON data.

    Raises:
        ValueError: unknown or missing key, or a wrong type, with its JSON pointer.
    """
    readers, required = _readers(kind)  # type: ignore[arg-type]
    if not isinstance(data, dict):
        raise ValueError(f"{place or '/'}: expected an object, found {type(data).__name__}")
    unknown = data.keys() - readers.keys()
    if unknown:
        raise ValueError(f"{place}/{min(unknown)}: unknown key")
    missing = required - data.keys()
    if missing:
        raise ValueError(f"{place}/{min(missing)}: missing")
    return kind(**{key: readers[key](item, f"{place}/{key}") for key, item in data.items()})


@cache
def _readers(kind: Any) -> tuple[dict[str, Reader], frozenset[str]]:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    required = frozenset(
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )
    return {field.name: _reader(hints[field.name]) for field in fields}, required


def _reader(hint: Any) -> Reader:
    """How a value of this type is read."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if hint is Any:
        return lambda item, place: item
    if origin is typing.Literal:
        return _literal(arguments)
    if origin in (typing.Union, types.UnionType):
        return _optional([_reader(part) for part in arguments if part is not type(None)])
    if origin is tuple:
        return _tuple(arguments)
    if dataclasses.is_dataclass(hint):
        return lambda item, place: decode(cast(type, hint), item, place)
    return _plain(origin or hint)


def _plain(kind: type) -> Reader:
    allowed: tuple[type, ...] = (int, float) if kind is float else (kind,)

    def read(item: Any, place: str) -> Any:
        if not isinstance(item, allowed) or (isinstance(item, bool) and kind is not bool):
            raise ValueError(f"{place}: expected {kind.__name__}, found {type(item).__name__}")
        return item

    return read


def _literal(allowed: tuple[Any, ...]) -> Reader:
    def read(item: Any, place: str) -> Any:
        if item not in allowed:
            raise ValueError(f"{place}: {item!r} is not one of {', '.join(map(str, allowed))}")
        return item

    return read


def _optional(readers: list[Reader]) -> Reader:
    def read(item: Any, place: str) -> Any:
        return None if item is None else readers[0](item, place)

    return read


def _tuple(arguments: tuple[Any, ...]) -> Reader:
    variadic = len(arguments) == 2 and arguments[1] is Ellipsis
    readers = [_reader(part) for part in (arguments[:1] if variadic else arguments)]

    def read(item: Any, place: str) -> Any:
        if not isinstance(item, list):
            raise ValueError(f"{place}: expected a list, found {type(item).__name__}")
        chosen = readers * len(item) if variadic else readers
        if len(item) != len(chosen):
            raise ValueError(f"{place}: expected {len(chosen)} entries, found {len(item)}")
        return tuple(
            reader(entry, f"{place}/{index}")
            for index, (reader, entry) in enumerate(zip(chosen, item, strict=True))
        )

    return read
