"""The worst case of a flow with agents: that of each child counts once for each item."""

from __future__ import annotations

from pathlib import Path

from toolchart.specs import flows
from toolchart.specs.agent_costs import build_cost_finder, find_widest_limits
from toolchart.specs.charts import load_chart
from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.proofs.check import check


def test_the_bounds_of_map_and_reduce_compose() -> None:
    """Eight readers on the default chart and one clerk: the costs of each, and the own calls of the flow."""
    spec = load_spec(Path(flows.__file__).parent / "map_reduce.yaml")
    limits = find_widest_limits(spec)
    alone = check(load_agent_chart(spec), limits=limits).worst
    reader = check(load_chart("full"), limits=limits).worst
    clerk = check(load_chart("action_selector"), limits=limits).worst
    whole = check(load_agent_chart(spec), limits=limits, find_agent_cost=build_cost_finder(spec)).worst
    assert alone is not None
    assert reader is not None
    assert clerk is not None
    assert whole is not None
    assert alone.agent_runs == alone.unknown_agent_runs == 8 + 1
    assert whole.model_calls == alone.model_calls + 8 * reader.model_calls + clerk.model_calls
    assert whole.tool_rounds == 8 * reader.tool_rounds + clerk.tool_rounds
    assert whole.unknown_agent_runs == 0
