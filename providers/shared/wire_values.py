"""Values of a wire as what they should be, or as nothing: a host may say anything."""

from __future__ import annotations

from typing import Any


def text_or_none(value: Any) -> str | None:
    """The text; None where there is none, an empty one, or something else.

    >>> text_or_none("a"), text_or_none(""), text_or_none(["a"])
    ('a', None, None)
    """
    return value if isinstance(value, str) and value else None


def count(value: Any) -> int | None:
    """The number of tokens; None where there is none.

    >>> count(3), count("3"), count(True), count(2.0)
    (3, None, None, 2)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if value == value and abs(value) < 2**53 else None
