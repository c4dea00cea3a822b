"""Text in diagrams: what cannot be seen is made visible, long lines are wrapped, widths are measured.

A name or a message may come from a foreign log. A control character would break XML, and a bidirectional
control would show a text in another order than it has.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def measure_width(text: str) -> int:
    """Columns of a text in a monospaced font: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def wrap_text(text: str, columns: int) -> list[str]:
    """The text in lines of about this many columns, broken at spaces, or in a word that is longer."""
    return textwrap.wrap(text, columns, break_long_words=True, break_on_hyphens=False) or [""]


def shorten_text(text: str, limit: int) -> str:
    """The text with at most `limit` characters; a longer one ends in three dots."""
    return text if len(text) <= limit else text[: max(limit - 3, 0)] + "..."


def make_token(name: str) -> str:
    """A name as one word of letters, digits, `_` and `-`: for ids, classes and Mermaid.

    A name of ASCII letters, digits and underscores is its own word. In any other name each other character
    becomes `-HEX-`, so that two names never share a word.
    """
    if _IDENTIFIER.fullmatch(name):
        return name
    return "".join(c if re.fullmatch(r"[A-Za-z0-9_]", c) else f"-{ord(c):x}-" for c in name) or "--"
