"""`toolchart rerun` as a process: Ctrl-C."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import RunCli

from toolchart import Engine

JUDGE = """
import os, signal
from pathlib import Path

def judge(run, recorded):
    calls = Path("calls")
    calls.write_text(calls.read_text() + "." if calls.exists() else ".")
    if calls.read_text() == "...":
        os.kill(os.getpid(), signal.SIGINT)
    return None
"""


@pytest.mark.parametrize("source", [["--offline"], ["--spec", "quickstart", "--parallel", "1"]])
def test_ctrl_c_stops_a_rerun_and_keeps_its_results(tmp_path: Path, source: list[str]) -> None:
    """After Ctrl-C no further conversation runs again, with answers from the log as with a live model; the
    report has what was finished, the baseline stays as it was, and the exit code is 3."""
    (tmp_path / "judging.py").write_text(JUDGE, "utf-8")
    with Engine("quickstart", log=tmp_path / "log.db", durability="normal") as engine:
        for number in range(8):
            engine.run("2+2", conversation=f"c{number}")
    words = ["rerun", *source, "--log", "log.db", "--judge", "python=judging:judge", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "toolchart", *words, "--baseline", "b.json", "--update-baseline"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 3, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [result["conversation"] for result in results] == ["c0", "c1", "c2"]
    assert (tmp_path / "calls").read_text() == "..."
    assert "cancelled; the report has the 3 results until now" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "b.json").exists()


def test_a_rerun_from_the_log_alone_names_the_way_on(run_cli: RunCli) -> None:
    """Below a report of `--offline` in which something diverged stands how a model or a tool answers instead;
    nowhere else."""
    run_cli("run", "quickstart", "17 * 27", "--conversation", "monday")
    way_on = "a model gives it with --spec FILE and without --offline, a tool with --live-tool NAME"
    diverged = run_cli("rerun", "--offline", "--set", "limits.max_iterations=1")
    assert (diverged.code, way_on in diverged.out) == (1, True)
    assert way_on not in run_cli("rerun", "--offline").out
