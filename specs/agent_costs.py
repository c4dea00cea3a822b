"""What the agents that a flow runs can cost: the worst case of each child, for `check`."""

from __future__ import annotations

from msgspec.structs import replace

from toolchart.specs.charts import load_spec_chart
from toolchart.specs.child_agents import build_child_spec, describe_agent
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.models import AgentSpec
from toolchart.specs.turn_plan import build_limits, require_handlers
from toolchart.states.effects import EffectDescriptor
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


def build_cost_finder(spec: AgentSpec, resolver: EffectResolver | None = None) -> FindAgentCost:
    """A function that returns the worst case of one turn of the agent that an effect of this spec runs.

    A child's own children count too. Loading the spec's chart has refused agents that run each other in a
    circle.
    """
    own_resolver = resolver or EffectResolver(spec)
    worst_cases: dict[str, WorstCase | None] = {}

    def find_cost(row: EffectDescriptor) -> WorstCase | None:
        if row.name not in worst_cases:
            child = build_child_spec(spec, describe_agent(row.parameters))
            child_resolver = own_resolver.copy_for(child)
            report = check(
                load_spec_chart(child, child_resolver),
                limits=find_widest_limits(child),
                find_agent_cost=build_cost_finder(child, child_resolver),
            )
            worst_cases[row.name] = report.worst
        return worst_cases[row.name]

    return find_cost
