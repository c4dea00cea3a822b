"""The pages of `docs/`: the reference lists every export, and the built pages need nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import toolchart
import toolchart.testing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

BUILT_SITE = os.environ.get("TOOLCHART_SITE", "")
"""A folder in which `mkdocs build --strict` has built the pages of this tree; without it the tests do."""

_FOREIGN_RESOURCE = re.compile(
    r"""<(?:script|link|img|iframe|source|embed|object)\b[^>]*
        \b(?:src|href|data)\s*=\s*["']?(?:https?:)?//[^>]*>""",
    re.VERBOSE,
)
_FOREIGN_STYLE = re.compile(r"""(?:@import\s*["']|url\(\s*["']?)(?:https?:)?//[^)"']*""")


def test_the_reference_lists_every_export() -> None:
    """docs/reference.md has one entry per export of `toolchart` and `toolchart.testing`, and no other."""
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    entries = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    exports = [f"toolchart.{name}" for name in toolchart.__all__ if name != "__version__"]
    exports += [f"toolchart.testing.{name}" for name in toolchart.testing.__all__]
    assert sorted(entries) == sorted(exports)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages. The build fails at a dead link, or at a name that the reference cannot find."""
    if BUILT_SITE and (Path(BUILT_SITE) / "index.html").is_file():
        return Path(BUILT_SITE)
    if not all(map(importlib.util.find_spec, ("mkdocs", "mkdocstrings"))):
        pytest.skip("mkdocs is not installed (extra `docs`)")
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
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
    page = re.sub(r"<[^>]+>", "", (site / "reference" / "index.html").read_text("utf-8"))
    assert "on_delta" in page
    assert "The blocking form of arun" in page
