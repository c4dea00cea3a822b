"""The invariants in a world that goes wrong: thousands of seeds, and proof that a fault would be found."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logs import database
from simulation import Broken, Crash, VirtualLoop, simulate

from toolchart.engine.log.journal import Journal
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.driver import Driver
from toolchart.engine.runtime.engine import Engine

BATCHES, SEEDS = 12, 250


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """Faults are the point here: the engine need not tell of each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_seed_breaks_an_invariant(batch: int) -> None:
    """Invariants 1 to 5 over failing models, tools, logs, cancellations and crashes; a seed that breaks one
    is named, and `python -m simulation SEED` tells it again."""
    for seed in range(batch * SEEDS, (batch + 1) * SEEDS):
        simulate(seed)


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "postgres"])
def test_no_seed_breaks_an_invariant_on_any_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The same seeds on the stores that keep a log for real: the same logs, byte for byte."""
    address = {"sqlite": str(tmp_path / "log.db"), "jsonl": f"{tmp_path}/log/"}.get(kind)
    if kind == "postgres":
        address = database(request.getfixturevalue("postgres"), tmp_path)
    store = open_store(address, durable=False)
    for seed in range(60):
        assert simulate(seed, store)[1] == simulate(seed)[1]
    store.close()


def test_a_seed_is_one_run() -> None:
    """The same seed gives the same log, byte for byte, and the same account of the world."""
    for seed in (3, 14, 159):
        (world, lines), (again, same) = simulate(seed), simulate(seed)
        assert lines == same
        assert world.told == again.told


def test_the_world_goes_wrong_in_every_way() -> None:
    """A hundred seeds meet crashes, refusals of the log, cancellations, time-outs and every outcome."""
    told = Counter[str]()
    for seed in range(100):
        world, lines = simulate(seed)
        told.update(words[12:].split("(")[0].split(":")[0] for words in world.told)
        text = b"".join(lines)
        for outcome in ("succeeded", "failed", "denied", "timed_out", "interrupted", "cancelled"):
            told[outcome] += f'"outcome":"{outcome}"'.encode() in text
    for what in (
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
        assert told[what], what


# -- faults that must be found ---------------------------------------------------------------------


def _found(most: int = 500) -> str:
    """The first promise that some seed breaks."""
    for seed in range(most):
        try:
            simulate(seed)
        except (Broken, AssertionError) as error:
            return str(error)
        except Crash:
            continue
    return ""


async def _late(self: Journal) -> None:
    """A commit that forgets every other time what it was to write."""
    self.skipped = not getattr(self, "skipped", False)  # type: ignore[attr-defined]
    if not self.skipped:  # type: ignore[attr-defined]
        await _commit(self)


_commit = Journal.commit


@pytest.mark.parametrize(
    ("where", "name", "fault", "promise"),
    [
        (Journal, "commit", _late, "invariant"),
        (Engine, "_may_repeat", lambda self, name: True, "invariant 5"),
        (Driver, "_interrupted", lambda self, effect, may_repeat: [effect], "invariant 5"),
    ],
    ids=["late commits", "everything repeats", "nothing is interrupted"],
)
def test_a_fault_of_the_engine_is_found(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, fault: Any, promise: str
) -> None:
    """An engine that commits too late, or runs calls again after a crash, does not get through."""
    monkeypatch.setattr(where, name, fault)
    assert promise in _found()


def test_virtual_time_costs_nothing() -> None:
    """An hour passes at once, and things come in their order."""
    loop, seen = VirtualLoop(), []

    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append(seconds)

    async def all_of_them() -> None:
        await asyncio.gather(wait(3600), wait(1), wait(60))

    loop.run_until_complete(all_of_them())
    assert (seen, loop.time()) == ([1, 60, 3600], 3600)
    loop.close()
