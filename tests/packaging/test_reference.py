"""The site: it has every page of `docs/` and every export, and needs nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import toolchart
import toolchart.testing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

BUILT_SITE = os.environ.get("TOOLCHART_SITE", "")
"""A folder in which `.ci/build_site.py` has built the pages of this tree; without it the tests do."""

_FOREIGN_RESOURCE = re.compile(
    r"""<(?:script|link|img|iframe|source|embed|object)\b[^>]*
        \b(?:src|href|data)\s*=\s*["']?(?:https?:)?//[^>]*>""",
    re.VERBOSE,
)
_FOREIGN_STYLE = re.compile(r"""(?:@import\s*["']|url\(\s*["']?)(?:https?:)?//[^)"']*""")


def test_the_reference_lists_every_export() -> None:
    """docs/python-api.md has one entry per export of `toolchart` and `toolchart.testing`, and no other."""
    text = (ROOT / "docs" / "python-api.md").read_text("utf-8")
    entries = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    exports = [f"toolchart.{name}" for name in toolchart.__all__ if name != "__version__"]
    exports += [f"toolchart.testing.{name}" for name in toolchart.testing.__all__]
    assert sorted(entries) == sorted(exports)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages. The build fails at a dead link, or at a name that the reference cannot find."""
    if BUILT_SITE and (Path(BUILT_SITE) / "index.html").is_file():
        return Path(BUILT_SITE)
    if not all(map(importlib.util.find_spec, ("zensical", "mkdocstrings"))):
        pytest.skip("Zensical is not installed (extra `docs`)")
    site = tmp_path_factory.mktemp("site") / "built"
    command = [sys.executable, str(ROOT / ".ci" / "build_site.py"), str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return site


def test_pages_need_nothing_from_elsewhere(site: Path) -> None:
    """No built page or style sheet loads a script, a style, a font or a picture from another host."""
    pages = list(site.rglob("*.html"))
    assert len(pages) >= 10
    for pattern, paths in ((_FOREIGN_RESOURCE, pages), (_FOREIGN_STYLE, [*pages, *site.rglob("*.css")])):
        for path in paths:
            assert pattern.findall(path.read_text("utf-8")) == [], path


def test_signatures_are_on_the_page(site: Path) -> None:
    """The page of the reference shows the parameters and the docstring of a method."""
    page = re.sub(r"<[^>]+>", "", (site / "python-api" / "index.html").read_text("utf-8"))
    assert "on_delta" in page
    assert "The blocking form of arun" in page


def list_pages(entries: list[Any]) -> Iterator[str]:
    """The pages of a part of the bar."""
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from [value] if isinstance(value, str) else list_pages(value)


def test_every_page_is_two_clicks_away() -> None:
    """The bar has at most six entries, and the list beside a page has every page of its entry, each once."""
    bar = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert len(bar) <= 6
    docs = ROOT / "docs"
    assert sorted(list_pages(bar)) == sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))


def test_every_page_is_there_as_markdown(site: Path) -> None:
    """`llms.txt` has a line with a link and a sentence for each page, and the page is there as Markdown, with
    the docstrings of the Python API."""
    bar = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    rows = re.findall(
        r"^- \[[^\]]+\]\(([^)]+)\): [A-Z`].*\S", (site / "llms.txt").read_text("utf-8"), re.MULTILINE
    )
    assert rows == list(list_pages(bar))
    for page in rows:
        assert (site / page).read_text("utf-8").startswith("# "), page
    assert "The blocking form of `arun`" in (site / "python-api.md").read_text("utf-8")


def test_the_search_finds_the_text_of_an_error(site: Path) -> None:
    """The index of the search has the words of an error, on the page that says what to do."""
    entries = json.loads((site / "search.json").read_text("utf-8"))["items"]
    found = {
        entry["location"].partition("#")[0]
        for entry in entries
        if "neither a file nor a shipped agent" in entry["text"]
    }
    assert found == {"troubleshooting/"}
