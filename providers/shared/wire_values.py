"""Read single values from a host's JSON, and return None for a value of the wrong type."""

from __future__ import annotations

from typing import Any


def read_string(value: Any) -> str | None:
    """The value if it is non-empty text, else None.

    >>> read_string("a"), read_string(""), read_string(["a"])
    ('a', None, None)
    """
    return value if isinstance(value, str) and value else None


def read_token_count(value: Any) -> int | None:
    """The value as an integer number of tokens; None if it is no finite number below 2**53.

    >>> read_token_count(3), read_token_count("3"), read_token_count(True), read_token_count(2.0)
    (3, None, None, 2)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if value == value and abs(value) < 2**53 else None
