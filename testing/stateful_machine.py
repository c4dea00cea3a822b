"""A Hypothesis state machine of any chart: random turns through the real core, invariants watched.

    TestMyChart = chart_state_machine("my_chart.yaml").TestCase

Hypothesis plays everything that stands around the core: the user, the model, the review, the person
who decides, the tools, the clock. It draws what each of them might do (calls without ids, calls with
ids that were used before, arguments that could not be parsed, outcomes in any order, a cancellation
at any moment), and `toolchart.testing.invariants` watches every step. What fails is shrunk by
Hypothesis to the shortest conversation that shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolchart.states.errors import ToolchartError
from toolchart.states.events import Limits
from toolchart.states.machine import machine_of
from toolchart.testing.transitions import ChartLike, chart_of

if TYPE_CHECKING:
    from toolchart.testing.stateful_rules import RandomTurns

__all__ = ["chart_state_machine"]


def chart_state_machine(chart: ChartLike, *, limits: Limits | None = None) -> type[RandomTurns]:
    """The state machine of a chart; its `TestCase` is what a test suite takes.

    `TestCase.settings = hypothesis.settings(max_examples=..., stateful_step_count=...)` says how much
    is tried. The names of charts and paths are looked up when this is called, from the working folder.

    Args:
        chart: a chart, the name of a shipped one, a path, or an inline mapping.
        limits: the limits of every turn; without them each turn draws small ones.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
        ToolchartError: Hypothesis is not installed.
    """
    try:
        from hypothesis import strategies as st

        from toolchart.testing.stateful_rules import RandomTurns
        from toolchart.testing.strategies import limits as drawn_limits
    except ModuleNotFoundError as error:
        raise ToolchartError(
            f"a chart's state machine needs Hypothesis ({error}): pip install hypothesis"
        ) from None
    found = chart_of(chart)
    body = {
        "__doc__": f"Random turns through the chart {found.name}.",
        "__module__": __name__,
        "chart": found,
        "machine": machine_of(found),
        "limits": drawn_limits() if limits is None else st.just(limits),
    }
    return type(f"Chart_{found.name}", (RandomTurns,), body)
