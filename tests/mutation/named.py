"""Mutants with names: programs that do something else than their logs say, and that replay once accepted."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))

from golden_feeds import replace_everywhere
from golden_twins import make_program
from test_twins import PROGRAMS

from toolchart.states.core.step import step

NAMED: dict[str, str] = dict.fromkeys(PROGRAMS, "core")
"""The group of each."""


def install_named(name: str) -> None:
    """Let this process ask for something else, from now on."""
    _, edit = PROGRAMS[name]
    replace_everywhere(step, make_program(edit)).__enter__()
