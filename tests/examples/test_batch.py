"""The examples of `docs/batch.md` run as printed."""

from __future__ import annotations

import json
import re
import textwrap
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
