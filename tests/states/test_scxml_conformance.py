"""Conformance with SCXML: the suites of SCION and the W3C through our machine.

`scxml_passes.txt` lists the tests that pass. It may only grow.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from scxml_suite import REASON, find_suite_folder, list_suite_tests, run_suite_test

from toolchart.states.errors import SpecError

FOLDER = find_suite_folder()
"""Read here, because tests run without the variables of Toolchart."""

PASSES = Path(__file__).with_name("scxml_passes.txt")


def read_passes() -> list[str]:
    """The names in the list, in order."""
    lines = PASSES.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.skipif(FOLDER is None, reason=REASON)
def test_what_loads_does_what_scxml_says() -> None:
    """Every pure test that our rules let load passes, and exactly those that pass are in the list."""
    assert FOLDER is not None
    passes, wrong = [], {}
    for test in list_suite_tests(FOLDER):
        try:
            difference = run_suite_test(test)
        except SpecError:
            continue  # for instance regions whose conflicts the library resolves in another order
        if difference is None:
            passes.append(test.name)
        else:
            wrong[test.name] = difference
    assert wrong == {}
    assert sorted(passes) == read_passes(), f"write the new list to {PASSES.name}; it may only grow"


def test_the_list_of_passes_does_not_shrink() -> None:
    """The list has at least as many names as it had when it was begun, each once and in order."""
    names = read_passes()
    assert len(names) >= 65
    assert names == sorted(set(names))
