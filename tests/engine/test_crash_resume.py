"""Resuming after a kill: acknowledged records are kept, and no unsafe call runs twice."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import killed_deadlines
import pytest
from effort import choose_count
from killed_calls import check_resume, make_engine, run_and_kill, run_until_mark
from killed_process import kill_at_random_instants
from postgres_database import create_database

KILLS = {"sqlite": 60, "postgres": 20}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("kind", KILLS)
def test_kill_and_resume(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Invariant 5: after SIGKILL at random instants the log verifies, replays and resumes to its end.

    A tool that is not idempotent never runs twice. A call with a recorded outcome ran exactly once. An
    unfinished call of a tool that is not idempotent ends as `interrupted`.
    """

    def run(folder: Path, delay_s: float) -> bool:
        return run_and_kill(make_address(kind, folder, request), folder / "marks", delay_s)

    for folder in kill_at_random_instants(tmp_path, KILLS[kind], 20261120, run):
        check_resume(make_address(kind, folder, request), folder / "marks")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("die_at", ["once0", "often1", "once3"])
@pytest.mark.parametrize("kind", KILLS)
def test_kill_inside_a_call(kind: str, die_at: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Invariant 5: a process killed inside a call leaves that call open, and resuming closes it truly.

    The call of the tool that is not idempotent ends as `interrupted`; the idempotent one runs again.
    """
    log, marks = make_address(kind, tmp_path, request), tmp_path / "marks"
    run_until_mark(log, marks, die_at)
    interrupted_count = check_resume(log, marks)
    assert interrupted_count >= 1 if die_at.startswith("once") else interrupted_count <= 1


# -- a state that is left early ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_kill_around_cancellations(tmp_path: Path) -> None:
    """Invariant 1: a kill between an answer and the cancellations that it causes loses and doubles nothing.

    The first finished call leaves `executing` and cancels the other one, five times in a turn.
    """

    def run(folder: Path, delay_s: float) -> bool:
        return run_and_kill(str(folder / "log.db"), folder / "marks", delay_s, early=True)

    for folder in kill_at_random_instants(tmp_path, choose_count(short=8, long=300), 20261121, run):
        check_resume(str(folder / "log.db"), folder / "marks", early=True)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("die_at", ["cancel1", "cancel3", "request1", "request3", "once2", "often2"])
def test_kill_at_a_cancellation(die_at: str, tmp_path: Path) -> None:
    """Invariant 1: killed as a cancellation is derived, and as the request after it is made."""
    log, marks = str(tmp_path / "log.db"), tmp_path / "marks"
    run_until_mark(log, marks, die_at, early=True)
    assert check_resume(log, marks, early=True) >= 1


def make_address(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """The address of a log of this kind in a folder."""
    if kind == "postgres":
        return create_database(request.getfixturevalue("postgres"), folder)
    return str(folder / "log.db")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_model_reads_that_a_call_was_interrupted(tmp_path: Path) -> None:
    """S4.5: the result of an interrupted call says that its outcome is unknown."""
    log, marks = str(tmp_path / "log.db"), tmp_path / "marks"
    run_until_mark(log, marks, "once0")
    with make_engine(log, marks) as engine:
        result = engine.conversation("c").resume()
        assert result.content == "all done"
        assert "outcome is unknown" in result.tool_calls[0]["result"]["error"]
        assert engine.conversation("c").resume().content == "all done"


# -- deadlines -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_kill_around_deadlines(tmp_path: Path) -> None:
    """Invariant 5: killed at any commit around deadlines and decisions, nothing is lost or doubled, each
    timer fires once or is cancelled, and a call runs only if it was approved in time."""
    chance = random.Random(20261122)
    kills = choose_count(short=8, long=400)
    outcomes: Counter[str] = Counter()
    kill_count = turns = 0
    while kill_count < kills:
        turns += 1
        folder = tmp_path / str(turns)
        folder.mkdir()
        log, marks = str(folder / "log.db"), folder / "marks"
        place = chance.randrange(2 * killed_deadlines.COMMITS)
        kill_count += killed_deadlines.run_and_kill(log, marks, turns, place=place)
        outcomes += killed_deadlines.check_resume(log, marks, seed=turns)
    assert outcomes["expired"] >= 2 * turns, "nobody approves the first and the third call"
    assert outcomes["succeeded"] > 0
