"""Names that were misspelt: the nearest one that is known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known name, or with all of them."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(names)
