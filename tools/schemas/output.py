"""Structured output: reads text as a JSON object and checks it against a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

from toolchart.states.canonical_json import encode_canonical_text, parse_finite_float
from toolchart.states.errors import SpecError
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.response_format import require_schema
from toolchart.tools.schemas.checks import ArgumentCheck

MAX_OUTPUT = 1_000_000
"""Characters of a text that are read."""

_FENCE = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(?P<body>.*)\n\s*```\s*", re.DOTALL)


def parse_output(text: str, schema: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The object that a text holds under a schema.

    Returns:
        The object and an empty text; or None and what is wrong, as text for the model.
    """
    value, problem = _parse_json(text)
    if problem:
        return None, problem
    if not isinstance(value, dict):
        return None, f"it is not a JSON object, but {_name_type(value)}"
    wrong = check_output(value, schema)
    return (value, "") if wrong is None else (None, wrong)


def parse_value(text: str, schema: Mapping[str, Any] | None) -> tuple[Any, str]:
    """The JSON value that a text holds under a schema, which may be of any type.

    Args:
        schema: a JSON Schema; None allows any JSON.

    Returns:
        The value and an empty text; or None and what is wrong, as text for the model.
    """
    value, problem = _parse_json(text)
    if problem or schema is None:
        return value, problem
    try:
        check = _load_value_check(encode_canonical_text(schema))
    except SpecError as error:
        return None, str(error)
    wrong = check.describe_problem(value)
    return (value, "") if wrong is None else (None, _reword_problem(wrong, "the answer"))


def _parse_json(text: str) -> tuple[Any, str]:
    """The JSON value that a text is, and an empty text; or None and what is wrong.

    The whole text is JSON, or one fenced block of JSON. Nothing is repaired: a text that is nearly JSON may
    mean something else than it seems.
    """
    match = _FENCE.fullmatch(text)
    body = match.group("body") if match else text
    if len(body) > MAX_OUTPUT:
        return None, f"the text has more than {MAX_OUTPUT} characters"
    try:
        return parse_foreign_json(body, parse_constant=_refuse_constant, parse_float=parse_finite_float), ""
    except ValueError as error:
        return None, f"it is not JSON: {error}"


def check_output(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with a value under a schema; None where it fits."""
    problem = _load_check(encode_canonical_text(schema)).describe_problem(value)
    return _reword_problem(problem, "the object") if problem else None


def _reword_problem(problem: str, subject: str) -> str:
    return problem.replace("parameter ", "field ").replace("the arguments", subject)


@lru_cache(maxsize=256)
def _load_check(schema: str) -> ArgumentCheck:
    return ArgumentCheck(json.loads(schema), "output")


@lru_cache(maxsize=256)
def _load_value_check(schema: str) -> ArgumentCheck:
    """The check of a value of any type.

    Raises:
        SpecError: the schema itself is not valid.
    """
    data = json.loads(schema)
    require_schema(data)
    return ArgumentCheck(data, "output", is_trusted=True)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _name_type(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
