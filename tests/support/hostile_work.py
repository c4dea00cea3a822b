"""Functions that misbehave in a worker: they leave processes behind, or take memory and secrets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_SURVIVOR = (
    "import os, sys, time; os.setsid(); open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
)
_HOARDER = "import time; kept = bytearray(60_000_000); time.sleep(600)"


def leave_a_process(path: str) -> str:
    """Start a process in a session of its own, and return while it runs."""
    subprocess.Popen([sys.executable, "-c", _SURVIVOR, path])
    return _wait_for(path)


def leave_an_orphan(path: str) -> str:
    """Start a process whose own parent ends at once."""
    starter = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]])"
    subprocess.run([sys.executable, "-c", starter, _SURVIVOR, path], check=True)
    return _wait_for(path)


def _wait_for(path: str) -> str:
    while not (Path(path).exists() and Path(path).read_text()):
        time.sleep(0.01)
    return "done"


def leave_and_hang(path: str) -> None:
    """Start such a process, and never return."""
    leave_a_process(path)
    time.sleep(600)


def spin() -> None:
    """Use the processor without an end."""
    while True:
        pass


def stop_itself(path: str) -> str:
    """Write the number of this process into the file, and stand still until somebody lets it go on."""
    Path(path).write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
    return "done"


def share_the_memory(count: int) -> None:
    """Start several processes that each stay below the limit."""
    for _ in range(count):
        subprocess.Popen([sys.executable, "-c", _HOARDER])
    time.sleep(600)


def list_environment() -> dict[str, str]:
    """The variables that this process and one that it starts can see."""
    shown = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    return {**os.environ, "env": shown}


def fill_the_answer() -> str:
    """An answer of twenty million characters."""
    return "x" * 20_000_000
