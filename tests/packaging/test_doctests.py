"""Doctests: every example in a docstring runs."""

from __future__ import annotations

import doctest
import importlib

import pytest
from source_tree import load_modules


@pytest.mark.slow
def test_doctests() -> None:
    """The doctests of every module of the package pass; a module without a prompt in its text has none."""
    example_count = 0
    for module in load_modules().values():
        if ">>> " in module.path.read_text("utf-8"):
            outcome = doctest.testmod(importlib.import_module(module.name))
            assert outcome.failed == 0, module.name
            example_count += outcome.attempted
    assert example_count >= 20
