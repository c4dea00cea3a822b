"""Values to JSON data and back, from the dataclasses themselves: one place for every logged form.

A field that has its default is left out, so that the log stays small and readable and a field added
later does not change old hashes. Reading is strict: an unknown key, a missing one or a wrong type is
a `ValueError` that names the place.
"""

from __future__ import annotations

import dataclasses
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
    return _writer(kind)(value)  # type: ignore[arg-type]  # classes are hashable


def encode_event(event: AnyEvent) -> dict[str, Any]:
    """The event with its `type` tag and without `at`, which the record carries."""
    kind: Any = type(event)
    data = _writer(kind, ("at",))(event)
    data["type"] = event.TYPE
    return data


@cache
def _writer(kind: Any, without: tuple[str, ...] = ()) -> Callable[[Any], dict[str, Any]]:
    """A function that writes values of this class, spelt out field by field as `dataclasses` does.

    Every step of every conversation goes through it; a loop over the fields costs twice as much.
    """
    names: dict[str, Any] = {"plain": _AS_IS, "encode": encode}
    lines = ["def write(value):", " data = {}"]
    for field in dataclasses.fields(kind):
        if field.name in without:
            continue
        default = names[f"default_{field.name}"] = _default(field)
        lines += [
            f" item = value.{field.name}",
            " if item is not None:"
            if default is None
            else f" if item is not default_{field.name} and item != default_{field.name}:",
            f"  data[{field.name!r}] = item if type(item) in plain else encode(item)",
        ]
    exec("\n".join([*lines, " return data"]), names)  # noqa: S102  the text is made of field names
    return cast(Callable[[Any], dict[str, Any]], names["write"])


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


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
