"""Tests from a chart: what a user's own test suite takes from Toolchart.

    from toolchart.testing import chart_state_machine, find_paths, measure_coverage

    TestMyChart = chart_state_machine("my_chart.yaml").TestCase

`find_paths` writes scenarios that together take every transition of a chart and says which cannot be
taken; `chart_state_machine` drives the real core with random answers and watches the invariants;
`measure_coverage` says what conversations have visited. The pytest plugin beside them gives the fixtures
`scripted_model`, `toolchart_log` and `assert_replays`. Names load when they are first used, because
pytest imports this package at every start.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "find_paths": "paths",
    "Paths": "paths",
    "Scenario": "paths",
    "Untaken": "paths",
    "measure_coverage": "coverage",
    "Coverage": "coverage",
    "chart_state_machine": "stateful_machine",
    "Transition": "transitions",
    "transitions_of": "transitions",
}

__all__ = [*_HOME]

if TYPE_CHECKING:
    from toolchart.testing.coverage import Coverage as Coverage
    from toolchart.testing.coverage import measure_coverage as measure_coverage
    from toolchart.testing.paths import Paths as Paths
    from toolchart.testing.paths import Scenario as Scenario
    from toolchart.testing.paths import Untaken as Untaken
    from toolchart.testing.paths import find_paths as find_paths
    from toolchart.testing.stateful_machine import chart_state_machine as chart_state_machine
    from toolchart.testing.transitions import Transition as Transition
    from toolchart.testing.transitions import transitions_of as transitions_of


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
