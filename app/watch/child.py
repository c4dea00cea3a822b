"""Runs the program that is watched: its own streams, its own decisions about signals, its own exit code."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)
"""The signals that a program gets in our place."""

_OF_TERMINAL = tuple(getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name))
"""Those of keys, which a terminal sends to the program too."""

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""The exit codes of shells for a command that cannot be run. Source: POSIX, Shell Command Language, 2.8.2."""


class CommandFailure(Exception):
    """A command that cannot be run; `code` is what a shell would exit with."""

    def __init__(self, code: int, words: str) -> None:
        self.code = code
        super().__init__(words)


async def run_child(command: Sequence[str], environment: Mapping[str, str], stdout: int | None) -> int:
    """Run a command until it ends, and pass it the signals that come.

    Args:
        environment: all of it.
        stdout: the descriptor of its standard output; None: that of this process. Its standard input and
            standard error are those of this process.

    Returns:
        Its exit code; 128 and the number of the signal that killed it.

    Raises:
        CommandFailure: the command cannot be run.
    """
    with catch_signals() as received:
        try:
            # The bytes that were given, whatever the locale: the command line has read them as UTF-8.
            words = [word if os.name == "nt" else word.encode() for word in command]
            process = await asyncio.create_subprocess_exec(*words, env=environment, stdout=stdout)
        except (OSError, ValueError) as error:
            raise _explain(command[0], error, environment.get("PATH")) from None
        passing = asyncio.ensure_future(_pass_signals(received, process))
        try:
            code = await process.wait()
        finally:
            passing.cancel()
    return code if code >= 0 else 128 - code


async def _pass_signals(received: asyncio.Queue[int], process: asyncio.subprocess.Process) -> None:
    while True:
        number = await received.get()
        # Ctrl-C goes to all programs in the foreground of a terminal. Passed on once more it would be a
        # second one, at which many programs give up their orderly end.
        if number in _OF_TERMINAL and _is_in_foreground():
            continue
        with suppress(ProcessLookupError):
            process.send_signal(number)


def _is_in_foreground() -> bool:
    """Whether the keys of a terminal send their signals to this process and its children."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


@contextmanager
def catch_signals() -> Iterator[asyncio.Queue[int]]:
    """Within the block, signals do not end this process but come to the queue.

    A signal that whoever started us has ignored stays ignored, here and in the program. Outside the main
    thread none is caught.
    """
    loop, received = asyncio.get_running_loop(), asyncio.Queue[int]()

    def catch(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(received.put_nowait, number)

    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, catch)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _explain(name: str, error: OSError | ValueError, path: str | None) -> CommandFailure:
    if not isinstance(error, OSError):  # a zero byte in a word
        return CommandFailure(NOT_EXECUTABLE, f"{name!r} cannot be run: {error}")
    is_there = os.path.exists(name) if os.path.dirname(name) else shutil.which(name, path=path) is not None
    if error.errno == errno.ENOENT and is_there:
        return CommandFailure(
            NOT_EXECUTABLE, f"{name}: the interpreter that its first line names is not there"
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return CommandFailure(NOT_FOUND, f"{name}: command not found")
    if error.errno == errno.ENOEXEC:
        return CommandFailure(
            NOT_EXECUTABLE, f"{name} is no program; does its first line name an interpreter (#!/bin/sh)?"
        )
    return CommandFailure(NOT_EXECUTABLE, f"{name} cannot be run: {error.strerror}")
