"""Values as JSON and back.

Events are written by msgspec, in the form of log format 2: the `type` tag, then every field that is not
empty. Only empty values are left out (None, "", empty containers, 0, False), never a value because it equals
the default of this release: so a release may change its defaults, and old records still say what was in
force.

Reading is strict: an unknown key, a missing key or a wrong type is a `ValueError` that names the place. It
keeps the digits of integers of any length. Lone surrogates stand in the JSON as `\\ud800` escapes. They are
read through the standard library, because msgspec takes no such escapes. NaN and infinity are not JSON;
whoever has them must replace them first (`make_plain_event`).
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from toolchart.states.content import PART_CLASSES
from toolchart.states.events import Event, Replied, ToolFinished, TurnStarted
from toolchart.states.vocabulary import get_events

Value = TypeVar("Value")

_JSON_TYPES = frozenset({str, int, float, bool, type(None), dict})

_encode = msgspec.json.Encoder().encode


# -- events as JSON ------------------------------------------------------------------------------


def encode_event_json(event: Event) -> bytes:
    """The JSON of an event, without `at`, which the record carries.

    Raises:
        TypeError, ValueError, RecursionError: it holds something that JSON cannot hold.
    """
    return encode_struct_json(replace(event, at=""))


def encode_struct_json(value: msgspec.Struct) -> bytes:
    """The JSON of a struct. Where a text in it has a lone surrogate, all beyond ASCII is escaped.

    Raises:
        TypeError, ValueError, RecursionError: it holds something that JSON cannot hold.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":"), allow_nan=False).encode()


@cache
def _get_decoder(kind: type[Event]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def read_json(data: bytes) -> Any:
    """A JSON document of the log. Integers keep their digits, and escaped lone surrogates are read.

    Raises:
        ValueError, RecursionError: it is not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


CHANGE_WARNING = (
    "something in it cannot stand in a log (NaN, an object, a structure without end); "
    "the nearest value took its place"
)


def make_plain_event(event: Event, at: str = "") -> tuple[Event, bytes]:
    """The event that equals its JSON, and its JSON.

    So the core acts on exactly the event that is logged, whatever a tool or a provider returned. Values that
    JSON cannot hold are replaced by the nearest ones: NaN and infinity by null, other objects by their text.
    The event then says so, where its kind has warnings or notes.

    Args:
        at: its time, where it has none itself.

    Raises:
        ValueError: the event does not have the types of its class.
    """
    timeless_event = event
    if event.at != "":
        at, timeless_event = event.at, replace(event, at="")
    try:
        data = _encode(timeless_event)
        plain: Event = _get_decoder(type(event)).decode(data)
    except (TypeError, ValueError, RecursionError, OverflowError):
        pass  # a lone surrogate, an object, a cycle
    else:
        # What JSON changes shows here: NaN comes back as null, a tuple in a result as a list.
        if plain == timeless_event and type(at) is str:
            force_setattr(plain, "at", at)  # nobody else has it yet
            return plain, data
    walk = _PlainWalk()
    fields = walk.make_plain(event)
    fields.pop("at")
    plain = decode_event({**fields, "type": event.TYPE}, at)
    if walk.has_losses:
        plain = _add_change_warning(plain)
    return plain, encode_event_json(plain)


def _add_change_warning(event: Event) -> Event:
    """The event with a warning that values were replaced, where this event has warnings or notes."""
    match event:
        case Replied(reply=reply):
            return replace(event, reply=replace(reply, warnings=(*reply.warnings, CHANGE_WARNING)))
        case TurnStarted():
            return replace(event, warnings=(*event.warnings, CHANGE_WARNING))
        case ToolFinished():
            return replace(event, notes=(*event.notes, CHANGE_WARNING))
    return event


_MAX_DEPTH = 200
"""Nesting allowed in a logged value."""


class _PlainWalk:
    """Replaces what JSON cannot hold, and remembers whether anything was lost."""

    def __init__(self) -> None:
        self.has_losses = False

    def make_plain(self, value: Any, path: tuple[int, ...] = ()) -> Any:
        """The nearest JSON value; `path` has the `id` of each container that the value stands in."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _join_surrogates(str.__str__(value))
        if isinstance(value, int):
            return self._make_plain_integer(int(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else self._lose(None)
        if len(path) >= _MAX_DEPTH:
            return self._lose("(nested too deeply)")
        if id(value) in path:
            return self._lose("(refers to itself)")
        inner_path = (*path, id(value))
        if isinstance(value, msgspec.Struct):
            names = value.__struct_fields__
            tag = {"type": value.__struct_config__.tag} if isinstance(value, PART_CLASSES) else {}
            items = ((name, getattr(value, name)) for name in names)
            # As msgspec does: what is unset is not there.
            return tag | {n: self.make_plain(v, inner_path) for n, v in items if v is not msgspec.UNSET}
        if isinstance(value, dict):
            return {self._make_key(key): self.make_plain(item, inner_path) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.make_plain(item, inner_path) for item in value]
        return self._lose(_describe_value(value))

    def _make_plain_integer(self, value: int) -> Any:
        try:
            str(value)
        except ValueError:  # beyond Python's limit for printing integers
            return self._lose(f"(integer of {value.bit_length()} bits)")
        return value

    def _make_key(self, key: Any) -> str:
        if isinstance(key, str):
            return _join_surrogates(str.__str__(key))
        return str(self._lose(_describe_value(key)))

    def _lose(self, replacement: Any) -> Any:
        self.has_losses = True
        return replacement


def _join_surrogates(text: str) -> str:
    """The text with each pair of surrogates as one character, as a reader of JSON gives it."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _describe_value(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # an unknown class may raise anything in __str__
        return f"({type(value).__name__}: {type(error).__name__})"


# -- values as data ------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """JSON data of a value, for people and programs outside: fields that have their default are left out."""
    kind: Any = type(value)
    if kind in _JSON_TYPES:
        return value
    if kind is tuple or kind is list:
        return [item if type(item) in _JSON_TYPES else encode(item) for item in value]
    fields = _encode_fields(value, _list_fields(kind))
    is_part = isinstance(value, PART_CLASSES)
    return {"type": kind.__struct_config__.tag, **fields} if is_part else fields


def encode_event(event: Event) -> dict[str, Any]:
    """The event as JSON data with its `type` and without `at`, for people and programs outside the log."""
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


def decode_event(data: Any, at: str) -> Event:
    """The event of a record, from its JSON data.

    Raises:
        ValueError: not an event of this format, with the place.
    """
    if not isinstance(data, dict) or data.get("type") not in get_events():
        event_names = ", ".join(get_events())
        raise ValueError(f"/event/type: not a known event (known: {event_names})")
    return decode(get_events()[data["type"]].type, {**data, "at": at}, "/event")


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
