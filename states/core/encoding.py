"""Values as JSON data and back, in the form of log format 1.

A field that has its default is left out. So a record stays small, and a field that a later release adds does
not change old hashes. Reading is strict: an unknown key, a missing key or a wrong type is a `ValueError` that
names the place.

Reading is msgspec's. Writing is not: msgspec leaves a field out only if it holds the default object itself (a
computed `0.0` is written, the `0.0` of the class is not), but the hashes of format 1 rest on equality.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from toolchart.states.events import EVENTS, AnyEvent

Value = TypeVar("Value")

_JSON_TYPES = frozenset({str, int, float, bool, type(None), dict})


def encode(value: Any) -> Any:
    """JSON data of a value: structs become objects without the fields that have their default."""
    kind: Any = type(value)
    if kind in _JSON_TYPES:
        return value
    if kind is tuple or kind is list:
        return [item if type(item) in _JSON_TYPES else encode(item) for item in value]
    return _encode_fields(value, _list_fields(kind))


def encode_event(event: AnyEvent) -> dict[str, Any]:
    """The event with its `type` tag and without `at`, which the record carries."""
    data = _encode_fields(event, _list_fields(type(event), "at"))
    data["type"] = event.TYPE
    return data


def _encode_fields(value: Any, fields: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    data = {}
    for name, default in fields:
        item = getattr(value, name)
        if item is not default and item != default:
            data[name] = item if type(item) in _JSON_TYPES else encode(item)
    return data


@cache
def _list_fields(kind: Any, without: str = "") -> tuple[tuple[str, Any], ...]:
    """Name and default of each field, in the order of the class."""
    return tuple(
        (field.name, _get_default(field)) for field in msgspec.structs.fields(kind) if field.name != without
    )


def _get_default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
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
    return decode(EVENTS[data["type"]], {**data, "at": at}, "/event")


def decode(kind: type[Value], data: Any, place: str = "") -> Value:
    """A value of the struct `kind` from JSON data.

    Raises:
        ValueError: unknown or missing key, or a wrong type, with its JSON pointer below `place`.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_locate_problem(str(error), place)) from None


def _locate_problem(text: str, place: str) -> str:
    """msgspec's sentence behind a JSON pointer: "Expected `int`, got `str` - at `$.limits.max`"."""
    problem, _, path = text.partition(" - at `$")
    pointer = path.rstrip("`").replace("[...]", "/*").replace("[", "/").replace("]", "").replace(".", "/")
    return f"{place}{pointer or ('' if place else '/')}: {problem[:1].lower()}{problem[1:]}"
