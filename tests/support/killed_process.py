"""What is the same for all processes that are killed: marks, forks, and the places of a death.

A tool call appends a line (a mark) to a file, which shows how often the call ran.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from toolchart.engine import Engine
from toolchart.engine.log.verify import VerifiedConversation, verify_store

SCHEMA = {"type": "object", "properties": {"mark": {"type": "string"}}, "required": ["mark"]}
"""The parameters of a tool that leaves a mark."""

LONGEST_S = 0.5
"""The first random instants are drawn from so many seconds."""


def append_mark(path: Path, text: str) -> None:
    """Append a line to a file and sync it."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{text}\n".encode())
    os.fsync(handle)
    os.close(handle)


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def run_forked(work: Callable[[], object], delay_s: float | None = None) -> bool:
    """Do something in a forked process, which is killed after so many seconds or kills itself.

    Returns:
        Whether it was killed before it ended.
    """

    def run_in_child() -> None:
        work()
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=run_in_child)
    child.start()
    if delay_s is not None:
        child.join(delay_s)
        child.kill()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL), child.exitcode
    return child.exitcode != 0


def die_at_commit(engine: Engine, place: int) -> None:
    """Let the process kill itself: before its commit `place // 2`, or after it where `place` is odd."""
    store: Any = engine.store
    append_many, count = store.append_many, 0

    def append_or_die(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        if count == place:
            die()
        faults = append_many(*arguments, **options)
        if count + 1 == place:
            die()
        count += 2
        return faults

    store.append_many = append_or_die


def read_acknowledged_lines(engine: Engine) -> list[bytes]:
    """The records of the killed conversation, whose log must verify."""
    assert all(isinstance(verdict, VerifiedConversation) for verdict in verify_store(engine.store))
    return list(engine.store.read_lines("c"))


def kill_at_random_instants(
    folder: Path, kills: int, seed: int, run_and_kill: Callable[[Path, float], bool]
) -> Iterator[Path]:
    """The folder of each run, also of those that had ended before they were to be killed.

    Instants are drawn from a span that shrinks with each run that ended by itself, so it soon fits the time
    that a run takes on this machine.

    Args:
        folder: each run gets a folder in it.
        kills: how many runs are really killed.
        run_and_kill: runs in this folder, and is killed after so many seconds; returns whether it was.
    """
    chance, span_s, killed = random.Random(seed), LONGEST_S, 0
    for turn in itertools.count():
        if killed == kills:
            return
        place = folder / str(turn)
        place.mkdir()
        start_s = time.monotonic()
        if run_and_kill(place, chance.uniform(0.0, span_s)):
            killed += 1
        else:
            span_s = 0.9 * min(span_s, time.monotonic() - start_s)
        yield place
