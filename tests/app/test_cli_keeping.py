"""`seal`, `prune`, `tail`, and finding one's way in a long log."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolchart.engine.log.stores import DEFAULT_LOG

Typed = Callable[..., Any]


@pytest.fixture
def talks(typed: Typed) -> Typed:
    """Three conversations: a sum, a time, and a call that waits for a person."""
    typed("run", "quickstart", "17 * 27", "--conversation", "sum")
    typed("run", "quickstart", "what time is it?", "--conversation", "time")
    typed("run", "careful", "delete a.txt", "--conversation", "waits")
    return typed


def listed(done: Any) -> list[str]:
    """Ids of a `runs --json`."""
    return [json.loads(row)["conversation"] for row in done.out.splitlines()]


def test_a_seal_finds_a_cut_tail(talks: Typed, here: Path) -> None:
    """`seal > FILE`, then `verify --seal FILE`: what was there then must still be there."""
    (here / "seals").write_text(talks("seal").out, "utf-8")
    assert talks("verify", "--seal", "seals").code == 0
    talks("run", "quickstart", "2+2", "--conversation", "sum")
    assert "3 of 3 seals hold" in talks("verify", "--seal", "seals").err
    with sqlite3.connect(here / DEFAULT_LOG) as database:
        database.execute("DELETE FROM records WHERE conversation = 2 AND seq >= 4")
    assert talks("verify").code == 0, "the chain alone cannot tell"
    done = talks("verify", "--seal", "seals")
    assert done.code == 5
    assert "conversation time, record 4: it had 6 records" in done.err
    assert talks("verify", "sum", "--seal", "seals").code == 0


def test_a_key_signs(talks: Typed, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from a file or the environment; a seal of another key is refused."""
    (here / "key").write_text("one\n", "utf-8")
    (here / "empty").write_text("", "utf-8")
    (here / "seals").write_text(talks("seal", "sum", "--key-file", "key").out, "utf-8")
    assert talks("verify", "--seal", "seals", "--key-file", "key").code == 0
    monkeypatch.setenv("TOOLCHART_SEAL_KEY", "two")
    assert talks("verify", "--seal", "seals").code == 5
    assert talks("seal", "--key-file", "empty").code == 2
    assert talks("seal", "--key-file", "none").code == 2
    assert talks("verify", "--seal", "none").code == 2


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--state", "finished"), ["sum", "time"]),
        (("--state", "awaiting_approval"), ["waits"]),
        (("--tool", "calculator"), ["sum"]),
        (("--tool", "delete_file", "--text", "A.TXT"), ["waits"]),
        (("--text", "459"), ["sum"]),
        (("--model", "rehearsal", "--tool", "get_current_datetime"), ["time"]),
        (("--since", "1h"), ["sum", "time", "waits"]),
        (("--until", "2020-01-01"), []),
        (("--since", "2999-01-01T00:00"), []),
        (("--tool", "calculator", "--state", "error"), []),
    ],
)
def test_runs_finds_what_is_meant(talks: Typed, words: tuple[str, ...], found: list[str]) -> None:
    """Filters by state, tool, model, words and time; all of them have to fit."""
    assert listed(talks("runs", "--json", *words)) == found
    if not found:
        assert "none of 3 conversations fits" in talks("runs", *words).err


def test_show_around_a_record(talks: Typed) -> None:
    """One record with its neighbours; one that is not there is said so."""
    done = talks("show", "sum", "--around", "3", "--context", "1", "--json")
    assert [json.loads(row)["seq"] for row in done.out.splitlines()] == [2, 3, 4]
    assert "its records are 0 to 5" in talks("show", "sum", "--around", "6").err


def test_prune_forgets_and_says_what(talks: Typed) -> None:
    """Whole conversations go; one that waits for a person stays, and the rest verifies."""
    assert talks("prune").code == 2
    assert talks("prune", "--older-than", "soon").code == 2
    assert talks("prune", "--older-than", "1d").out == ""
    assert talks("prune", "--keep", "1", "--dry-run").out.split() == ["sum", "time"]
    assert listed(talks("runs", "--json")) == ["sum", "time", "waits"]
    done = talks("prune", "--keep", "1")
    assert (done.out.split(), done.code) == (["sum", "time"], 0)
    assert "2 of 3 conversations deleted" in done.err
    assert listed(talks("runs", "--json")) == ["waits"]
    assert talks("verify").code == 0


def test_tail_shows_the_newest(talks: Typed) -> None:
    """Without an id the conversation that was written last; `-n` says how many records."""
    done = talks("tail", "-n", "2", "--json")
    assert [json.loads(row)["seq"] for row in done.out.splitlines()] == [2, 3]
    assert len(talks("tail", "sum", "-n", "99", "--json").out.splitlines()) == 6
    assert "no conversations yet" in talks("tail", "--log", "memory").err


def test_tail_follows_what_another_process_writes(talks: Typed, here: Path) -> None:
    """`tail -f` prints records as they come, until the turn is over or Ctrl-C."""
    words = [sys.executable, "-m", "toolchart", "tail", "waits", "-n", "1", "-f", "--json"]
    follow = subprocess.Popen([*words, "--until-over"], cwd=here, stdout=subprocess.PIPE, text=True)
    endless = subprocess.Popen(words, cwd=here, stdout=subprocess.PIPE, text=True)
    assert follow.stdout
    assert endless.stdout
    try:
        # The record that is there already says that both are looking; then a third process writes.
        assert [json.loads(one.stdout.readline())["seq"] for one in (follow, endless)] == [3, 3]  # type: ignore[union-attr]
        decided = [sys.executable, "-m", "toolchart", "approve", "waits", "call_1_0_0", "--deny"]
        subprocess.run(decided, cwd=here, check=True, capture_output=True, timeout=120)
        out, _ = follow.communicate(timeout=120)
        assert json.loads(endless.stdout.readline())["seq"] == 4
        endless.send_signal(signal.SIGINT)
        assert endless.wait(timeout=120) == 3
    finally:
        for process in (follow, endless):
            if process.poll() is None:
                process.kill()
                process.wait()
    assert follow.returncode == 0
    rows = [json.loads(row) for row in out.splitlines()]
    assert [row["seq"] for row in rows] == list(range(4, 4 + len(rows)))
    assert rows[-1]["effects"][0]["type"] == "answer"
