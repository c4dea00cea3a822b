"""The examples of `docs/batch.md` run as printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from command_runs import RunCli, restored_loggers, run_cli
from killed_batch import AGENT

from toolchart import Engine

__all__ = ["restored_loggers", "run_cli"]

ROOT = Path(__file__).resolve().parents[2]


def test_the_python_example_answers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: the page's program answers each message; a second run reads the answers, and the log has one
    turn for each."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "batch.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    printed = ""
    for _ in range(2):
        exec(compile(code, "batch.md", "exec"), {"__name__": "batch"})  # noqa: S102  our own text
        before, printed = printed, capsys.readouterr().out
        assert "459" in printed
        assert "4" in printed.split("k2")[1]
    assert printed == before
    with Engine("quickstart", log="answers.db") as engine:
        for name in ("tonight:k1", "tonight:k2"):
            lines = b"".join(engine.store.read_lines(name))
            assert lines.count(b'"type":"turn_started"') == 1
        assert len([*engine.store.list_conversations()]) == 2


def test_the_report_of_the_next_night_is_printed_as_it_is(run_cli: RunCli, tmp_path: Path) -> None:
    """The report that the page shows, of a file whose key has another message, is what the command prints."""
    (tmp_path / "agent.yaml").write_text(AGENT, "utf-8")
    for day in ("Monday", "Tuesday"):
        rows = [{"key": "k1", "message": f"Sum up {day}."}, {"key": "k2", "message": "Sum up the week."}]
        (tmp_path / "tonight.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
        done = run_cli("batch", "agent.yaml", "tonight.jsonl")
    page = (ROOT / "docs" / "batch.md").read_text("utf-8")
    assert done.code == 1
    assert textwrap.indent(done.err, "    ") in page


def write_night_script(folder: Path) -> Path:
    """The script of the page in a folder `bot`, with a command that notes the number of its process."""
    page = (ROOT / "docs" / "batch.md").read_text("utf-8")
    (script,) = re.findall(r'```sh title="night.sh"\n(.*?)```', page, re.DOTALL)
    bot = folder / "bot"
    for place in (bot / "nights", bot / ".venv" / "bin"):
        place.mkdir(parents=True)
    (bot / "night.sh").write_text(script.replace("/srv/bot", shlex.quote(str(bot))), "utf-8")
    command = bot / ".venv" / "bin" / "toolchart"
    lines = ("#!/bin/sh", "echo $$ >pid", f'exec {shlex.quote(sys.executable)} -m toolchart "$@"', "")
    command.write_text("\n".join(lines), "utf-8")
    command.chmod(0o700)
    return bot


def make_environment() -> dict[str, str]:
    """The environment of the script."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TOOLCHART_LOG", None)
    return environment


def test_who_stops_the_script_for_cron_stops_its_batch(tmp_path: Path) -> None:
    """When the script is ended by its number, its batch is ended before it; the night is gone on with next
    time."""
    bot = write_night_script(tmp_path)
    (bot / "agent.yaml").write_text(AGENT.replace("model: m,", "model: m, latency_s: 4,"), "utf-8")
    inputs = bot / "nights" / "2026-11-28.jsonl"
    inputs.write_text(json.dumps({"key": "k1", "message": "Sum up Monday."}), "utf-8")
    with subprocess.Popen(["sh", bot / "night.sh"], env=make_environment()) as script:
        until = time.monotonic() + 60
        while not (bot / ".toolchart" / "log.db").exists() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1.0)  # the turn has begun
        batch = int((bot / "pid").read_text("utf-8"))
        script.terminate()
        assert script.wait(60) == 3
        with pytest.raises(ProcessLookupError):
            os.kill(batch, 0)
    assert inputs.exists()


def test_the_script_for_cron_goes_on_with_a_night_that_was_not_done(tmp_path: Path) -> None:
    """The script of the page, in another folder than cron starts in: a night without its answers stays and is
    gone on with, under its own name and in the log of the script's folder; then it is moved away."""
    bot, home = write_night_script(tmp_path), tmp_path / "home"
    home.mkdir()
    environment = make_environment()
    night = json.dumps({"key": "k1", "message": "Sum up Monday."})
    (bot / "nights" / "2026-11-28.jsonl").write_text(night, "utf-8")

    def run_night() -> int:
        done = subprocess.run(["sh", bot / "night.sh"], cwd=home, env=environment, check=False, timeout=120)
        return done.returncode

    assert run_night() == 1  # there is no agent yet
    (bot / "agent.yaml").write_text(AGENT, "utf-8")
    (bot / "nights" / "2026-11-29.jsonl").write_text(night, "utf-8")
    assert run_night() == 0
    names = ["2026-11-28.jsonl", "2026-11-29.jsonl"]
    assert sorted(path.name for path in (bot / "done").iterdir()) == names
    assert sorted(path.name for path in (bot / "answers").iterdir()) == names
    with Engine("quickstart", log=str(bot / ".toolchart" / "log.db")) as engine:
        assert sorted(engine.store.list_conversations()) == ["2026-11-28:k1", "2026-11-29:k1"]
    assert run_night() == 0  # nothing lies there
