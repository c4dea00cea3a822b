"""Workers: the name of a process that works on conversations, and whether such a process is still alive.

A lease names its worker. Where that process ran on this machine and is gone, its lease can be taken at once;
any other lease can be taken when it has expired.
"""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path


def name_worker(number: int = 0) -> str:
    """The name of this process as a worker: `HOST:PID`, and after `/` what tells processes apart.

    Args:
        number: tells apart the engines of one process.
    """
    pid = os.getpid()
    start = _read_start_time(pid) or ""
    return f"{platform.node()}:{pid}/{_read_machine()}.{start}.{number}"


def is_dead(worker: str) -> bool:
    """Whether a worker is known to have ended: it ran on this machine, and its process is gone.

    False where that cannot be known.
    """
    place, _, mark = worker.partition("/")
    machine, _, rest = mark.partition(".")
    start, _, _ = rest.partition(".")
    pid = place.rpartition(":")[2]
    if not pid.isdigit() or not start or machine != _read_machine():
        return False
    return _read_start_time(int(pid)) != start


def describe_worker(worker: str) -> str:
    """The part of a worker's name that people read: `HOST:PID`."""
    return worker.partition("/")[0]


@lru_cache(maxsize=1)
def _read_machine() -> str:
    """What is the same for two processes that see each other's ids: this start of the system, and the
    namespace of its process ids; empty where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot[:13]}-{os.stat('/proc/self/ns/pid').st_ino}"
    except (OSError, UnicodeDecodeError):
        return ""


def _read_start_time(pid: int) -> str | None:
    """When a process began, in ticks since the system did; None where there is none, or it is a zombie."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = data[data.rfind(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()
