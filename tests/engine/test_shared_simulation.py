"""Simulation of two workers on one log: the invariants hold over faults of leases, and faults are found."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import choose_count
from msgspec.structs import replace
from postgres_database import create_database
from shared_simulation import run_fleet_simulation
from simulation import BrokenInvariant

from toolchart.engine.log.group_commit import LeaseKeeper
from toolchart.engine.log.stores import memory, open_store
from toolchart.engine.turns.lease import Leases

SEEDS = choose_count(short=14, long=1500)


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """Switch off log messages: the simulated failures would fill the output."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_no_seed_breaks_an_invariant() -> None:
    """DESIGN 7.1 to 7.6 over lost and late renewals, leases that expire within an effect, two workers,
    crashes, cancellations and clocks that jump: only the holder of the newest lease appends, an effect begins
    with enough of the lease left, no tool that is not idempotent runs twice, and the conversation ends. The
    seeds include each of these faults."""
    story: list[str] = []
    for seed in range(SEEDS):
        story += [words[12:].split(": ", 1)[-1] for words in run_fleet_simulation(seed)[0].story]
    for words in (
        "the log refuses to renew",
        "the log refuses to say that it renewed",
        "the log refuses to say that it gave the lease",
        "the process dies at to give the lease",
        "the clock jumps",
        "was cancelled",
        "LeaseLost",
        "LeaseHeld",
    ):
        assert any(line.startswith(words) for line in story), words


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_store_gives_the_same_run(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The same seeds give the same logs and the same story in every durable store."""
    address = str(tmp_path / "log.db")
    if kind == "postgres":
        address = create_database(request.getfixturevalue("postgres"), tmp_path)
    store = open_store(address, durable=False)
    for seed in range(0, choose_count(short=4, long=100), 2):
        (fleet, lines), (other, other_lines) = run_fleet_simulation(seed, store), run_fleet_simulation(seed)
        assert fleet.story == other.story
        assert lines == other_lines
    store.close()


_commit = memory.MemoryStore.commit


def _commit_unchecked(self: memory.MemoryStore, changes: Any, **options: Any) -> Any:
    """A faulty store: a record is appended under any lease."""
    return _commit(
        self, [replace(change, check=None) if change.lines else change for change in changes], **options
    )


async def _begin_without_margin(self: LeaseKeeper, held: Any) -> None:
    """A faulty keeper: an effect begins however little of the lease is left."""


async def _keep_after_failure(self: Leases, conversation: str, hold: Any) -> None:
    """A faulty release: after an error the lease is neither given back nor left to expire."""
    leases: Any = self._log.leases
    while not await leases.release(
        conversation, is_open=not hold.has_ended, due=hold.compute_due(lambda: False)
    ):
        for entry in await self._read_inbox(conversation):
            await self._take_entry(conversation, entry, hold)


@pytest.mark.parametrize(
    ("where", "name", "fault", "promise"),
    [
        (memory.MemoryStore, "commit", _commit_unchecked, "invariant 6"),
        (LeaseKeeper, "ensure_margin", _begin_without_margin, "invariant 6"),
        (Leases, "_release", _keep_after_failure, "does not come to its end"),
    ],
    ids=["no fencing", "no margin", "a lease is kept for ever"],
)
def test_a_fault_of_the_engine_is_found(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, fault: Any, promise: str
) -> None:
    """A store that does not check leases, and an engine that is careless with them, break an invariant."""
    monkeypatch.setattr(where, name, fault)
    broken = ""
    for seed in range(100):
        try:
            run_fleet_simulation(seed)
        except BrokenInvariant as error:
            broken = str(error)
            break
    assert promise in broken
