"""Children that are cut off at any time: no writer gets into its own way, and their logs lose nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from child_races import run_world
from effort import choose_count

from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.ports import Store


def make_store(kind: str, folder: Path) -> Store:
    """A new log of a kind."""
    return MemoryStore() if kind == "memory" else open_store(folder / f"log.{kind}", durable=False)


@pytest.mark.parametrize(("kind", "short", "long"), [("memory", 200, 20_000), ("db", 40, 2_000)])
def test_children_that_are_cut_off_cause_no_conflict(
    kind: str, short: int, long: int, tmp_path: Path
) -> None:
    """Children are cut off by a deadline, a message, a cancellation, or the end of the program, while their
    records are written. None of these worlds raises `LogConflict`; every log verifies and replays, and every
    turn that was begun ends."""
    states: Counter[str] = Counter()
    for seed in range(choose_count(short=short, long=long)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        store = make_store(kind, folder)
        try:
            states[asyncio.run(run_world(seed, store))] += 1
        finally:
            store.close()
    assert states["finished"] > short / 2
    assert states["error"] > 0
    assert set(states) <= {"finished", "error", "nothing"}


@pytest.mark.parametrize("seed", [56, 661])
def test_a_seed_that_was_cut_off_twice(seed: int) -> None:
    """The worlds in which a program is stopped before the first record, and twice in a row."""
    assert asyncio.run(run_world(seed, MemoryStore())) in ("finished", "error", "nothing")
