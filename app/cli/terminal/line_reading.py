"""Reads lines that a person types at the terminal, while the event loop goes on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import click

from toolchart.app.cli.terminal.text import escape_controls, is_terminal

ReadLine = Callable[[str], Awaitable[str | None]]
"""Shows a prompt and returns the next line, stripped; None where the person wants to answer later."""


def can_ask_user() -> bool:
    """Whether a person can be asked: stdin and stderr are terminals."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


async def read_terminal_line(prompt: str) -> str | None:
    """Print a prompt and read one line, stripped; None at the end of the input.

    Ctrl-C and a deadline of the chart cancel it; then what was typed so far answers no other prompt.

    Raises:
        CancelledError: nobody waits for the line any more.
    """
    click.echo(escape_controls(prompt), err=True, nl=False)
    try:
        await _wait_for_line()
    except asyncio.CancelledError:
        click.echo("", err=True)
        _discard_typed_text()
        raise
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        click.echo("", err=True)
    return line.strip() if line else None


async def _wait_for_line() -> None:
    """Return when a read returns at once; where that cannot be known, the read itself waits."""
    if not _is_watchable():
        return
    has_line = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), has_line.set)
    try:
        while not has_line.is_set():
            # Woken from time to time: a signal that arrives just before the loop begins to wait would
            # otherwise be handled only after the next line.
            with suppress(TimeoutError):
                await asyncio.wait_for(has_line.wait(), 0.5)
    finally:
        loop.remove_reader(sys.stdin.fileno())


def _is_watchable() -> bool:
    return os.name == "posix" and sys.stdin.isatty()


def _discard_typed_text() -> None:
    if _is_watchable():
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
