"""Any Python value to JSON data. Uses the standard library alone: a tool's own process loads it
too."""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any

DEEPEST = 100
"""Nesting that is kept; what lies deeper becomes a remark."""


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON data: dates as ISO text, bytes as base64, models and dataclasses as
    objects.

    What JSON has no word for becomes its text; NaN and the infinities become text, not null, so
    that the model can tell them apart.
    """
    if value is None or type(value) in (bool, str, int):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if depth >= DEEPEST:
        return "(nested too deeply)"
    if isinstance(value, Mapping):
        return {_key(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in _ordered(value)]
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"), depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name), depth + 1) for field in fields}
    return _word(value)


def _key(key: Any) -> str:
    return key if type(key) is str else str(plain(key))


def _ordered(value: Iterable[Any]) -> Iterable[Any]:
    """Sets in a fixed order, so that the same result is logged the same way."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=lambda item: (type(item).__name__, str(item)))
    return value


def _word(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)
