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
from typing import Any, NoReturn, cast

from toolchart.workers.error_text import describe_error
from toolchart.workers.returned_values import MAX_ITEMS, ItemBudget, UnusableResult, is_iterator, read_items

MAX_DEPTH = 100
"""Levels of nesting that are converted; a deeper value is replaced by a short text."""

MAX_INTEGER_BITS = 14_000
"""Bits of the longest integer: Python writes and reads no more than 4,300 digits."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = (dict, list, tuple)

_ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-f]{4,}")
"""A place in memory, as the `repr` of an object without a better one has it: it tells a reader nothing."""

_ADVICE = "return text, numbers, lists and dicts, a dataclass or a pydantic model"


def to_json_data(value: Any) -> Any:
    """Convert a value to JSON data: dates to ISO text, bytes to base64, models and dataclasses to
    objects (named tuples too), arrays and iterators to lists, an exception among other values to its text.

    Other types become their `str`, where it says what they are. NaN and the infinities become text instead
    of null, so that the model can tell them apart.

    Raises:
        UnusableResult: a value has no text of its own (a function, a module, an open file, `<... at 0x...>`),
            an iterator gives too many items, two keys of an object are the same text, a value refers to
            itself or has the same parts too often, an integer is too long, or its own code failed.
    """
    try:
        return _Conversion().convert(value, 0)
    except (UnusableResult, RecursionError, MemoryError):
        raise
    except Exception as error:  # properties and iterators of the value may raise anything
        raise UnusableResult(f"the result cannot be read: {describe_error(error)}") from error


def has_few_repeats(value: dict[str, Any] | list[Any] | tuple[Any, ...]) -> bool:
    """Whether JSON data can be written as it stands: each path to a shared part is written out, and their
    number may double with each level."""
    pending, seen, repeats = [cast(Any, value)], set[int](), 0
    while pending:
        item = pending.pop()
        if id(item) in seen:
            repeats += 1 + len(item)
            if repeats > MAX_ITEMS:
                return False
        seen.add(id(item))
        parts: Iterable[Any] = dict.values(item) if isinstance(item, dict) else item
        pending += [part for part in parts if type(part) not in _SCALARS and isinstance(part, _CONTAINERS)]
    return True


class _Conversion:
    """The conversion of one result."""

    def __init__(self) -> None:
        self._budget = ItemBudget()
        self._place: list[str] = []
        """The keys and positions down to the value that is converted now, for errors."""
        self._open: set[int] = set()
        """The `id` of each value down to the one that is converted now: met again, it is a part of itself."""
        self._seen: dict[int, Any] = {}
        """Every value that has parts, by its `id`. Each path to a shared one is written out, and their number
        may double with each level; so the items of one that is met again are counted."""

    def convert(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is str or kind is bool:
            return value
        if kind is int:
            return value if value.bit_length() <= MAX_INTEGER_BITS else self._refuse_integer(value)
        if kind is float:
            return value if math.isfinite(value) else str(value)
        if depth >= MAX_DEPTH:
            return "(nested too deeply)"
        place = id(value)
        if place in self._open:
            raise UnusableResult(f"{self._name_place()} refers to itself: return it without the way back")
        if place in self._seen:
            self._budget.count_again(value)
        self._open.add(place)
        data = self._convert_parts(value, depth)
        self._open.discard(place)
        if type(data) in (dict, list):
            # The value too: its identity would be given to another one when it has gone.
            self._seen[place] = value
        return data

    def _convert_parts(self, value: Any, depth: int) -> Any:
        if isinstance(value, Mapping):
            is_made = not isinstance(value, dict)  # by code of its own, which may have no end
            return self._convert_items(self._count(value.items()) if is_made else value.items(), depth)
        field_names = getattr(type(value), "_fields", None) if isinstance(value, tuple) else None
        if isinstance(field_names, tuple):
            return self._convert_items(zip(field_names, value, strict=True), depth)
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
        return self._convert_items(((key, value[key]) for key in self._count(value.keys())), depth)

    def _count(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._budget.count(item)
            yield item

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
            return self.convert(int(value), depth + 1)
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

    def _refuse_integer(self, value: int) -> NoReturn:
        raise UnusableResult(
            f"{self._name_place()} is an integer of {value.bit_length()} bits, too long to write out: "
            f"at most {MAX_INTEGER_BITS} bits, or return it as a text"
        )

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
