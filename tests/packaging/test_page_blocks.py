"""Every block of a page is run or loaded: by the test of its page, or here, or a comment says why it is not.

The comment stands right above the block: `<!-- not run: REASON -->`.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib
import json
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

RUN_BY = {
    "README.md": "tests/packaging/test_readme.py",
    "docs/batch.md": "tests/examples/test_batch.py",
    "docs/coming-from/*.md": "tests/pairs/test_pairs.py",
    "docs/diagrams.md": "tests/packaging/test_diagrams_doc.py",
    "docs/extending.md": "tests/packaging/test_extending.py",
    "docs/flows.md": "tests/packaging/test_flows_doc.py",
    "docs/howto/*.md": "tests/packaging/test_pages.py",
    "docs/limits.md": "tests/specs/test_unread_limits.py",
    "docs/pipelines.md": "tests/examples/test_pipelines.py",
    "docs/providers.md": "tests/packaging/test_providers_doc.py",
    "docs/python-api.md": "tests/packaging/test_typing.py",
    "docs/recipes/*.md": "tests/recipes/test_recipes.py",
    "docs/scripts.md": "tests/packaging/test_scripts_doc.py",
    "docs/tools.md": "tests/tools/test_tools_doc.py",
    "docs/tour.md": "tests/packaging/test_tour.py",
    "docs/tutorial/*.md": "tests/packaging/test_pages.py",
    "docs/watch.md": "tests/app/watch/test_watch_page.py",
    "docs/web-application.md": "tests/examples/test_web_application.py",
    "docs/writing-charts/*.md": "tests/packaging/test_writing_charts_doc.py",
}
"""The tests that run the blocks of pages."""

_BLOCK = re.compile(r"(?:<!-- not run: ([^\n]+?) -->\n)?^```(\w+)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A block of a page that no test of the page runs."""

    page: str
    number: int
    reason: str
    """Why it is not run; empty where it is."""
    language: str
    text: str


def list_blocks() -> list[Block]:
    """The blocks of all pages without a test of their own."""
    return [
        Block(page, number, *block)
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if not any(fnmatch.fnmatch(page := path.relative_to(ROOT).as_posix(), glob) for glob in RUN_BY)
        for number, block in enumerate(_BLOCK.findall(path.read_text("utf-8")))
    ]


@pytest.mark.parametrize("block", list_blocks(), ids=lambda block: f"{block.page}-{block.number}")
def test_a_block_is_run_or_loaded(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python runs in a folder with an empty folder `docs` only, or is compiled and finds what it imports of
    Toolchart; data is loaded. Commands, which nothing runs here, say why."""
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    match block.language:
        case "yaml":
            assert yaml.safe_load(block.text) is not None
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "python" if block.reason:
            check_imports(compile(block.text, block.page, "exec", ast.PyCF_ONLY_AST))
        case "python":
            exec(compile(block.text, block.page, "exec"), {"__name__": "__main__"})  # noqa: S102  our own text
        case _:
            assert block.reason, f"{block.page}: say above the block why it is not run"


def check_imports(tree: ast.AST) -> None:
    """Import each name of Toolchart that a program imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolchart"):
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, name.name) for name in node.names), ast.unparse(node)


@pytest.mark.parametrize("pages", RUN_BY)
def test_the_test_of_a_page_reads_it(pages: str) -> None:
    """A page that is tested elsewhere is there, and is named in that test or in what it imports."""
    assert list(ROOT.glob(pages))
    text = (ROOT / RUN_BY[pages]).read_text("utf-8")
    name = Path(pages).parent.name if "*" in pages else Path(pages).name
    assert name in text or "pair_page" in text or "pair_runs" in text


def test_what_a_reason_names_is_there() -> None:
    """A test that a reason names exists."""
    names = {name for block in list_blocks() for name in re.findall(r"tests/\S+\.py", block.reason)}
    assert names
    assert [name for name in names if not (ROOT / name).is_file()] == []
