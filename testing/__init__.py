"""Test tools for users' own suites: scenarios, random turns and coverage, all derived from a chart.

    from toolchart.testing import chart_state_machine, find_paths, measure_coverage

    TestMyChart = chart_state_machine("my_chart.yaml").TestCase

`find_paths` finds scenarios that together take every transition of a chart, and gives a reason for each
transition that none can take. `chart_state_machine` drives the real core with random answers and checks the
invariants. `measure_coverage` counts what conversations have visited.
`ScriptedModel` answers in place of a model, and `TurnableClock` is a clock that tests turn. The pytest plugin
(`plugin.py`) adds the fixtures `scripted_model`, `emulated_host`, `toolchart_log` and `assert_replays`.
`toolchart.testing.emulators` serves model hosts that refuse like the real ones.
The names are imported on first use, because pytest imports this package at every start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolchart.testing.clock import TurnableClock as TurnableClock
    from toolchart.testing.coverage import Coverage as Coverage
    from toolchart.testing.coverage import measure_coverage as measure_coverage
    from toolchart.testing.doubles import ScriptedModel as ScriptedModel
    from toolchart.testing.doubles import call_tool as call_tool
    from toolchart.testing.paths import Paths as Paths
    from toolchart.testing.paths import Scenario as Scenario
    from toolchart.testing.paths import find_paths as find_paths
    from toolchart.testing.stateful_machine import chart_state_machine as chart_state_machine
    from toolchart.testing.transitions import Transition as Transition
    from toolchart.testing.transitions import list_transitions as list_transitions
    from toolchart.testing.untaken_transitions import UntakenTransition as UntakenTransition

# Type checkers do not see this part, so a name that does not exist is an error for them.
if not TYPE_CHECKING:
    from toolchart.late_names import make_late_names

    __all__, __getattr__, __dir__ = make_late_names(
        globals(),
        {
            "toolchart.testing.clock": ("TurnableClock",),
            "toolchart.testing.doubles": ("ScriptedModel", "call_tool"),
            "toolchart.testing.paths": ("find_paths", "Paths", "Scenario"),
            "toolchart.testing.untaken_transitions": ("UntakenTransition",),
            "toolchart.testing.coverage": ("measure_coverage", "Coverage"),
            "toolchart.testing.stateful_machine": ("chart_state_machine",),
            "toolchart.testing.transitions": ("list_transitions", "Transition"),
        },
    )
