"""Test tools for users' own suites: scenarios, random turns and coverage, all derived from a chart.

    from toolchart.testing import chart_state_machine, find_paths, measure_coverage

    TestMyChart = chart_state_machine("my_chart.yaml").TestCase

`find_paths` finds scenarios that together take every transition of a chart, and gives a reason for each
transition that none can take. `chart_state_machine` drives the real core with random answers and checks the
invariants. `measure_coverage` counts what conversations have visited. The pytest plugin (`plugin.py`) adds
the fixtures `scripted_model`, `toolchart_log` and `assert_replays`. The names are imported on first use,
because pytest imports this package at every start.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "find_paths": "paths",
    "Paths": "paths",
    "Scenario": "paths",
    "UntakenTransition": "paths",
    "measure_coverage": "coverage",
    "Coverage": "coverage",
    "chart_state_machine": "stateful_machine",
    "Transition": "transitions",
    "list_transitions": "transitions",
}

__all__ = [*_HOME]

if TYPE_CHECKING:
    from toolchart.testing.coverage import Coverage as Coverage
    from toolchart.testing.coverage import measure_coverage as measure_coverage
    from toolchart.testing.paths import Paths as Paths
    from toolchart.testing.paths import Scenario as Scenario
    from toolchart.testing.paths import UntakenTransition as UntakenTransition
    from toolchart.testing.paths import find_paths as find_paths
    from toolchart.testing.stateful_machine import chart_state_machine as chart_state_machine
    from toolchart.testing.transitions import Transition as Transition
    from toolchart.testing.transitions import list_transitions as list_transitions


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
