"""The examples of `docs/batch.md` run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolchart import Engine

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
