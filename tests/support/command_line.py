"""Runs the command line in a separate process: with pipes, on a terminal, or with a person who types."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parent

SETUP = (
    f"import os, sys; sys.path.insert(0, os.fsdecode({os.fsencode(SUPPORT)!r})); import adopt_checkout; "
    "sys.path.pop(0); from toolchart.app.cli import main"
)
"""Python code that imports `main`, also from a checkout that is not installed."""

START = f"{SETUP}; main()"
"""Python code that does what the console script does."""

CTRL_C = b"\x03"
CTRL_D = b"\x04"


def run_toolchart(*words: str, cwd: Path, stdin: str | None = None, **env: str) -> Any:
    """Run the command line with pipes; return its exit code and output."""
    return subprocess.run(
        [sys.executable, "-c", START, *words],
        cwd=cwd,
        input=stdin or "",
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
        encoding="utf-8",
    )


def run_on_terminal(
    words: list[str], cwd: Path, interrupt_on: bytes | None = None, **env: str
) -> tuple[int, str]:
    """Run on a pseudo-terminal; return exit code and screen text.

    With `interrupt_on`, send SIGINT once that text appears.
    """
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words],
        cwd=cwd,
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", **env},
        start_new_session=True,
    )
    os.close(child)
    screen = b""
    while part := _read_terminal(parent):
        screen += part
        if interrupt_on and interrupt_on in screen:
            interrupt_on = None
            process.send_signal(signal.SIGINT)
    os.close(parent)
    return process.wait(timeout=120), screen.decode()


def run_and_type(
    words: Sequence[str], cwd: Path, answers: Sequence[tuple[bytes, bytes]], **env: str
) -> tuple[int, str]:
    """Run on a terminal and type each answer once its prompt has appeared; return exit code and screen text.

    The terminal controls the process, so that Ctrl-C reaches it as from a keyboard.
    """
    child, parent = pty.fork()
    if child == 0:  # pragma: no cover  (another process)
        os.chdir(cwd)
        os.environ.update({"TERM": "xterm", "COLUMNS": "120", **env})
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs the tests may have it ignored
        os.execv(sys.executable, [sys.executable, "-c", START, *words])
    screen, searched, remaining = b"", 0, list(answers)
    while part := _read_terminal(parent):
        screen += part
        while remaining and (position := screen.find(remaining[0][0], searched)) >= 0:
            prompt, answer = remaining.pop(0)
            searched = position + len(prompt)
            os.write(parent, answer)
    os.close(parent)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), screen.decode()


def _read_terminal(parent: int) -> bytes:
    try:
        return os.read(parent, 4096)
    except OSError:  # the process has closed its side
        return b""
