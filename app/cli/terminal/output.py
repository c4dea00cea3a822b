"""Standard output of a command: its own results, and nothing that other code prints.

Tools, modules of an agent and programs that they start share the process, and print where they like: by
`print`, to `sys.stdout.buffer`, to the descriptor 1. While a command runs, descriptor 1 therefore leads to
standard error, and the command itself writes to a private duplicate of what it was. `sys.stdout` stays the
object that it is, so loggers and libraries that hold it need to know nothing. Everything that a command
prints as its result passes `echo` or `get_output`.

Only the console script does this. A program that uses `Engine` keeps its standard output.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import click

_outputs: list[TextIO] = []
"""The streams that stand for standard output, the one in use at the end; none while no command runs."""


def get_output() -> TextIO:
    """The stream for results of the command."""
    return _outputs[-1] if _outputs else sys.stdout


def echo(text: str | bytes = "", *, nl: bool = True, color: bool | None = None) -> None:
    """Print a text on standard output, as `click.echo` does."""
    click.echo(text, file=get_output(), nl=nl, color=color)


@contextmanager
def use_output(stream: TextIO) -> Iterator[None]:
    """Let another stream stand for standard output for a while."""
    _outputs.append(stream)
    try:
        yield
    finally:
        _outputs.pop()


@contextmanager
def keep_output_apart() -> Iterator[None]:
    """Lead what other code prints to standard error, and keep standard output for the command.

    Nothing changes inside another such context, and where standard output is no descriptor, as in tests.
    """
    if _outputs or not _is_descriptor(sys.stdout, 1):
        yield
        return
    sys.stdout.flush()
    own_descriptor = os.dup(1)
    # The flags are those of `sys.stdout` in `use_utf8_streams`; a terminal shows each line at once.
    own = open(own_descriptor, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    own.reconfigure(line_buffering=own.isatty())
    is_line_buffered = sys.stdout.line_buffering
    try:
        _lead_to_stderr()
        _set_line_buffering(sys.stdout, True)  # so that lines of tools keep their place among messages
        with use_output(own):
            yield
        own.flush()
    finally:
        with suppress(OSError, ValueError):  # what other code has printed and standard error does not take
            sys.stdout.flush()
        with suppress(ValueError):
            _set_line_buffering(sys.stdout, is_line_buffered)
        os.dup2(own_descriptor, 1)
        with suppress(OSError):  # reported where it was written
            own.close()
        os.close(own_descriptor)


def keep_command_output_apart(command: click.Command) -> click.Command:
    """Let a command, and those below it, keep its output apart while it runs."""
    for other in command.commands.values() if isinstance(command, click.Group) else ():
        keep_command_output_apart(other)
    if command.callback is not None and not hasattr(command.callback, "keeps_output_apart"):
        command.callback = _wrap(command.callback)
    return command


def _wrap(callback: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(callback)
    def run(*arguments: Any, **options: Any) -> Any:
        with keep_output_apart():
            return callback(*arguments, **options)

    run.keeps_output_apart = True  # type: ignore[attr-defined]
    return run


def _lead_to_stderr() -> None:
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def _is_descriptor(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (AttributeError, OSError, ValueError):
        return False


def _set_line_buffering(stream: Any, is_on: Any) -> None:
    stream.reconfigure(line_buffering=is_on)
