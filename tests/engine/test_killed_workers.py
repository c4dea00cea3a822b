"""Four workers on one log, one of which is killed again and again, with `recover --watch` beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import choose_count
from killed_workers import run_fleet
from postgres_database import create_database

KILLS = choose_count(short=8, long=200)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_killed_workers_lose_and_repeat_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Invariants 5 and 6 over SIGKILLs at random instants: each conversation ends and replays, what a worker
    acknowledged is there, no tool that is not idempotent ran twice, and the database itself has seen no
    record that a process appended without the lease. `tests/soak/kills.py workers` is the long form."""
    log = str(tmp_path / "log.db")
    if kind == "postgres":
        log = create_database(request.getfixturevalue("postgres"), tmp_path)
    counts = run_fleet(log, tmp_path, kills=KILLS, seed=20261122, longest_pause_s=0.2)
    assert counts["killed"] == KILLS
    assert counts["resumed"], "some turn was taken over"
