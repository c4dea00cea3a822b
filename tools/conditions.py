"""Conditions of approval rules: total comparisons of one argument, which say when they cannot compare.

A model chooses the type of an argument where the schema leaves it open: `"5000"`, `[5000]` and `{"is": 5000}`
are not above 1000, and not below it either. So a comparison has three answers: true, false, and None for
values that it cannot compare. What None means for the call is the rule's business (`approval.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from toolchart.tools.schemas.checks import is_json_equal, is_number
from toolchart.workers.patterns import PatternTimeout, get_pattern

_ABSENT = object()

Comparison = Callable[[Any, Any], bool | None]


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison over one argument."""

    path: str
    """Name of the argument; dots lead to the values inside it."""
    operator: str
    operand: Any

    def compare(self, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool | None:
        """Whether the condition is true; None where the value cannot be compared.

        For an absent argument only `exists: false` is true; where the schema has a default, that is compared.
        """
        value: Any = arguments
        for part in self.path.split("."):
            if not isinstance(value, Mapping):
                return None
            declared = _find_property(schema, part)
            value = value.get(part, declared.get("default", _ABSENT))
            if value is _ABSENT:
                return self.operator == "exists" and not self.operand
            schema = declared
        if self.operator == "exists":
            return bool(self.operand)
        return COMPARISONS[self.operator](value, self.operand)

    def find_open_type(self, schema: Mapping[str, Any]) -> str | None:
        """Why a call may have a value that cannot be compared; None where the schema allows none."""
        for part in self.path.split("."):
            if part not in (schema.get("properties") or {}):
                return f"the schema has no parameter {self.path!r}"
            schema = _find_property(schema, part)
        types = schema.get("type")
        allowed_types = {_name_type(item) for item in schema.get("enum", ())} or {
            *([types] if isinstance(types, str) else types or ("any",))
        }
        if self.operator == "exists" or allowed_types <= _list_comparable_types(self):
            return None
        return f"the schema lets {self.path!r} be {' or '.join(sorted(allowed_types))}"


def _find_property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The schema of a property; empty where there is none."""
    declared = (schema.get("properties") or {}).get(name)
    return declared if isinstance(declared, Mapping) else {}


def _name_type(value: Any) -> str:
    """The JSON type of a value; `number` for all numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if is_number(value):
        return "number" if not (isinstance(value, float) and math.isnan(value)) else "NaN"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _list_comparable_types(condition: Condition) -> set[str]:
    """The types of values that a condition can compare, with `integer` beside `number`."""
    match condition.operator:
        case "glob" | "regex":
            types = {"string"}
        case "contains":
            types = {"string"} if isinstance(condition.operand, str) else set()
        case "in" | "not_in":
            types = {_name_type(item) for item in condition.operand}
        case _:
            types = {_name_type(condition.operand)}
    return types | ({"integer"} if "number" in types else set())


def _are_alike(value: Any, operand: Any) -> bool:
    return _name_type(value) == _name_type(operand) != "NaN"


def _make_comparison(compare: Callable[[Any, Any], bool]) -> Comparison:
    """A comparison of two values of one type; None for different types."""
    return lambda value, operand: compare(value, operand) if _are_alike(value, operand) else None


def _is_one_of(value: Any, operand: list[Any]) -> bool | None:
    if any(is_json_equal(value, item) for item in operand):
        return True
    return False if any(_are_alike(value, item) for item in operand) else None


def _is_none_of(value: Any, operand: list[Any]) -> bool | None:
    is_member = _is_one_of(value, operand)
    return None if is_member is None else not is_member


def _contains_value(value: Any, operand: Any) -> bool | None:
    if isinstance(value, str):
        return operand in value if isinstance(operand, str) else None
    if not isinstance(value, list):
        return None
    if any(is_json_equal(item, operand) for item in value):
        return True
    return False if all(_are_alike(item, operand) for item in value) else None


def _matches_glob(value: Any, operand: str) -> bool | None:
    return fnmatchcase(value, operand) if isinstance(value, str) else None


def _matches_pattern(value: Any, operand: str) -> bool | None:
    try:
        return get_pattern(operand).matches(value) if isinstance(value, str) else None
    except PatternTimeout:
        return None


COMPARISONS: dict[str, Comparison] = {
    "eq": _make_comparison(is_json_equal),
    "ne": _make_comparison(lambda value, operand: not is_json_equal(value, operand)),
    "gt": _make_comparison(lambda value, operand: value > operand),
    "ge": _make_comparison(lambda value, operand: value >= operand),
    "lt": _make_comparison(lambda value, operand: value < operand),
    "le": _make_comparison(lambda value, operand: value <= operand),
    "in": _is_one_of,
    "not_in": _is_none_of,
    "glob": _matches_glob,
    "regex": _matches_pattern,
    "contains": _contains_value,
}

OPERATORS = (*COMPARISONS, "exists")
"""Operators of conditions."""
