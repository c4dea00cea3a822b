"""What CONTRIBUTING.md and the glossary say about where things are is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MOST_FILES = 10
"""So many files a newcomer reads whole."""

_FIRST_FILES = "Read these files first, in this order:"
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|toml))`")
_NAMES_IN_FILE = re.compile(r"`([\w./-]+\.py)` \(((?:`\w+`(?:, )?)+)\)")
_WITHOUT_FOLDER = {"wire.py"}
"""One file in the folder of each host."""


def list_first_files(text: str) -> list[tuple[str, str]]:
    """Path and explanation of each file of the list, in order."""
    _, _, rest = text.partition(_FIRST_FILES)
    block = rest.strip().split("\n\n")[0]
    return re.findall(r"^\d+\. `([^`]+)`: (.+)$", block, re.MULTILINE)


def test_a_newcomer_reads_at_most_ten_files() -> None:
    """The files to read first exist, are at most ten, and each says what one learns there."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    entries = list_first_files(text)
    paths = [path for path, _ in entries]
    assert 0 < len(paths) <= MOST_FILES
    assert len(set(paths)) == len(paths)
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    numbers = re.findall(r"^\d+\. `", text.partition(_FIRST_FILES)[2].split("\n## ")[0], re.MULTILINE)
    assert len(numbers) == len(entries), "each entry says what one learns there"


def test_each_of_them_says_what_passes_through_it() -> None:
    """The first screen of each module on the list says what comes in, what goes out and who is next."""
    modules = [path for path, _ in list_first_files((ROOT / "CONTRIBUTING.md").read_text()) if ".py" in path]
    assert modules
    for path in modules:
        first_screen = "\n".join((ROOT / path).read_text().splitlines()[:40])
        assert [word for word in ("In: ", "Out: ", "Next: ") if word not in first_screen] == [], path


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/glossary.md"])
def test_every_path_exists(page: str) -> None:
    """Every path in backticks is a file or folder of the repository."""
    paths = set(_PATH.findall((ROOT / page).read_text())) - _WITHOUT_FOLDER
    assert len(paths) > 5
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


def test_the_glossary_names_what_its_files_have() -> None:
    """A name in parentheses after a file stands in that file."""
    found = _NAMES_IN_FILE.findall((ROOT / "docs/glossary.md").read_text())
    pairs = [(path, name) for path, names in found for name in re.findall(r"\w+", names)]
    assert len(pairs) > 5
    missing = [pair for pair in pairs if not re.search(rf"\b{pair[1]}\b", (ROOT / pair[0]).read_text())]
    assert missing == []
