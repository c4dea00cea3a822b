"""Judges the calls of a reply by the rules of the Berkeley leaderboard (BFCL).

- The number of calls must be the expected one; a case without expected calls must have none. In a case
  with `any_call` at least one call is expected.
- Calls may come in any order. Each expected call is matched with one call of the reply, each call once.
- The name must be the expected one. Every required parameter must be present, and no parameter may be
  unknown to the tool.
- A value must have the parameter's type. An integer is valid for a number; `true` is not a number. Lists
  are compared item by item in order, objects key by key.
- A value must be among the accepted ones. Texts are compared without case, white space and the
  characters `, . / - _ * ^ ' "`.
- A parameter may be missing only if `""` is among its accepted values, or if it is optional and not
  among the expected ones.

Source: `bfcl_eval/eval_checker/ast_eval/ast_checker.py` of the Gorilla repository. Two rules differ: types
are judged by JSON Schema instead of the types of each programming language, and tool names are compared
in their portable form, because the model is offered that form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.tools.schemas.checks import compile_schema, is_json_equal, is_number
from toolchart.tools.validation.cases import Case, ExpectedCall

_OPTIONAL_MARK = ""

_NOISE = re.compile(r"[ \t\n,./\-_*^'\"]")


def find_problem(case: Case, calls: Sequence[ToolCall]) -> str | None:
    """The reason why the calls are wrong, or None if they are right."""
    if case.any_call:
        return None if calls else "a call was expected, and none was made"
    if len(calls) != len(case.calls):
        call_names = ", ".join(call.name for call in calls) or "none"
        return f"{len(case.calls)} calls were expected, not {len(calls)} ({call_names})"
    tools = {tool.name: tool for tool in case.tools}
    table = [
        [_find_call_problem(expected_call, call, tools.get(call.name)) for call in calls]
        for expected_call in case.calls
    ]
    unmatched_row = _find_unmatched_row([[reason is None for reason in row] for row in table])
    if unmatched_row is None:
        return None
    reason = table[unmatched_row][min(unmatched_row, len(calls) - 1)]
    return (
        reason if len(calls) == 1 else f"no call is the {case.calls[unmatched_row].name} expected: {reason}"
    )


def _find_unmatched_row(fits: list[list[bool]]) -> int | None:
    """The first row without a column of its own in a bipartite matching, or None if all rows have one.

    A row is an expected call, a column a call of the reply. Taking the first column that fits would be
    wrong, because it may be the only one that fits a later row. So a row may take a column from another
    row that can move to a free one (an augmenting path).
    """
    row_of_column: dict[int, int] = {}

    def assign_column(row: int, tried_columns: set[int]) -> bool:
        """Find a column for a row, moving other rows if necessary."""
        for column, is_fit in enumerate(fits[row]):
            if not is_fit or column in tried_columns:
                continue
            tried_columns.add(column)
            if column not in row_of_column or assign_column(row_of_column[column], tried_columns):
                row_of_column[column] = row
                return True
        return False

    return next((row for row in range(len(fits)) if not assign_column(row, set())), None)


def _find_call_problem(
    expected_call: ExpectedCall, call: ToolCall, tool: ToolDefinition | None
) -> str | None:
    """The reason why a call is not the expected one, or None if it is."""
    if tool is None or call.name != expected_call.name:
        return f"{call.name!r} was called instead of {expected_call.name!r}"
    if call.arguments is None:
        return f"the arguments cannot be read: {call.problem}"
    properties = tool.parameters.get("properties", {})
    for name in tool.parameters.get("required", ()):
        if name not in call.arguments and _OPTIONAL_MARK not in expected_call.arguments.get(
            name, [_OPTIONAL_MARK]
        ):
            return f"the required parameter {name!r} is missing"
    for name, value in call.arguments.items():
        if name not in properties:
            return f"{call.name!r} has no parameter {name!r}"
        reason = _find_value_problem(name, value, properties[name], expected_call.arguments.get(name))
        if reason is not None:
            return reason
    for name, accepted_values in expected_call.arguments.items():
        if name not in call.arguments and not _contains_exactly(accepted_values, _OPTIONAL_MARK):
            return f"the parameter {name!r} is missing"
    return None


def _find_value_problem(name: str, value: Any, schema: Any, accepted_values: list[Any] | None) -> str | None:
    if accepted_values is None:
        return f"the parameter {name!r} was not expected"
    if any(
        matches_value(value, accepted)
        for accepted in accepted_values
        if accepted != _OPTIONAL_MARK or value == _OPTIONAL_MARK
    ):
        return None
    check = compile_schema({"type": schema["type"]}) if "type" in schema else None
    if check is not None and not check(value):
        return f"the parameter {name!r} is {type(value).__name__}, not {schema['type']}"
    return f"the parameter {name!r} is {value!r}, which is not accepted"


def _contains_exactly(accepted_values: Sequence[Any], value: Any) -> bool:
    return any(type(accepted) is type(value) and accepted == value for accepted in accepted_values)


def matches_value(value: Any, accepted: Any) -> bool:
    """Whether a value equals one accepted value, by the rules above.

    >>> matches_value("New-York", "new york"), matches_value([1, "A"], [1, "a"])
    (True, True)
    >>> matches_value(3, 3.0), matches_value(True, 1)
    (True, False)
    >>> matches_value({"size": "L"}, {"size": ["l", "large"], "sugar": [""]})
    True
    """
    if isinstance(value, str) and isinstance(accepted, str):
        return normalize_text(value) == normalize_text(accepted)
    if is_number(value) and is_number(accepted):
        return bool(value == accepted)
    if isinstance(value, list) and isinstance(accepted, list):
        return len(value) == len(accepted) and all(map(matches_value, value, accepted))
    if isinstance(value, Mapping) and isinstance(accepted, Mapping):
        return _objects_match(value, accepted)
    return is_json_equal(value, accepted)


def _objects_match(value: Mapping[str, Any], accepted: Mapping[str, Any]) -> bool:
    """Whether an object matches; each key of the accepted object has its own list of accepted values."""
    if any(key not in accepted for key in value):
        return False
    for key, options in accepted.items():
        choices = options if isinstance(options, list) else [options]
        if key not in value:
            if not _contains_exactly(choices, _OPTIONAL_MARK):
                return False
        elif not (
            any(matches_value(value[key], choice) for choice in choices) or matches_value(value[key], options)
        ):
            return False
    return True


def normalize_text(text: str) -> str:
    """The form in which texts are compared: without case, white space and most punctuation."""
    return _NOISE.sub("", text).lower()
