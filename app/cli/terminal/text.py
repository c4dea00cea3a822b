"""Text for people: harmless on a terminal, cut to one line, styled where that is wanted.

Models and tools write what they like. On a terminal an escape sequence of theirs could move the cursor,
rewrite what was shown or set the clipboard, so control characters are shown as what they are.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, TextIO

import click

_CONTROL = {
    number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if number not in (9, 10)
}
"""Every control character but tab and line end. Source: Unicode category Cc."""

_WIDTH = 120
"""Columns where the output is no terminal."""


def printable(text: str) -> str:
    """The text with control characters made visible; tabs and line ends stay."""
    return text.replace("\r\n", "\n").translate(_CONTROL)


def short(text: str, most: int) -> str:
    """One printable line of at most `most` characters."""
    text = printable(" ".join(text.split()))
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def talk(text: str) -> None:
    """Say something to the person, on stderr."""
    click.echo(printable(text), err=True)


def on_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal."""
    return stream is not None and stream.isatty()


def room() -> int:
    """Columns that a line of stdout may fill."""
    if not on_terminal(sys.stdout):
        return _WIDTH
    return max(40, shutil.get_terminal_size((_WIDTH, 40)).columns)


def styled(text: str, **style: Any) -> str:
    """The text in a style of `click.style`, on a terminal that wants colour."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not on_terminal(sys.stdout) else click.style(text, **style)
