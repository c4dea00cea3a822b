"""Canonical JSON: the one form of a value that is hashed, logged and compared.

Keys are sorted, there is no white space, and the text is UTF-8, as `orjson` writes it. Values that JSON or
orjson cannot represent (integers beyond 64 bits, lone surrogates, other objects) become the nearest value
that they can represent. So no reply of a model can prevent a log record from being written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import orjson

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
"""Range of the integers that orjson writes and reads exactly."""

_MAX_DEPTH = 200
"""Nesting allowed in a logged value; orjson itself stops at 254."""


def encode_canonical(value: Any) -> bytes:
    """The canonical JSON bytes of a value; equal values give equal bytes."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, orjson.JSONEncodeError):
        return orjson.dumps(make_json_safe(value), option=orjson.OPT_SORT_KEYS)


def encode_canonical_text(value: Any) -> str:
    """The canonical JSON of a value as text."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, orjson.JSONEncodeError):
        return encode_canonical(value).decode()


def encode_escaped_json(
    value: Any, *, is_indented: bool = False, describe_other: Callable[[Any], Any] | None = None
) -> bytes:
    """The JSON of a value for other programs and people: valid UTF-8, whatever a log or a model has put in.

    Keys keep their order. Lone surrogates are escaped (`\\ud800`), integers keep all their digits, NaN and
    infinity are null.

    Args:
        describe_other: gives JSON data for objects of other types.

    Raises:
        TypeError: there is such an object, and nothing describes it.
    """
    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if is_indented else 0)
    try:
        return orjson.dumps(value, default=describe_other, option=option)
    except TypeError:  # orjson writes neither a lone surrogate nor an integer beyond 64 bits
        indent, separators = (2, None) if is_indented else (None, (",", ":"))
        data = _drop_infinities(value)
        return json.dumps(data, default=describe_other, indent=indent, separators=separators).encode()


def is_whole_number(text: str) -> bool:
    """Whether a text is a whole number for `int`, in ASCII digits: `"\xb2".isdigit()` is true as well.

    >>> is_whole_number("12"), is_whole_number("\xb2"), is_whole_number("9" * 5000)
    (True, False, False)
    """
    return text.isascii() and text.isdigit() and len(text) <= 40


def has_only_finite_numbers(value: Any) -> bool:
    """Whether no number of JSON data is NaN or infinite, which is how a number out of range is read."""
    pending = [value]
    for item in pending:
        kind = type(item)
        if kind is dict:
            pending += item.values()
        elif kind is list:
            pending += item
        elif kind is float and not math.isfinite(item):
            return False
    return True


def parse_finite_float(text: str) -> float:
    """A number of a JSON text. Raises ValueError where no float can hold it, as for `1e999`."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is a number out of range")
    return number


def _drop_infinities(value: Any) -> Any:
    """The value with null for each number that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _drop_infinities(item) for key, item in value.items()}
    return [_drop_infinities(item) for item in value] if isinstance(value, (list, tuple)) else value


def make_json_safe(value: Any, path: tuple[int, ...] = ()) -> Any:
    """The nearest JSON value: other objects become text, and invalid Unicode is replaced.

    Args:
        path: the `id` of each container that the value stands in. One that stands in itself ends there: each
            way around it would be written out, and their number may double with each level.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int):
        return int(value) if _INT_MIN <= value <= _INT_MAX else _encode_long_integer(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if len(path) >= _MAX_DEPTH:
        return "(nested too deeply)"
    if id(value) in path:
        return "(refers to itself)"
    inner_path = (*path, id(value))
    if isinstance(value, dict):
        return {make_json_safe(str(key)): make_json_safe(item, inner_path) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [make_json_safe(item, inner_path) for item in value]
    return make_json_safe(_describe_object(value))


def _encode_long_integer(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # beyond Python's limit for printing integers
        return f"(integer of {value.bit_length()} bits)"


def _describe_object(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # an unknown class may raise anything in __str__
        return f"({type(value).__name__}: {type(error).__name__})"


ABSENT = type("Absent", (), {"__repr__": lambda self: "nothing"})()
"""Stands for a part that one of two compared values does not have."""


def find_json_differences(
    left: Any, right: Any, pointer: str = "", *, splits_lists: bool = True
) -> Iterator[tuple[str, Any, Any]]:
    """Every innermost place where two JSON values differ: its JSON pointer and both values there.

    Args:
        pointer: JSON pointer of the two values, with which every pointer in the result begins.
        splits_lists: whether each item that only the longer of two lists has is a difference of its own.
            Otherwise the two lists are one difference, after those of their common items.
    """
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = [*left, *(key for key in right if key not in left)]
        children = [(key, left.get(key, ABSENT), right.get(key, ABSENT)) for key in keys]
    elif isinstance(left, list) and isinstance(right, list):
        longest = zip_longest(left, right, fillvalue=ABSENT)
        pairs = longest if splits_lists else zip(left, right, strict=False)
        children = [(index, *pair) for index, pair in enumerate(pairs)]
    else:
        if left != right or isinstance(left, bool) != isinstance(right, bool):
            yield pointer, left, right
        return
    for key, left_child, right_child in children:
        inner = extend_pointer(pointer, key)
        yield from find_json_differences(left_child, right_child, inner, splits_lists=splits_lists)
    if not splits_lists and isinstance(left, list) and len(left) != len(right):
        yield pointer, left, right


def find_first_difference(pointer: str, expected: Any, actual: Any) -> tuple[str, Any, Any]:
    """JSON pointer to the first innermost difference of two JSON values, and both values there.

    A missing key counts as null. If there is no difference, the two values themselves are given.
    """
    differences = find_json_differences(expected, actual, pointer, splits_lists=False)
    for place, left, right in differences:
        left_value, right_value = (None if value is ABSENT else value for value in (left, right))
        if left_value != right_value:
            return place, left_value, right_value
    return pointer, expected, actual


def extend_pointer(pointer: str, key: object) -> str:
    """The JSON pointer of a child. Source: RFC 6901."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
