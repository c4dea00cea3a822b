"""Is a reply right? The benchmark's rules over the syntax tree of calls, in words and in code.

- As many calls as expected, no more; for a case without expected calls, none. Where any call will do,
  at least one.
- Calls may come in any order: each expected call is matched with one made call, each made call once.
- The name must be the expected one. Every required parameter must be there, and no parameter that the
  tool does not know.
- A value must have the parameter's type; an integer is good where a number is wanted, `true` is no
  number. Lists are compared item by item in order, objects key by key.
- A value must be among the accepted ones. Texts are compared without case, white space and the
  characters `, . / - _ * ^ ' "`.
- In a case of several steps (`in_steps`) other calls may be made beside the expected ones, which must come
  in their order.
- A parameter may be missing only where `""` is among its accepted values, or it is optional and not
  among the expected ones.

Source: `bfcl_eval/eval_checker/ast_eval/ast_checker.py` of the Gorilla repository. Different here: types
are judged by JSON Schema instead of each programming language's own, and names are compared in their
portable form, since that is what a model is offered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.tools.execution.compiled_schema import compile_check, is_number, same
from toolchart.tools.validation.cases import Case, ExpectedCall

_LEFT_OUT = ""

_NOISE = re.compile(r"[ \t\n,./\-_*^'\"]")


def problem_of(case: Case, calls: Sequence[ToolCall]) -> str | None:
    """Why the calls are not right, or None where they are."""
    if case.any_call:
        return None if calls else "a call was expected, and none was made"
    if case.in_steps:
        return _missing_step(case, calls)
    if len(calls) != len(case.calls):
        made = ", ".join(call.name for call in calls) or "none"
        return f"{len(case.calls)} calls were expected, not {len(calls)} ({made})"
    tools = {tool.name: tool for tool in case.tools}
    table = [
        [_difference(expected, call, tools.get(call.name)) for call in calls]
        for expected in case.calls
    ]
    unmatched = _unmatched([[reason is None for reason in row] for row in table])
    if unmatched is None:
        return None
    reason = table[unmatched][min(unmatched, len(calls) - 1)]
    return (
        reason
        if len(calls) == 1
        else f"no call is the {case.calls[unmatched].name} expected: {reason}"
    )


def _missing_step(case: Case, calls: Sequence[ToolCall]) -> str | None:
    """The first right call that does not come, after those before it; None where all do."""
    tools = {tool.name: tool for tool in case.tools}
    left = list(calls)
    for number, expected in enumerate(case.calls, 1):
        reasons = [_difference(expected, call, tools.get(call.name)) for call in left]
        if None not in reasons:
            why = next((one for one in reasons if one and "instead of" not in one), None)
            told = (
                f"call {number} of {len(case.calls)}, {expected.name}, does not come in its place"
            )
            return f"{told}: {why}" if why else told
        left = left[reasons.index(None) + 1 :]
    return None


def _unmatched(fits: list[list[bool]]) -> int | None:
    """The first row that finds no column of its own, or None where all do.

    Taking the first call that fits would be wrong: it may be the only one that fits a later row. So a
    row may take a column from another row that finds itself a new one.
    """
    holder: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if not fit or column in tried:
                continue
            tried.add(column)
            if column not in holder or place(holder[column], tried):
                holder[column] = row
                return True
        return False

    return next((row for row in range(len(fits)) if not place(row, set())), None)


def _difference(expected: ExpectedCall, call: ToolCall, tool: ToolDefinition | None) -> str | None:
    """Why a call is not the expected one, or None where it is."""
    if tool is None or call.name != expected.name:
        return f"{call.name!r} was called instead of {expected.name!r}"
    if call.arguments is None:
        return f"the arguments cannot be read: {call.problem}"
    known = tool.parameters.get("properties", {})
    for name in tool.parameters.get("required", ()):
        if name not in call.arguments and _LEFT_OUT not in expected.arguments.get(
            name, [_LEFT_OUT]
        ):
            return f"the required parameter {name!r} is missing"
    for name, value in call.arguments.items():
        if name not in known:
            return f"{call.name!r} has no parameter {name!r}"
        reason = _value_problem(name, value, known[name], expected.arguments.get(name))
        if reason is not None:
            return reason
    for name, accepted in expected.arguments.items():
        if name not in call.arguments and not _holds(accepted, _LEFT_OUT):
            return f"the parameter {name!r} is missing"
    return None


def _value_problem(name: str, value: Any, schema: Any, accepted: list[Any] | None) -> str | None:
    if accepted is None:
        return f"the parameter {name!r} was not expected"
    if any(alike(value, one) for one in accepted if one != _LEFT_OUT or value == _LEFT_OUT):
        return None
    check = compile_check({"type": schema["type"]}) if "type" in schema else None
    if check is not None and not check(value):
        return f"the parameter {name!r} is {type(value).__name__}, not {schema['type']}"
    return f"the parameter {name!r} is {value!r}, which is not accepted"


def _holds(accepted: Sequence[Any], value: Any) -> bool:
    return any(type(one) is type(value) and one == value for one in accepted)


def alike(value: Any, accepted: Any) -> bool:
    """Whether a value is an accepted one.

    >>> alike("New-York", "new york"), alike(3, 3.0), alike(True, 1), alike([1, "A"], [1, "a"])
    (True, True, False, True)
    >>> alike({"size": "L"}, {"size": ["l", "large"], "sugar": [""]})
    True
    """
    if isinstance(value, str) and isinstance(accepted, str):
        return standardized(value) == standardized(accepted)
    if is_number(value) and is_number(accepted):
        return bool(value == accepted)
    if isinstance(value, list) and isinstance(accepted, list):
        return len(value) == len(accepted) and all(map(alike, value, accepted))
    if isinstance(value, Mapping) and isinstance(accepted, Mapping):
        return _object_alike(value, accepted)
    return same(value, accepted)


def _object_alike(value: Mapping[str, Any], accepted: Mapping[str, Any]) -> bool:
    """Inside an object each key has a list of its accepted values again."""
    if any(key not in accepted for key in value):
        return False
    for key, options in accepted.items():
        choices = options if isinstance(options, list) else [options]
        if key not in value:
            if not _holds(choices, _LEFT_OUT):
                return False
        elif not (any(alike(value[key], one) for one in choices) or alike(value[key], options)):
            return False
    return True


def standardized(text: str) -> str:
    """The text as it is compared: without case, white space and most punctuation."""
    return _NOISE.sub("", text).lower()
