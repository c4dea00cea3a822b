"""SECURITY.md says what holds, and names the test that shows each line."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

_REFERENCE = re.compile(r"`((?:\w+/)*test_\w+\.py)::(test_\w+)`")

_PROMISES = "## What holds, and the test that shows it"


def read_promises() -> list[str]:
    """The lines that promise something: every item of the lists in their section."""
    text = (ROOT / "SECURITY.md").read_text("utf-8").partition(_PROMISES)[2].partition("\n## ")[0]
    return [item.partition("\n\n")[0] for item in re.split(r"\n- ", text)[1:]]


@cache
def list_tests(file: str) -> frozenset[str]:
    """The names of the tests in a file of `tests/`; none where there is no such file."""
    path = ROOT / "tests" / file
    if not path.is_file():
        return frozenset()
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, definitions)
    )


def test_each_promise_names_its_test() -> None:
    """No line of the section stands alone."""
    promises = read_promises()
    assert len(promises) >= 20
    assert [promise for promise in promises if not _REFERENCE.search(promise)] == []


def test_each_named_test_exists() -> None:
    """Every test that a line names is there, in the file that it names."""
    named = [pair for promise in read_promises() for pair in _REFERENCE.findall(promise)]
    assert [pair for pair in named if pair[1] not in list_tests(pair[0])] == []
