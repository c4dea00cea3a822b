"""Salts: the random text in each record, so that nobody can guess erased content from its hash."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode

SALT_CHARACTERS = 22
"""132 random bits."""

_DRAWN_AT_ONCE = 64

_ready_salts: list[str] = []
"""Salts that no record has yet. One `pop` takes each, which is atomic: no two threads get the same."""


def generate_salt() -> str:
    """A random text of 22 characters that nothing else has had.

    The system is asked for many at once: a call of it for each record would cost a twentieth of an iteration.
    """
    try:
        return _ready_salts.pop()
    except IndexError:
        salts = _draw_salts()
        salt = salts.pop()
        _ready_salts.extend(salts)
        return salt


def _draw_salts() -> list[str]:
    text = urlsafe_b64encode(os.urandom(_DRAWN_AT_ONCE * SALT_CHARACTERS * 3 // 4)).decode()
    return [text[start : start + SALT_CHARACTERS] for start in range(0, len(text), SALT_CHARACTERS)]


if hasattr(os, "register_at_fork"):
    # A forked child would give its records the salts of its parent's, and erasing one side would not help.
    os.register_at_fork(after_in_child=_ready_salts.clear)
