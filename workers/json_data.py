"""Conversion of any Python value to JSON data. Imports only the standard library, since every host of bounded
work loads it."""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
import re
from collections import UserString
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from typing import Any

from toolchart.workers.error_text import describe_error
from toolchart.workers.returned_values import ItemBudget, UnusableResult, is_iterator, read_items

MAX_DEPTH = 100
"""Levels of nesting that are converted; a deeper value is replaced by a short text."""

_ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-f]{4,}")
"""A place in memory, as the `repr` of an object without a better one has it: it tells a reader nothing."""

_ADVICE = "return text, numbers, lists and dicts, a dataclass or a pydantic model"


def to_json_data(value: Any) -> Any:
    """Convert a value to JSON data: dates to ISO text, bytes to base64, models and dataclasses to
    objects, arrays and iterators to lists, an exception among other values to its text.

    Other types become their `str`, where it says what they are. NaN and the infinities become text instead
    of null, so that the model can tell them apart.

    Raises:
        UnusableResult: a value has no text of its own (a function, a module, an open file, `<... at 0x...>`),
            an iterator gives too many items, two keys of an object are the same text, or its own code failed.
    """
    try:
        return _Conversion().convert(value, 0)
    except (UnusableResult, RecursionError, MemoryError):
        raise
    except Exception as error:  # properties and iterators of the value may raise anything
        raise UnusableResult(f"the result cannot be read: {describe_error(error)}") from error


class _Conversion:
    """The conversion of one result."""

    def __init__(self) -> None:
        self._budget = ItemBudget()
        self._place: list[str] = []
        """The keys and positions down to the value that is converted now, for errors."""

    def convert(self, value: Any, depth: int) -> Any:
        if value is None or type(value) in (bool, str, int):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else str(value)
        if depth >= MAX_DEPTH:
            return "(nested too deeply)"
        if isinstance(value, Mapping):
            return self._convert_items(value.items(), depth)
        if isinstance(value, (list, tuple)):
            return self._convert_list(value, depth)
        if isinstance(value, (set, frozenset)):
            # Sorted, so that equal results are logged as equal records.
            return self._convert_list(sorted(value, key=lambda item: (type(item).__name__, str(item))), depth)
        if isinstance(value, type):
            raise self._refuse(value)
        if hasattr(type(value), "model_dump"):
            return self.convert(value.model_dump(mode="json"), depth + 1)
        names = _list_field_names(value)
        if names is not None and {"data", "media_type"}.issubset(names) and hasattr(value, "read_bytes"):
            raise UnusableResult(
                f"{self._name_place()} is a part of the type {type(value).__name__}: a part stands alone or "
                "in a list, and comes from a tool that runs in a thread or on the event loop"
            )
        if names is not None:
            return self._convert_items([(name, getattr(value, name)) for name in names], depth)
        if is_iterator(value):
            return self._read(value, depth)
        if isinstance(value, (Sequence, Set, ValuesView)) and not isinstance(
            value, (str, bytes, bytearray, memoryview, UserString)
        ):
            return self._convert_keys(value, depth) if _has_keys(value) else self._read(iter(value), depth)
        return self._convert_scalar(value, depth)

    def _convert_keys(self, value: Any, depth: int) -> dict[str, Any]:
        return self._convert_items([(key, value[key]) for key in value.keys()], depth)  # noqa: SIM118

    def _convert_items(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, item in items:
            text = key if type(key) is str else str(self.convert(key, depth + 1))
            if text in data:
                raise UnusableResult(
                    f"{self._name_place()} has two keys that are the same text in JSON: {text!r}"
                )
            self._place.append(text if not self._place else f".{text}")
            data[text] = self.convert(item, depth + 1)
            self._place.pop()
        return data

    def _convert_list(self, items: Iterable[Any], depth: int) -> list[Any]:
        data = []
        for position, item in enumerate(items):
            self._place.append(f"[{position}]")
            data.append(self.convert(item, depth + 1))
            self._place.pop()
        return data

    def _read(self, source: Iterator[Any], depth: int) -> Any:
        return self.convert(read_items(source, self._budget), depth + 1)

    def _convert_scalar(self, value: Any, depth: int) -> Any:
        if isinstance(value, enum.Enum):
            return self.convert(value.value, depth + 1)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return base64.b64encode(bytes(value)).decode("ascii")
        if isinstance(value, str):
            return str(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return self.convert(float(value), depth + 1)
        if isinstance(value, BaseException):
            return describe_error(value)
        kind = type(value)
        if hasattr(kind, "isoformat"):
            return value.isoformat()
        if hasattr(kind, "tolist"):  # arrays, whose text leaves out the items in the middle
            return self.convert(value.tolist(), depth + 1)
        text = _read_own_text(value)
        if text is not None:
            return text
        if _has_keys(value):
            return self._convert_keys(value, depth)
        if hasattr(kind, "__iter__") and not hasattr(value, "read"):
            return self._read(iter(value), depth)
        raise self._refuse(value)

    def _refuse(self, value: Any) -> UnusableResult:
        kind = type(value)
        what = f"the class {value.__name__}" if isinstance(value, type) else f"of the type {kind.__name__}"
        return UnusableResult(f"{self._name_place()} is {what}, which is no plain data: {_ADVICE}")

    def _name_place(self) -> str:
        return f"{''.join(self._place)!r} in the result" if self._place else "the result"


def _has_keys(value: Any) -> bool:
    """Whether a value can be read as `dict` reads it, as the rows of databases can."""
    return hasattr(type(value), "keys") and hasattr(type(value), "__getitem__")


def _list_field_names(value: Any) -> tuple[str, ...] | None:
    """The fields of a dataclass, or of a class that attrs or msgspec has made; None for others."""
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if hasattr(kind, "__attrs_attrs__"):
        return tuple(attribute.name for attribute in kind.__attrs_attrs__)
    return getattr(kind, "__struct_fields__", None)


def _read_own_text(value: Any) -> str | None:
    """What a value says of itself; None where that is a placeholder.

    Python's convention for the `repr` of an object that no text can stand for is a text in angle brackets;
    a class with a `__str__` of its own may mean such a text, as an XML element does.
    """
    if value is Ellipsis or value is NotImplemented:
        return None
    try:
        text = str(value)
    except Exception:  # an unknown class may raise anything in __str__
        return None
    is_placeholder = text.startswith("<") and text.endswith(">") and type(value).__str__ is object.__str__
    return None if is_placeholder or _ADDRESS.search(text) else text
