"""The tutorial and the how-to pages are correct: what their examples print is what the pages say."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_examples import run_page

DOCS = Path(__file__).resolve().parents[2] / "docs"

PAGES = sorted(path for folder in ("howto", "tutorial") for path in (DOCS / folder).glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_example_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of a page, run as printed in an empty folder, prints what the page says."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("TOOLCHART_LOG", raising=False)
    assert run_page(page, tmp_path) > 0
