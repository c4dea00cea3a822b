"""Argument text to arguments: one strict reading, never a guess, and never `{}` for what is broken."""

from __future__ import annotations

import json
from typing import Any

_MOST = 1_000_000
"""Characters of argument text that are read at all."""


def parse_arguments(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """The arguments, or None and the problem with its position.

    JSON only: an object, no key twice, no NaN or Infinity. Text that holds a JSON *string* with an
    object in it (encoded twice, as some hosts do) is read once more. Empty text means no arguments,
    as hosts send it for tools without parameters.
    """
    if not text.strip():
        return {}, None
    if len(text) > _MOST:
        return None, f"the arguments are {len(text)} characters long; at most {_MOST} are read"
    try:
        value = _strict(text)
        if isinstance(value, str):
            value = _strict(value)
    except json.JSONDecodeError as error:
        return None, (
            f"the arguments are not valid JSON: {error.msg} at line {error.lineno} "
            f"column {error.colno} (character {error.pos})"
        )
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        return None, f"the arguments are not valid JSON: {reason}"
    if not isinstance(value, dict):
        return None, f"the arguments are a JSON {_kind(value)}, not an object"
    return value, None


def _strict(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice")
    return result


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "value")
