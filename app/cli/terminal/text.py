"""Text for people: control characters escaped, lines shortened, styles where the terminal supports them.

Models and tools can write any text. On a terminal an escape sequence in it could move the cursor, overwrite
earlier output or set the clipboard. Therefore control characters are printed as `\\x1b` and the like.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, TextIO

import click

_CONTROL = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if number not in (9, 10)}
"""Every control character but tab and line end. Source: Unicode category Cc."""

_WIDTH = 120
"""Columns of a line if stdout is not a terminal."""


def escape_controls(text: str) -> str:
    """Return the text with control characters escaped, except tabs and line ends."""
    return text.replace("\r\n", "\n").translate(_CONTROL)


def shorten(text: str, limit: int) -> str:
    """Return the text as one line of at most `limit` characters, with control characters escaped."""
    text = escape_controls(" ".join(text.split()))
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def print_notice(text: str) -> None:
    """Print a message for the person on stderr."""
    click.echo(escape_controls(text), err=True)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal."""
    return stream is not None and stream.isatty()


def terminal_width() -> int:
    """Return the number of columns that a line of stdout may fill."""
    if not is_terminal(sys.stdout):
        return _WIDTH
    return max(40, shutil.get_terminal_size((_WIDTH, 40)).columns)


def style_text(text: str, **style: Any) -> str:
    """Return the text in a style of `click.style` if stdout is a terminal that supports colour."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if is_plain or not is_terminal(sys.stdout) else click.style(text, **style)
