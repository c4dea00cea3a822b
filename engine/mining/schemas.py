"""Infers the JSON Schema of a tool's arguments from those that were seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_LEVELS = 6
"""Levels of arrays and objects that are described; what is deeper may be anything."""
_MOST_PROPERTIES = 40
"""Properties of an object; one with more names is a table, whose names are data."""
_ENUM_SEEN, _ENUM_VALUES, _ENUM_LENGTH = 12, 6, 40
"""A text is an enum where at least so many were seen, at most so many of them differ, none is longer, and
each was seen twice: then a new value would be a surprise."""


def infer_parameters(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of the arguments of these calls: names, types, what each call had, enums where few values
    repeat. It allows what was seen and little more.

    >>> infer_parameters([{"id": 1}, {"id": 2, "note": "x"}])["required"]
    ['id']
    """
    schema = _infer_object(calls, 0)
    schema.setdefault("properties", {})
    return schema


def _infer(values: Sequence[Any], level: int) -> dict[str, Any]:
    by_type: dict[str, list[Any]] = {}
    for value in values:
        by_type.setdefault(_name_type(value), []).append(value)
    if "number" in by_type and "integer" in by_type:
        by_type["number"] += by_type.pop("integer")
    names = [name for name in _TYPES if name in by_type]
    if not names or level > _LEVELS:
        return {}
    schema: dict[str, Any] = {"type": names[0] if len(names) == 1 else names}
    if names == ["string"] and _is_enum(by_type["string"]):
        schema["enum"] = sorted(set(by_type["string"]))
    if "array" in by_type:
        items = _infer([item for value in by_type["array"] for item in value], level + 1)
        schema |= {"items": items} if items else {}
    if "object" in by_type:
        schema |= {
            key: part for key, part in _infer_object(by_type["object"], level).items() if key != "type"
        }
    return schema


def _infer_object(values: Sequence[Mapping[str, Any]], level: int) -> dict[str, Any]:
    by_name: dict[str, list[Any]] = {}
    for value in values:
        for name, item in value.items():
            by_name.setdefault(name, []).append(item)
    if len(by_name) > _MOST_PROPERTIES and level:
        return {"type": "object"}
    schema: dict[str, Any] = {"type": "object"}
    if by_name:
        schema["properties"] = {name: _infer(by_name[name], level + 1) for name in sorted(by_name)}
    required = sorted(name for name, items in by_name.items() if len(items) == len(values))
    return schema | ({"required": required} if required else {})


def _is_enum(texts: Sequence[str]) -> bool:
    counts = Counter(texts)
    return (
        len(texts) >= _ENUM_SEEN
        and len(counts) <= _ENUM_VALUES
        and min(counts.values()) >= 2
        and max(map(len, counts)) <= _ENUM_LENGTH
    )


def _name_type(value: Any) -> str:
    """The JSON type of a value; a whole number is an `integer`, however it is written."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list | tuple) else "object"
