"""How the values of a result over several rounds become one: `append` to a list, `add` to a sum.

    find_more: {call_model: {prompt: ..., as: found, schema: {...}, append: {sources: 20}, add: {cents: 500}}}

Without a reducer each value takes the place of the one before. With `append` the entries of a field go behind
those that are there, up to so many; with `add` a number is added to the sum, up to so much. What is beyond
the bound is left out, and `found.left_out` counts how often that happened: a guard can read it. So a value
stays bounded however many rounds a chart makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from toolchart.states.flows.parameters import DeclarationProblem

_NUMBERS = ("integer", "number")


class Reducers(msgspec.Struct, frozen=True, kw_only=True):
    """The reducers of one result."""

    append: Mapping[str, int] = {}
    """By field: the most entries that its list has."""
    add: Mapping[str, int] = {}
    """By field: the greatest sum."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.append or self.add)

    def join(self, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """The value that a result has after one more, and how many entries and sums the bounds cut."""
        value, left_out = dict(new), 0
        for field, most in self.append.items():
            entries = [*_list_entries(old, field), *_list_entries(new, field)]
            value[field] = entries[:most]
            left_out += len(entries) - len(value[field])
        for field, most in self.add.items():
            total = _read_number(old, field) + _read_number(new, field)
            value[field] = min(total, most)
            left_out += total > most
        return value, left_out


NO_REDUCERS = Reducers()


def _list_entries(value: Mapping[str, Any] | None, field: str) -> list[Any]:
    entries = (value or {}).get(field)
    if entries is None:
        return []
    return entries if isinstance(entries, list) else [entries]


def _read_number(value: Mapping[str, Any] | None, field: str) -> int | float:
    number = (value or {}).get(field)
    return number if isinstance(number, int | float) and not isinstance(number, bool) else 0


def declare_reducers(parameters: Any, schema: Mapping[str, Any] | None) -> Reducers:
    """The reducers that the parameters of an effect declare.

    Args:
        schema: of the value; None for a text, or for a list of children.

    Raises:
        DeclarationProblem: there is no result, or a field does not fit.
    """
    reducers = Reducers(append=parameters.append, add=parameters.add)
    if reducers and not parameters.result:
        key = "append" if reducers.append else "add"
        raise DeclarationProblem(f"`{key}` needs a result", (key,), "name the result: `as: NAME`")
    for path, message, hint in _find_problems(reducers, schema, getattr(parameters, "for_each", "")):
        raise DeclarationProblem(message, path, hint)
    return reducers


def _find_problems(
    reducers: Reducers, schema: Mapping[str, Any] | None, list_source: str
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """What is wrong with some reducers: the place in the parameters, what it is, and what to do."""
    for field in reducers.append.keys() & reducers.add.keys():
        yield ("add", field), f"the field {field!r} is appended and added", "choose one"
    only_field = "items" if list_source else "content"
    properties = (schema or {}).get("properties") or {}
    required = (schema or {}).get("required") or ()
    for key, fields in (("append", reducers.append), ("add", reducers.add)):
        for field in fields:
            if schema is None or list_source:
                if (key, field) != ("append", only_field):
                    hint = f"this result has one field: `append: {{{only_field}: 20}}`"
                    yield (key, field), f"there is no field {field!r} that `{key}` could join", hint
                continue
            body = properties.get(field)
            kind = body.get("type") if isinstance(body, Mapping) else None
            if kind is None:
                yield (key, field), f"the schema has no field {field!r}", f"it has {', '.join(properties)}"
            elif key == "append" and kind != "array":
                yield (key, field), f"the field {field!r} is no list", "write `type: array` in the schema"
            elif key == "add" and not _is_growing(body, kind, field in required):
                hint = "write `type: integer` and `minimum: 0` in the schema, and name it under `required`"
                yield (key, field), f"the field {field!r} is no number that only grows a sum", hint


def _is_growing(body: Any, kind: Any, is_required: bool) -> bool:
    least = body.get("minimum", body.get("exclusiveMinimum"))
    is_number = isinstance(least, int | float) and not isinstance(least, bool)
    return kind in _NUMBERS and is_required and is_number and least >= 0
