"""A person at a pseudo-terminal, who types when a prompt appears."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Sequence
from pathlib import Path

from command_line import START

CTRL_C = b"\x03"
CTRL_D = b"\x04"


def typing(
    words: Sequence[str], cwd: Path, answers: Sequence[tuple[bytes, bytes]], **env: str
) -> tuple[int, str]:
    """Run the command line; type each answer once its prompt has appeared. Exit code and screen.

    The terminal is the process's own, so that Ctrl-C reaches it as it would from a keyboard.
    """
    child, parent = pty.fork()
    if child == 0:  # pragma: no cover  (another process)
        os.chdir(cwd)
        os.environ.update({"TERM": "xterm", "COLUMNS": "120", **env})
        os.execv(sys.executable, [sys.executable, "-c", START, *words])
    seen, looked, waiting = b"", 0, list(answers)
    while part := _read(parent):
        seen += part
        while waiting and (place := seen.find(waiting[0][0], looked)) >= 0:
            prompt, answer = waiting.pop(0)
            looked = place + len(prompt)
            os.write(parent, answer)
    os.close(parent)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), seen.decode()


def _read(parent: int) -> bytes:
    try:
        return os.read(parent, 4096)
    except OSError:  # the other side has gone
        return b""
