"""One canonical JSON form: what is hashed, what is logged and what is compared.

Keys sorted, no white space, UTF-8, as `orjson` writes it. Values that JSON or orjson cannot carry
(integers beyond 64 bits, lone surrogates, foreign objects) are turned into the nearest value that
can be carried, so that no reply, however odd, can stop a log from being written.
"""

from __future__ import annotations

import math
from typing import Any

import orjson

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
"""The integers that orjson writes and reads exactly."""

_DEEPEST = 200
"""Nesting allowed in a logged value; orjson itself stops at 254."""


def canonical(value: Any) -> bytes:
    """The canonical JSON bytes of a value; equal values give equal bytes."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, orjson.JSONEncodeError):
        return orjson.dumps(clean(value), option=orjson.OPT_SORT_KEYS)


def canonical_text(value: Any) -> str:
    """`canonical` as text."""
    return canonical(value).decode()


def clean(value: Any, depth: int = 0) -> Any:
    """The nearest plain JSON value: foreign objects become text, bad Unicode is replaced."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int):
        return int(value) if _INT_MIN <= value <= _INT_MAX else _long_integer(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth >= _DEEPEST:
        return "(nested too deeply)"
    if isinstance(value, dict):
        return {clean(str(key)): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(item, depth + 1) for item in value]
    return clean(_text(value))


def _long_integer(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # beyond Python's limit for printing integers
        return f"(integer of {value.bit_length()} bits)"


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # a foreign __str__ may do anything
        return f"({type(value).__name__}: {type(error).__name__})"
