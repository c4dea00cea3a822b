"""Simulation: the invariants hold over thousands of seeds with failures, and seeded faults are found."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import choose_count
from postgres_database import create_database
from simulation import BrokenInvariant, Crash, VirtualLoop, run_simulation

from toolchart.engine.log.record import Journal
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime import conversations
from toolchart.states.core import step as core_step

BATCHES, SEEDS = 12, choose_count(short=20, long=250)


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """Switch off log messages: the simulated failures would fill the output."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_seed_breaks_an_invariant(batch: int) -> None:
    """Invariants 1 to 5 hold over failing models, tools and logs, cancellations and crashes.

    A seed that breaks one is named; `python -m simulation SEED` runs it again step by step.
    """
    for seed in range(batch * SEEDS, (batch + 1) * SEEDS):
        run_simulation(seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_seed_breaks_an_invariant_on_any_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The same seeds give the same logs, byte for byte, in every durable store."""
    address = str(tmp_path / "log.db")
    if kind == "postgres":
        address = create_database(request.getfixturevalue("postgres"), tmp_path)
    store = open_store(address, durable=False)
    for seed in range(60):
        assert run_simulation(seed, store)[1] == run_simulation(seed)[1]
    store.close()


def test_a_seed_is_one_run() -> None:
    """The same seed gives the same log, byte for byte, and the same account of events."""
    for seed in (3, 14, 159):
        (world, lines), (second_world, second_lines) = run_simulation(seed), run_simulation(seed)
        assert lines == second_lines
        assert world.story == second_world.story


@pytest.mark.slow
def test_the_world_goes_wrong_in_every_way() -> None:
    """A hundred seeds include crashes, refusals of the log, cancellations, time-outs and every outcome."""
    counts = Counter[str]()
    for seed in range(100):
        world, lines = run_simulation(seed)
        counts.update(words[12:].split("(")[0].split(":")[0] for words in world.story)
        text = b"".join(lines)
        for outcome in ("succeeded", "failed", "denied", "timed_out", "interrupted"):
            counts[outcome] += f'"outcome":"{outcome}"'.encode() in text
    for kind in (
        "the process dies before it writes",
        "the process dies after it wrote",
        "the log refuses",
        "the process dies after the model was asked",
        "cancelled",
        "the turn was cancelled",
        "succeeded",
        "failed",
        "denied",
        "timed_out",
        "interrupted",
    ):
        assert counts[kind], kind


# -- faults that must be found ---------------------------------------------------------------------


def _find_broken_promise(seed_count: int = 500) -> str:
    """The first invariant that a seed breaks; empty where none does."""
    for seed in range(seed_count):
        try:
            run_simulation(seed)
        except (BrokenInvariant, AssertionError) as error:
            return str(error)
        except Crash:
            continue
    return ""


async def _skip_every_second_commit(self: Journal) -> None:
    """A faulty commit: every second call writes nothing."""
    self.skipped = not getattr(self, "skipped", False)  # type: ignore[attr-defined]
    if not self.skipped:  # type: ignore[attr-defined]
        await _commit(self)


_commit = Journal.commit


@pytest.mark.parametrize(
    ("where", "name", "fault", "promise"),
    [
        (Journal, "commit", _skip_every_second_commit, "invariant"),
        (
            conversations,
            "find_repeatable_calls",
            lambda snapshot, tools, began_with: tuple(open_call.call.id for open_call in snapshot.calls),
            "invariant 5",
        ),
        (core_step, "apply_resumption", lambda builder, event: None, "invariant 5"),
    ],
    ids=["late commits", "everything repeats", "nothing is interrupted"],
)
def test_a_fault_of_the_engine_is_found(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, fault: Any, promise: str
) -> None:
    """An engine that commits too late, or runs calls again after a crash, breaks an invariant."""
    monkeypatch.setattr(where, name, fault)
    assert promise in _find_broken_promise()


def test_virtual_time_costs_nothing() -> None:
    """Virtual hours pass at once, and timers end in their order."""
    loop, ended_waits = VirtualLoop(), []

    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)
        ended_waits.append(seconds)

    async def all_of_them() -> None:
        await asyncio.gather(wait(3600), wait(1), wait(60))

    loop.run_until_complete(all_of_them())
    assert (ended_waits, loop.time()) == ([1, 60, 3600], 3600)
    loop.close()
