"""Text for people: deceptive characters visible, known secrets struck, lines shortened, styled if possible.

Every text that a command prints for a person passes `escape_controls`; see `states/visible_text.py`.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, TextIO

import click

from toolchart.app.cli.terminal.output import echo, get_output
from toolchart.specs.secrets import strike_secrets
from toolchart.states.visible_text import make_visible, make_visible_line

_WIDTH = 120
"""Columns of a line if stdout is not a terminal."""


def escape_controls(text: str) -> str:
    """Return the text with deceptive characters visible and known secrets struck; tabs and line ends stay."""
    return make_visible(strike_secrets(text))


def escape_line(text: str) -> str:
    """As `escape_controls`, on one line: for names and ids."""
    return make_visible_line(strike_secrets(text))


def print_text(text: str) -> None:
    """Print a text for the person on stdout."""
    echo(escape_controls(text))


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
    if not is_terminal(get_output()):
        return _WIDTH
    return max(40, shutil.get_terminal_size((_WIDTH, 40)).columns)


def style_text(text: str, **style: Any) -> str:
    """Return the text in a style of `click.style` if stdout is a terminal that supports colour."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if is_plain or not is_terminal(get_output()) else click.style(text, **style)
