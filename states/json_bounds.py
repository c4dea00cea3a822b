"""How many values foreign JSON may have, counted over its text before any value is built.

A few bytes of JSON become an object of Python many times as large: 60 MB of `{},` take 1.5 GB. So a limit of
bytes bounds what is read, and a limit of values what is built. A value takes at least a byte, so a text of
fewer characters than values are allowed needs no count: the callers compare first, and ordinary replies cost
nothing.

| limit | value | what exceeds it |
| --- | --- | --- |
| `MAX_VALUES`, of a whole answer of a model | 1,000,000 | `bad_response`, not retryable |
| `MAX_STREAM_VALUES`, of all pieces of a streamed one | 2,800,000 | `bad_response`, not retryable |
| `MAX_VALUES`, of an answer to an HTTP tool | 1,000,000 | the call of the tool fails |
| `MAX_FILE_VALUES`, of a file to import | 2,000,000 | the import is refused |
"""

from __future__ import annotations

MAX_VALUES = 1_000_000
"""Most values of one document that a host sends: elements, members, and objects and lists themselves."""

MAX_STREAM_VALUES = 2_800_000
"""Most values of all pieces of a streamed answer: 22, as in the largest known piece of one token, for
each token of the longest replies (128,000). They are counted after the first `MAX_VALUES` bytes."""

MAX_FILE_VALUES = 2_000_000
"""Most values of a file that a person imports: some 250,000 messages."""

_PIECE = 2**18
"""Characters that are looked at in one step, so that the count needs no copy of the text."""


def has_more_values(text: bytes | str, limit: int) -> bool:
    """Whether a JSON text has more values than `limit`, as `count_values` counts; nothing is built.

    >>> has_more_values('[{}, "a, b", {"c": 1}]', 10), has_more_values('[{}, "a, b", {"c": 1}]', 9)
    (False, True)
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    # This counts what stands in strings too, and is most often enough.
    return _count_places(text) > limit and count_values(text, limit) > limit


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
    places, start, is_in_string = 1, 0, False
    while start < len(text):
        end = start + _PIECE
        while text[end - 1 : end] == b"\\":  # an escape is not cut
            end += 1
        pieces = text[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b" ".join(pieces[is_in_string::2])
        places += _count_places(outside) - 1
        if places > limit:
            return places
        is_in_string ^= len(pieces) % 2 == 0
        start = end
    return places


def _count_places(text: bytes) -> int:
    return 1 + text.count(b",") + text.count(b"[") + 3 * text.count(b"{")
