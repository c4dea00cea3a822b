"""A fan-out that is killed in the middle: after resuming, no child is lost and none ran twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import choose_count
from killed_fan_out import check_resume, run_and_kill
from killed_process import kill_at_random_instants


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_kill_in_a_fan_out(tmp_path: Path) -> None:
    """Children that ended are read, open ones go on, missing ones start, whenever the process died."""

    def run(folder: Path, delay_s: float) -> bool:
        return run_and_kill(str(folder / "log.db"), folder / "marks", delay_s)

    for folder in kill_at_random_instants(tmp_path, choose_count(short=8, long=300), 20261122, run):
        check_resume(str(folder / "log.db"), folder / "marks")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("die_at", ["answer1", "answer4", "answer8", "item0", "item5"])
def test_kill_at_an_answer(die_at: str, tmp_path: Path) -> None:
    """Killed after a child has ended and before its parent knows, or inside a child's tool."""
    log, marks = str(tmp_path / "log.db"), tmp_path / "marks"
    assert run_and_kill(log, marks, None, die_at)
    check_resume(log, marks)
