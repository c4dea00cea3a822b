"""The processes that a process started: lists them, adds up their memory, kills them all.

A child that calls `setsid` leaves its process group, and one whose parent ends gets another parent. So a
group does not tell what belongs together. Linux lets a process become the parent of all orphans below it
(`PR_SET_CHILD_SUBREAPER`); then the tree of parents and children is complete. Elsewhere only the group is
killed.

Source: prctl(2), proc(5).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PROCESSES = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def adopt_orphans() -> None:
    """Make this process the parent of every process below it whose own parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def list_children(pid: int) -> list[int]:
    """The direct children of a process; none where the system does not tell."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(_PROCESSES / str(pid) / "task"):
            with contextlib.suppress(OSError):
                children += map(int, (_PROCESSES / f"{pid}/task/{task}/children").read_text().split())
    return children


def iterate_tree(pid: int) -> Iterator[int]:
    """A process and everything below it."""
    yield pid
    for child in list_children(pid):
        yield from iterate_tree(child)


def measure_memory(pid: int) -> int:
    """Bytes that a process and everything below it hold and share with nobody's file."""
    total = 0
    for member in iterate_tree(pid):
        with contextlib.suppress(OSError, ValueError):
            fields = (_PROCESSES / f"{member}/statm").read_text().split()
            total += (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
    return total


def kill_tree(pid: int) -> None:
    """Kill a process and everything below it, also what has left its process group."""
    killed: set[int] = set()
    while targets := [member for member in _stop_tree(pid) if member != pid and member not in killed]:
        for member in targets:
            _send_signal(member, signal.SIGKILL)
            killed.add(member)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    # The root last: what it started has another parent when it has gone, and would not be found below it.
    _send_signal(pid, signal.SIGKILL)


def _stop_tree(pid: int) -> Iterator[int]:
    # Stopped before its children are listed, so that it cannot start further ones meanwhile.
    _send_signal(pid, signal.SIGSTOP)
    yield pid
    for child in list_children(pid):
        yield from _stop_tree(child)


def _send_signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
