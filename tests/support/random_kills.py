"""Kills processes at random instants until so many were really killed, on a fast and on a busy machine."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LONGEST_S = 0.5
"""The first instants are drawn from so many seconds."""


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
