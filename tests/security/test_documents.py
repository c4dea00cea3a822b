"""Fault 8: no document blocks a search, takes the memory, or hides the others."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from resource_limits import ends_in_time

from toolchart.tools.sources import document_text
from toolchart.tools.sources.documents import DocumentIndex


def build_index(folder: Path) -> DocumentIndex:
    """An index over a folder with one good document."""
    docs = folder / "docs"
    docs.mkdir(exist_ok=True)
    (docs / "good.md").write_text("# Ferry\n\nThe ferry leaves at nine.\n", "utf-8")
    return DocumentIndex({"documents": docs}, folder / "index.db")


def test_no_file_hides_the_others(tmp_path: Path) -> None:
    """A pipe, a sparse file and an unreadable file are listed as problems, and the good one is found."""
    index = build_index(tmp_path)
    docs = tmp_path / "docs"
    os.mkfifo(docs / "pipe.md")
    with open(docs / "sparse.txt", "wb") as file:
        file.truncate(6_000_000_000)
    (docs / "folder.md").mkdir()
    (docs / "loop.md").symlink_to("loop.md")
    (docs / "broken.pdf").write_bytes(b"%PDF-1.7\n" + b"\x00" * 500)
    (docs / "closed.md").write_text("x", "utf-8")
    (docs / "closed.md").chmod(0)
    (hit,) = index.search("ferry")
    assert hit.file == "good.md"
    with closing(sqlite3.connect(tmp_path / "index.db")) as db:
        problems = dict(db.execute("SELECT path, problem FROM files WHERE problem IS NOT NULL"))
    assert {"pipe.md", "sparse.txt", "broken.pdf"} <= problems.keys()
    assert "regular" in problems["pipe.md"]
    assert "larger than" in problems["sparse.txt"]


@pytest.mark.parametrize(
    "text", ["<!--" * 40_000, "<" * 200_000, "<a " * 60_000, "&" * 200_000, "<p>" * 60_000, "\n" * 200_000]
)
def test_no_page_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A page that the parser does not finish is given up, and the good document is found."""
    index = build_index(tmp_path)
    assert [hit.file for hit in index.search("ferry")] == ["good.md"]
    monkeypatch.setattr(document_text, "TIMEOUT_S", 0.5)
    (tmp_path / "docs" / "page.html").write_text(text, "utf-8")
    with ends_in_time():
        assert [hit.file for hit in index.search("ferry")] == ["good.md"]
