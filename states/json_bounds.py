"""The one reader of JSON from outside: its values and its depth are counted before any value is built.

A few bytes of JSON become an object of Python many times as large: 60 MB of `{},` take 1.5 GB. So a limit of
bytes bounds what is read, and a limit of values what is built. A value takes more than half a byte, so a text
of half as many characters as values are allowed needs no count: ordinary replies cost nothing. What is nested
deeply would exhaust the stack, here or in whatever walks over the value later.

Both counts are sums over the bytes, in pieces: their time grows with the length of the text and with nothing
else.

How many values each kind of text may have stands in `reading_limits.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from toolchart.states.reading_limits import READING, name_limit

ValueLimit = Literal["reply_values", "tool_values", "file_values", "record_values"]
"""The limit of values that counts for a text (`ReadingLimits`)."""

MAX_VALUES = 1_000_000
"""Values of a text that is read again whenever a conversation is: of a result, of arguments. It is the same
everywhere, so that the same request is made of the same log."""

MAX_DEPTH = 190
"""How deep lists and objects may be nested: a log takes 200, and more stands around a value there."""

MAX_RECORD_DEPTH = 210
"""How deep a line of a log file may be nested."""

_SHORT = 2 * MAX_DEPTH
"""Bytes in which no JSON can be nested deeper than `MAX_DEPTH`: each bracket has its partner."""

_PIECE = 2**18
"""Characters that are looked at in one step, so that the count needs no copy of the text."""


class ExcessError(ValueError):
    """A JSON text has more values or is nested deeper than it may be; the message has the limit."""


class DepthError(ExcessError):
    """It is nested deeper than it may be."""


def parse_foreign_json(text: bytes | str, limit: ValueLimit | None = None, **hooks: Any) -> Any:
    """The value of a JSON text from outside, which is counted first, as `count_values` counts.

    Args:
        limit: names how many values it may have; `MAX_VALUES` without it.
        hooks: of `json.loads`.

    Raises:
        ExcessError: it has more values, or is nested deeper than `MAX_DEPTH`; nothing was built.
        ValueError: it is not JSON.
    """
    if text[_SHORT : _SHORT + 1]:
        check_foreign_json(text, limit)
    try:
        return json.loads(text, **hooks)
    except RecursionError:  # a text that is no JSON, or a stack that was nearly full before
        raise DepthError("it is nested too deeply") from None


def check_foreign_json(
    text: bytes | str, limit: ValueLimit | None = None, *, max_depth: int = MAX_DEPTH
) -> None:
    """Refuse a JSON text from outside that is too large to build; for who reads it with another parser.

    Raises:
        ExcessError: it has more values, or is nested deeper.
    """
    max_values = getattr(READING, limit) if limit else MAX_VALUES
    if has_more_values(text, max_values):
        problem = f"it has more than {max_values:,} JSON values; none was read"
        raise ExcessError(f"{problem} {name_limit(limit)}" if limit else problem)
    if is_deeper(text, max_depth):
        raise DepthError(f"it is nested too deeply: more than {max_depth} lists and objects in each other")


def has_more_values(text: bytes | str, limit: int) -> bool:
    """Whether a JSON text has more values than `limit`, as `count_values` counts; nothing is built.

    >>> has_more_values('[{}, "a, b", {"c": 1}]', 10), has_more_values('[{}, "a, b", {"c": 1}]', 9)
    (False, True)
    """
    # `{},` is the shortest text of four values. A slice of one costs neither a call nor a copy.
    if not text[limit // 2 : limit // 2 + 1]:
        return False
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    # This counts what stands in strings too, and is most often enough.
    return _count_places(text) > limit and count_values(text, limit) > limit


def is_deeper(text: bytes | str, limit: int) -> bool:
    """Whether lists and objects of a JSON text are nested deeper than `limit`.

    >>> is_deeper('{"a": ["[[["]}', 2), is_deeper(b"[[[]]]", 2)
    (False, True)
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    if b"\0" in text:  # no UTF-8, in which no string can be told
        return True
    depth = 0
    for outside in _iterate_outside(text):
        for bracket in outside.translate(None, _NO_BRACKETS):
            depth += _STEPS[bracket]
            if depth > limit:
                return True
    return False


_STEPS = {91: 1, 123: 1, 93: -1, 125: -1}
"""What each bracket adds to the depth."""
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _STEPS)


def count_values(text: bytes, limit: int) -> int:
    """How many values a JSON text has; any number above `limit` where they are more. Nothing is built.

    An object counts as three values, for it takes as much memory, and an empty object or list as one more. A
    text that is no JSON is counted at least up to the place where a parser stops.

    >>> count_values(b'[{}, "a, b", {"c": 1}]', 100)
    10
    """
    # Each value but the first stands behind a comma or an opening bracket.
    if b"\0" in text:  # no UTF-8, in which quotes and backslashes are single bytes
        return _count_places(text)
    places = 1
    for outside in _iterate_outside(text):
        places += _count_places(outside) - 1
        if places > limit:
            break
    return places


def _iterate_outside(text: bytes) -> Iterator[bytes]:
    """What stands outside of the strings of a JSON text, piece by piece."""
    start, is_in_string = 0, False
    while start < len(text):
        end = start + _PIECE
        while text[end - 1 : end] == b"\\":  # an escape is not cut
            end += 1
        pieces = text[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b" ".join(pieces[is_in_string::2])
        is_in_string ^= len(pieces) % 2 == 0
        start = end


def _count_places(text: bytes) -> int:
    return 1 + text.count(b",") + text.count(b"[") + 3 * text.count(b"{")
