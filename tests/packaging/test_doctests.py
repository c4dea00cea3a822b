"""Doctests: every example in a docstring runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import toolchart


@pytest.mark.slow
def test_doctests() -> None:
    """The doctests of every module of the package pass."""
    example_count = 0
    for info in pkgutil.walk_packages(toolchart.__path__, "toolchart."):
        if info.name.split(".")[1] not in ("tests", "docs", "benchmarks", "build", "setup"):
            module = importlib.import_module(info.name)
            outcome = doctest.testmod(module)
            assert outcome.failed == 0, info.name
            example_count += outcome.attempted
    assert example_count >= 20
