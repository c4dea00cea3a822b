"""Conversion of any Python value to JSON data. Imports only the standard library, since every host of bounded
work loads it."""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any

MAX_DEPTH = 100
"""Levels of nesting that are converted; a deeper value is replaced by a short text."""


def to_json_data(value: Any, depth: int = 0) -> Any:
    """Convert a value to JSON data: dates to ISO text, bytes to base64, models and dataclasses to
    objects.

    Other types become their `str`. NaN and the infinities become text instead of null, so that the
    model can tell them apart.
    """
    if value is None or type(value) in (bool, str, int):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if depth >= MAX_DEPTH:
        return "(nested too deeply)"
    if isinstance(value, Mapping):
        return {_to_key_text(key): to_json_data(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json_data(item, depth + 1) for item in _iterate_in_order(value)]
    if hasattr(value, "model_dump"):
        return to_json_data(value.model_dump(mode="json"), depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: to_json_data(getattr(value, field.name), depth + 1) for field in fields}
    return _convert_scalar(value)


def _to_key_text(key: Any) -> str:
    return key if type(key) is str else str(to_json_data(key))


def _iterate_in_order(value: Iterable[Any]) -> Iterable[Any]:
    """Sorts sets, so that equal results are logged as equal records."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=lambda item: (type(item).__name__, str(item)))
    return value


def _convert_scalar(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return to_json_data(value.value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)
