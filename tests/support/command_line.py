"""The command line in a process of its own: plain, or on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# What the console script does, for a checkout that may not be installed.
SETUP = (
    f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import conftest; "
    "sys.path.pop(0); from toolchart.app.cli import main"
)
START = f"{SETUP}; main()"


def toolchart(*words: str, cwd: Path, stdin: str | None = None, **env: str) -> Any:
    """Run the command line in a process of its own."""
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


def on_terminal(
    words: list[str], cwd: Path, interrupt_on: bytes | None = None, **env: str
) -> tuple[int, str]:
    """Run on a pseudo-terminal; with `interrupt_on`, press Ctrl-C when that text appears."""
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
    seen = b""
    while True:
        try:
            part = os.read(parent, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
        if interrupt_on and interrupt_on in seen:
            interrupt_on = None
            process.send_signal(signal.SIGINT)
    os.close(parent)
    return process.wait(timeout=120), seen.decode()
