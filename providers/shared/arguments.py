"""Parse the JSON text of a tool call's arguments strictly, and describe what is wrong with it.

Broken text is never repaired or replaced by `{}`: the call carries the problem instead.
"""

from __future__ import annotations

import json
from typing import Any

_MAX_CHARACTERS = 1_000_000
"""Longer argument text is refused unread."""


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """The arguments and None; or None and a description of the problem with its position.

    Accepts a JSON object without duplicate keys, NaN or Infinity. A JSON *string* that contains such an
    object is decoded once more, because some hosts encode arguments twice. Empty text means no arguments:
    hosts send it for tools without parameters.
    """
    if not text.strip():
        return {}, None
    if len(text) > _MAX_CHARACTERS:
        return (None, f"the arguments are {len(text)} characters long; the limit is {_MAX_CHARACTERS}")
    try:
        value = _load_strict_json(text)
        if isinstance(value, str):
            value = _load_strict_json(value)
    except json.JSONDecodeError as error:
        return None, (
            f"the arguments are not valid JSON: {error.msg} at line {error.lineno} "
            f"column {error.colno} (character {error.pos})"
        )
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return None, f"the arguments are not valid JSON: {reason}"
    if not isinstance(value, dict):
        return None, f"the arguments are a JSON {_name_json_type(value)}, not an object"
    return value, None


def _load_strict_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_build_object, parse_constant=_refuse_constant)


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. Raises ValueError for a duplicate key."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {duplicate!r} occurs twice")
    return result


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _name_json_type(value: Any) -> str:
    if value is None:
        return "null"
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "value")
