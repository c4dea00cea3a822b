"""What the agents that a flow runs can cost: the worst case of each child, for `check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolchart.specs.charts import load_spec_chart
from toolchart.specs.child_agents import MAX_DEPTH, build_child_spec, describe_agent, list_called_agents
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.models import AgentSpec
from toolchart.specs.turn_plan import build_limits, require_handlers
from toolchart.states.effects import EffectDescriptor
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits
from toolchart.states.proofs.bounds.costs import FindAgentCost, WorstCase
from toolchart.states.proofs.check import check


def find_widest_limits(spec: AgentSpec) -> Limits:
    """The limits of the handler that allows the most iterations, with the most attempts of any handler.

    Raises:
        SpecError: the agent has no handlers.
    """
    require_handlers(spec)
    limits = [build_limits(spec, handler) for handler in spec.responses]
    widest = max(limits, key=lambda entry: entry.max_iterations)
    return replace(widest, max_attempts=max(entry.max_attempts for entry in limits))


def build_cost_finder(
    spec: AgentSpec, resolver: EffectResolver | None = None, handler: str | None = None, *, depth: int = 0
) -> FindAgentCost:
    """A function that returns the worst case of one turn of the agent that an effect of this spec runs.

    A child's own children count too. Loading the spec's chart has refused charts that run each other in a
    circle, and tools that do.

    Args:
        handler: the one whose tools count; None: all.
        depth: agents above this one. The function raises `SpecError` where they are more than `MAX_DEPTH`:
            charts and tools that make a circle together.
    """
    own_resolver = resolver or EffectResolver(spec)
    worst_cases: dict[str, WorstCase | None] = {}

    def compute_cost(agent: Mapping[str, Any]) -> WorstCase | None:
        if depth == MAX_DEPTH:
            raise SpecError(f"agents run each other more than {MAX_DEPTH} deep, by charts and tools")
        child = build_child_spec(spec, agent)
        child_resolver = own_resolver.copy_for(child)
        report = check(
            load_spec_chart(child, child_resolver),
            limits=find_widest_limits(child),
            find_agent_cost=build_cost_finder(
                child, child_resolver, agent.get("handler") or None, depth=depth + 1
            ),
        )
        return report.worst

    def find_cost(row: EffectDescriptor) -> WorstCase | None:
        if row.name not in worst_cases:
            if row.cost == "tool_rounds":
                costs = map(compute_cost, list_called_agents(spec, handler))
                worst_cases[row.name] = _join_costs([cost for cost in costs if cost is not None])
            else:
                worst_cases[row.name] = compute_cost(describe_agent(row.parameters))
        return worst_cases[row.name]

    return find_cost


def _join_costs(costs: Sequence[WorstCase]) -> WorstCase | None:
    """The greatest number of each kind; None without any."""
    if not costs:
        return None
    names = WorstCase.__struct_fields__
    return WorstCase(**{name: max(getattr(cost, name) for cost in costs) for name in names})
