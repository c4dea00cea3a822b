"""A process killed at any instant: nothing acknowledged is lost, nothing runs twice that must not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from killing import check, run_and_kill
from logs import database

from toolchart.engine.log.stores import open_store

KILLS = {"sqlite": 100, "jsonl": 100, "postgres": 30}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("kind", KILLS)
def test_kill_and_resume(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Invariant 5: after SIGKILL at random instants the log verifies, replays and resumes to its end.

    A tool that is not idempotent never ran twice; a call whose outcome was recorded ran exactly once;
    an unfinished call of such a tool is `interrupted`, and the model is told that its outcome is unknown.
    """
    chance = random.Random(20261120)
    killed = interrupted = turn = 0
    slowest = 0.12 if kind == "postgres" else 0.03
    # At least so many, and on until a kill has hit a running tool; four times as many at most.
    while turn < KILLS[kind] or (not interrupted and turn < KILLS[kind] * 4):
        turn += 1
        folder = tmp_path / str(turn)
        folder.mkdir()
        log, marks = address(kind, folder, request), folder / "marks"
        killed += run_and_kill(log, marks, chance.uniform(0.0, slowest))
        interrupted += check(log, marks)
    assert killed > KILLS[kind] // 4
    assert interrupted > 0


def address(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """A log of the kind in that folder."""
    if kind == "postgres":
        return database(request.getfixturevalue("postgres"), folder)
    return str(folder / "log.db") if kind == "sqlite" else f"{folder}/log/"


async def test_an_interrupted_call_is_told_to_the_model(tmp_path: Path) -> None:
    """S4.5: the result of an interrupted call says that its outcome is unknown."""
    from agents import calls, fixed_tool
    from agents import engine as small

    class Crash(BaseException):
        pass

    def crash(arguments: object) -> None:
        raise Crash

    store = open_store(tmp_path / "log.db")
    tool = fixed_tool("charge", {"type": "object", "properties": {}}, crash)
    with pytest.raises(Crash):
        await small([calls(("charge", {}))], log=store, functions=[tool]).arun(
            "go", conversation="c"
        )
    again = small(["I will check first."], log=store, functions=[tool])
    result = await again.aresume("c")
    assert result.content == "I will check first."
    assert "outcome is unknown" in result.tool_calls[0]["result"]["error"]
    assert (await again.aresume("c")).content == "I will check first."
