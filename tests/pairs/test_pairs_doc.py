"""The pages of docs/coming-from are correct: the programs of this folder, their lines, and what was measured.

The pages are generated: `python tests/pairs/test_pairs_doc.py` writes them from `tests/pairs/pages`. Where
`TOOLCHART_PAIRS` names the folder that `.ci/install_pairs` has filled, it also measures how long the programs
take to load and to run, and says what it does; that takes minutes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import pytest
from pair_page import DOCS, MEASURES, PAGE_OF, PAGES, list_pages, measure, print_page
from pair_runs import OWN_LOOP, ROOT, VARIABLE, find_python

FOLDERS = {
    "pydantic_ai": ("pydantic_ai", "pydantic_graph"),
    "openai_agents": ("agents",),
    "langgraph": ("langgraph", "langchain", "langchain_core"),
    OWN_LOOP: ("openai", "pydantic"),
}
"""Where the words of a framework come from: folders of its environment."""
OUR_FOLDERS = ("app", "engine", "providers", "specs", "states", "testing", "tools")
SOURCES = {".py", ".yaml"}
WORD = re.compile(r"[A-Za-z_]\w{2,}")


@pytest.mark.parametrize("name", list_pages())
def test_a_page_is_up_to_date(name: str) -> None:
    """Each page has the programs as they are, and the figures that were measured; there are no others."""
    assert (DOCS / f"{name}.md").read_text("utf-8") == print_page(name), (
        "run: python tests/pairs/test_pairs_doc.py"
    )
    assert sorted(path.stem for path in DOCS.iterdir()) == list_pages()


@pytest.mark.parametrize("framework", PAGE_OF)
def test_the_words_of_a_page_exist(framework: str) -> None:
    """A page's first table has 10 to 16 rows, and every name of ours in it stands in our source."""
    rows = read_words(framework)
    assert 10 <= len(rows) <= 16
    files = [path for folder in OUR_FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES]
    assert list_unknown([ours for _, ours in rows], files) == []


@pytest.mark.parametrize("framework", PAGE_OF)
def test_the_words_of_others_exist(framework: str) -> None:
    """Every name of another framework in a page's first table stands in the source of its newest release."""
    python = find_python(framework)
    if python is None:
        pytest.skip(
            f"{VARIABLE} names no folder in which .ci/install_pairs has installed the newest releases"
        )
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    files = [path for folder in FOLDERS[framework] for path in (packages / folder).rglob("*.py")]
    assert list_unknown([theirs for theirs, _ in read_words(framework)], files) == []


def read_words(framework: str) -> list[tuple[str, str]]:
    """The rows of a page's first table: their word and ours."""
    lines = (PAGES / f"{PAGE_OF[framework]}.md").read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows: list[tuple[str, str]] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        theirs, ours, _ = (cell.strip() for cell in line.strip("|").split(" | "))
        rows.append((theirs, ours))
    return rows


def list_unknown(cells: list[str], files: list[Path]) -> list[str]:
    """The names in the code of some cells that no file has. Texts in quotation marks are no names."""
    names = {
        name
        for cell in cells
        for code in re.findall(r"`([^`]+)`", cell)
        for name in WORD.findall(re.sub(r'"[^"]*"', "", code))
    }
    for path in files:
        if not names:
            break
        names -= set(WORD.findall(path.read_text("utf-8")))
    return sorted(names)


if __name__ == "__main__":
    measured = json.loads(MEASURES.read_text("utf-8")) if MEASURES.exists() else {}
    measures = measure(measured, lambda line: print(line, flush=True))
    MEASURES.write_text(json.dumps(measures, indent=2, ensure_ascii=False) + "\n", "utf-8")
    DOCS.mkdir(exist_ok=True)
    for page in list_pages():
        (DOCS / f"{page}.md").write_text(print_page(page), "utf-8")
        print(f"wrote docs/coming-from/{page}.md")
    sys.exit()
