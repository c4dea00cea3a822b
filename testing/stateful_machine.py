"""A Hypothesis state machine for any chart: random turns through the real core, every step checked.

    TestMyChart = chart_state_machine("my_chart.yaml").TestCase

Hypothesis plays everything around the core: the user, the model, the review, the person who decides, the
tools and the clock. It draws what each of them might do: calls without ids, calls with ids that were used
before, arguments that could not be parsed, outcomes in any order, a cancellation at any moment.
`toolchart.testing.invariants` checks every step. Hypothesis shrinks a failure to the shortest conversation
that shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolchart.states.errors import ToolchartError
from toolchart.states.events import Limits
from toolchart.states.machine import get_machine
from toolchart.testing.transitions import ChartLike, resolve_chart

if TYPE_CHECKING:
    from toolchart.testing.random_turns import RandomTurns

__all__ = ["chart_state_machine"]


def chart_state_machine(chart: ChartLike, *, limits: Limits | None = None) -> type[RandomTurns]:
    """Make the state machine of a chart; assign its `TestCase` to a name in your test module.

    `TestCase.settings = hypothesis.settings(max_examples=..., stateful_step_count=...)` sets how many
    turns are tried. Names and paths of charts are resolved by this call, from the working folder.

    Args:
        chart: a chart, the name of a shipped one, a path, or an inline mapping.
        limits: the limits of every turn; if None, each turn draws small ones.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
        ToolchartError: Hypothesis is not installed.
    """
    try:
        from hypothesis import strategies as st

        from toolchart.testing.random_turns import RandomTurns, draw_limits
    except ModuleNotFoundError as error:
        raise ToolchartError(
            f"a chart's state machine needs Hypothesis ({error}): pip install hypothesis"
        ) from None
    loaded_chart = resolve_chart(chart)
    body = {
        "__doc__": f"Random turns through the chart {loaded_chart.name}.",
        "__module__": __name__,
        "chart": loaded_chart,
        "machine": get_machine(loaded_chart),
        "limits": draw_limits() if limits is None else st.just(limits),
    }
    return type(f"Chart_{loaded_chart.name}", (RandomTurns,), body)
