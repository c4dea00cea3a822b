"""How many values foreign JSON may have, counted over its text before any value is built.

A few bytes of JSON become an object of Python many times as large: 60 MB of `{},` take 1.5 GB. So a limit of
bytes bounds what is read, and a limit of values what is built. A value takes at least a byte, so a text of
fewer characters than values are allowed needs no count: the callers compare first, and ordinary replies cost
nothing.

| limit | value | what exceeds it |
| --- | --- | --- |
| `MAX_VALUES`, of an answer of a model or a piece of it | 1,000,000 | `bad_response`, not retryable |
| `MAX_VALUES`, of an answer to an HTTP tool | 1,000,000 | the call of the tool fails |
| `MAX_FILE_VALUES`, of a file to import | 2,000,000 | the import is refused |
"""

from __future__ import annotations

MAX_VALUES = 1_000_000
"""Most values of one document that a host sends: elements, members, and objects and lists themselves."""

MAX_FILE_VALUES = 2_000_000
"""Most values of a file that a person imports: some 250,000 messages."""

_PIECE = 2**18
"""Characters that are looked at in one step, so that the count needs no copy of the text."""


def has_more_values(text: bytes | str, limit: int) -> bool:
    """Whether a JSON text has more values than `limit`; nothing is built.

    An empty object or list counts as two values. A text that is no JSON is counted at least up to the place
    where a parser stops.

    >>> has_more_values('[{}, "a, b", {"c": 1}]', 6), has_more_values('[{}, "a, b", {"c": 1}]', 5)
    (False, True)
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    # Each value but the first stands behind a comma or an opening bracket. This counts those in strings too.
    if _count_places(text) <= limit:
        return False
    if b"\0" in text:  # no UTF-8, in which quotes and backslashes are single bytes
        return True
    places, start, is_in_string = 1, 0, False
    while start < len(text):
        end = start + _PIECE
        while text[end - 1 : end] == b"\\":  # an escape is not cut
            end += 1
        pieces = text[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b" ".join(pieces[is_in_string::2])
        places += _count_places(outside) - 1
        if places > limit:
            return True
        is_in_string ^= len(pieces) % 2 == 0
        start = end
    return False


def _count_places(text: bytes) -> int:
    return 1 + text.count(b",") + text.count(b"{") + text.count(b"[")
