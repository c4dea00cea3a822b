"""Values that fit a schema and would reach a function as something that the model did not say.

A library that reads times takes plain digits for seconds since 1970: `"20200102"` is a day of that year. And
a float cannot hold every number: of 12345678901234567.89 it keeps ...568. Such a value is refused, with the
form that is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.tools.schemas.checks import find_local_reference, format_value

_EXAMPLES = {
    "date-time": "2026-01-31T10:00:00Z",
    "date": "2026-01-31",
    "time": "10:00:00",
    "duration": "PT5M",
}
"""By format of a text: a value that has it."""

_DIGITS = re.compile(r"\s*[+-]?[\d_]*\.?[\d_]*\s*")

_MAX_EXACT = 2**53
"""A float may stand for several integers beyond this one."""

_MAX_DIGITS = 15
"""Digits of a decimal number that a float always keeps."""

_KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


def find_form_problem(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """What is wrong with the first argument that would become another time or number; None where none would.

    >>> schema = {"properties": {"day": {"type": "string", "format": "date"}}}
    >>> find_form_problem({"day": "2026-01-31"}, schema)
    >>> find_form_problem({"day": "1577923200"}, schema)
    "parameter 'day': '1577923200' is no date: write it as 2026-01-31, not as a number"
    """
    return next(_find_problems(dict(arguments), schema, schema, ""), None)


def _find_problems(value: Any, schema: Any, root: Any, path: str) -> Iterator[str]:
    if isinstance(schema, Mapping) and "$ref" in schema:
        schema = find_local_reference(root, schema["$ref"])
    if not isinstance(schema, Mapping):
        return
    options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or ()
    problems = [
        list(_find_problems(value, option, root, path)) for option in options if _fits(value, option, root)
    ]
    if problems and all(problems):  # one alternative that takes it as it stands is enough
        yield from problems[0]
    form = schema.get("format")
    is_text = isinstance(value, str)
    if form in _EXAMPLES and (_DIGITS.fullmatch(value) if is_text else isinstance(value, (int, float))):
        example = f"write it as {_EXAMPLES[form]}, not as a number"
        yield f"parameter {path!r}: {format_value(value)} is no {form}: {example}"
    elif schema.get("type") == "integer" and isinstance(value, float) and abs(value) > _MAX_EXACT:
        yield f"parameter {path!r}: {value!r} may stand for several integers: write it without a point"
    elif isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            yield from _find_problems(item, properties.get(name, others), root, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        firsts = schema.get("prefixItems", ())
        for place, item in enumerate(value):
            part = firsts[place] if place < len(firsts) else schema.get("items")
            yield from _find_problems(item, part, root, f"{path}[{place}]")


def _fits(value: Any, option: Any, root: Any) -> bool:
    """Whether a value has the type of an alternative; true where that names none."""
    if isinstance(option, Mapping) and "$ref" in option:
        option = find_local_reference(root, option["$ref"])
    kind = _KINDS.get(str(option.get("type"))) if isinstance(option, Mapping) else None
    if kind is int and isinstance(value, float):
        return value.is_integer()
    return kind is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))


def find_inexact_number(value: Any) -> float | None:
    """The first float, at any depth, with more digits than floats keep: a decimal number was another one."""
    pending = [value]
    for item in pending:
        if isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list):
            pending += item
        elif (
            isinstance(item, float)
            and len(f"{item!r}".partition("e")[0].strip("-0.").replace(".", "")) > _MAX_DIGITS
        ):
            return item
    return None
