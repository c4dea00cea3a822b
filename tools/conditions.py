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


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of conditions."""

    compare: Comparison
    list_types: Callable[[Any], set[str]]
    """From the operand to the JSON types of the values that can be compared with it."""
    find_problem: Callable[[Any], str | None] = lambda operand: None
    """What is wrong with an operand in a spec; None where it is good."""
    is_true_of_absent: Callable[[Any], bool] = lambda operand: False
    """From the operand to the answer for an argument that is not there."""
    is_pattern: bool = False
    """Whether the operand is a regular expression, which may have to be matched in a worker."""


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
                return OPERATORS[self.operator].is_true_of_absent(self.operand)
            schema = declared
        return OPERATORS[self.operator].compare(value, self.operand)

    @property
    def may_wait(self) -> bool:
        """Whether a comparison may wait for a worker."""
        return OPERATORS[self.operator].is_pattern and not get_pattern(str(self.operand)).is_linear

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
        comparable_types = OPERATORS[self.operator].list_types(self.operand)
        if "number" in comparable_types:
            comparable_types.add("integer")
        if allowed_types <= comparable_types:
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


def _are_alike(value: Any, operand: Any) -> bool:
    return _name_type(value) == _name_type(operand) != "NaN"


def _of_one_type(
    compare: Callable[[Any, Any], bool], find_problem: Callable[[Any], str | None] = lambda operand: None
) -> Operator:
    """The operator that compares two values of one type; None for different types."""
    return Operator(
        compare=lambda value, operand: compare(value, operand) if _are_alike(value, operand) else None,
        list_types=lambda operand: {_name_type(operand)},
        find_problem=find_problem,
    )


def _find_list_problem(operand: Any) -> str | None:
    return None if isinstance(operand, list) else "expected a list"


def _find_text_problem(operand: Any) -> str | None:
    return None if isinstance(operand, str) else "expected a text"


def _find_order_problem(operand: Any) -> str | None:
    return None if is_number(operand) or isinstance(operand, str) else "expected a number or a text"


def _find_pattern_problem(operand: Any) -> str | None:
    if not isinstance(operand, str):
        return "expected a text"
    try:
        get_pattern(operand)
    except ValueError as error:
        return f"not a regular expression: {error}"
    return None


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


def _list_item_types(operand: list[Any]) -> set[str]:
    return {_name_type(item) for item in operand}


def _list_text(operand: Any) -> set[str]:
    return {"string"}


_ALL_TYPES = {"any", "array", "boolean", "integer", "null", "number", "object", "string"}

OPERATORS: dict[str, Operator] = {
    "eq": _of_one_type(is_json_equal),
    "ne": _of_one_type(lambda value, operand: not is_json_equal(value, operand)),
    "gt": _of_one_type(lambda value, operand: value > operand, _find_order_problem),
    "ge": _of_one_type(lambda value, operand: value >= operand, _find_order_problem),
    "lt": _of_one_type(lambda value, operand: value < operand, _find_order_problem),
    "le": _of_one_type(lambda value, operand: value <= operand, _find_order_problem),
    "in": Operator(compare=_is_one_of, list_types=_list_item_types, find_problem=_find_list_problem),
    "not_in": Operator(compare=_is_none_of, list_types=_list_item_types, find_problem=_find_list_problem),
    "glob": Operator(compare=_matches_glob, list_types=_list_text, find_problem=_find_text_problem),
    "regex": Operator(
        compare=_matches_pattern, list_types=_list_text, find_problem=_find_pattern_problem, is_pattern=True
    ),
    "contains": Operator(
        compare=_contains_value, list_types=lambda operand: {"string"} if isinstance(operand, str) else set()
    ),
    "exists": Operator(
        compare=lambda value, operand: bool(operand),
        list_types=lambda operand: set(_ALL_TYPES),
        is_true_of_absent=lambda operand: not operand,
    ),
}
"""By name in a spec: every operator of conditions."""
