"""Programs beside those of other frameworks: the same script gives the same answers and calls."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pair_runs
import pytest
from pair_page import MEASURES, SHOWN, show_log
from pair_runs import FRAMEWORKS, RELEASES, TASKS, TOOLCHART, VARIABLE, find_python, list_tasks, run_program
from scripted_host import list_texts

RUNS = [
    (task, framework, release)
    for framework in FRAMEWORKS
    for release in (("newest",) if framework == TOOLCHART else RELEASES)
    for task in list_tasks(framework)
]


@pytest.mark.parametrize(("task", "framework", "release"), RUNS)
def test_every_program_of_a_pair_does_the_same(
    task: str, framework: str, release: str, tmp_path: Path
) -> None:
    """Each program prints the lines of its task, runs its calls with the same values, and asks as often.

    Our log verifies and replays afterwards, and shows what the pages say.
    """
    python = find_python(framework, release)
    if python is None:
        pytest.skip(
            f"{VARIABLE} names no folder in which .ci/install_pairs has installed the {release} releases"
        )
    outcome = run_program(task, framework, python, tmp_path)
    assert outcome.lines == list(TASKS[task].lines)
    assert outcome.outcomes == list(TASKS[task].outcomes)
    assert len(outcome.host.requests) == len(TASKS[task].steps)
    most = TASKS[task].most_texts
    if most is not None:
        assert max(len(list_texts(request)) for request in outcome.host.requests) <= most
    if framework == TOOLCHART and task in SHOWN:
        shown = json.loads(MEASURES.read_text("utf-8"))["shown"]
        assert show_log(tmp_path) == shown[task], "run: python tests/pairs/test_pairs_doc.py"


def test_a_program_that_hangs_fails_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that never ends is killed, and the failure names it and says what it has printed."""
    program = tmp_path / "hanging.py"
    program.write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n", "utf-8")
    monkeypatch.setattr(pair_runs, "LIMIT_S", 2)
    monkeypatch.setattr(pair_runs, "find_program", lambda task, framework: program)
    with pytest.raises(AssertionError, match=r"(?s)hanging\.py` was killed after 2 s.*begun"):
        run_program("typed_answer", TOOLCHART, Path(sys.executable), tmp_path)
