"""The examples of `docs/batch.md` run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_python_example_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 16: the page's program answers each message."""
    page = (ROOT / "docs" / "batch.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "batch.md", "exec"), {"__name__": "batch"})  # noqa: S102  our own text
    printed = capsys.readouterr().out
    assert "459" in printed
    assert "4" in printed.split("k2")[1]
