"""What an effect can cost at most: model calls, runs of agents, calls of functions, questions, timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from toolchart.states.call_arguments import get_call_limit
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.effects import EffectDescriptor
from toolchart.states.events import Limits
from toolchart.states.flows.parameters import WaitParameters
from toolchart.states.flows.times import parse_duration
from toolchart.states.proofs.explored_states import is_agent_run

_SECONDS_OF_DAY = 86_400.0


class WorstCase(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn can cost at most. Each number is a maximum on its own."""

    model_calls: int
    """Those of agents too, where their charts are known."""
    tool_rounds: int
    """Replies whose calls are run."""
    waits: int
    """Timers that are started."""
    waiting_s: float
    """Seconds of all waits together, each at its longest."""
    agent_runs: int = 0
    function_calls: int = 0
    questions: int = 0
    unknown_agent_runs: int = 0
    """Runs of agents whose own worst case is not known here and not part of the numbers."""


FindAgentCost = Callable[[EffectDescriptor], WorstCase | None]
"""Returns the worst case of one turn of the agent that a `run_agent` runs; None where it has no bound. For
`run_tools`: that of the agents behind tools, whichever costs most; None where no tool runs an agent."""

Costs = tuple[float, ...]
"""One number for each field of `WorstCase`."""

COST_FIELDS = WorstCase.__struct_fields__
NO_COSTS: Costs = (0,) * len(COST_FIELDS)


class CostTable:
    """The costs of the effects of one chart.

    Args:
        find_agent_cost: None where the agents are not known.
    """

    def __init__(
        self, vocabulary: Vocabulary, limits: Limits, find_agent_cost: FindAgentCost | None = None
    ) -> None:
        self._vocabulary = vocabulary
        self._limits = limits
        self._find_agent_cost = find_agent_cost
        self._costs: dict[str, Costs] = {}

    def find_costs(self, effect: str) -> Costs:
        """What asking for an effect can cost."""
        if effect not in self._costs:
            costs = self._build_costs(self._vocabulary.find_effect(effect))
            self._costs[effect] = tuple(costs.get(name, 0) for name in COST_FIELDS)
        return self._costs[effect]

    def _build_costs(self, row: EffectDescriptor) -> dict[str, float]:
        if is_agent_run(row):
            return self._build_agent_costs(row)
        if row.cost == "tool_rounds" and self._find_agent_cost is not None:
            return self._build_call_costs(row, self._find_agent_cost(row))
        if row.is_timer:
            return {row.cost: 1, "waiting_s": self._find_seconds(row)}
        return {row.cost: 1}

    def _build_call_costs(self, row: EffectDescriptor, cost: WorstCase | None) -> dict[str, float]:
        """The costs of a round of calls, each of which may run the agent of this cost; None: none can."""
        if cost is None:
            return {row.cost: 1}
        calls = get_call_limit(self._limits.max_calls_per_reply)
        costs = {name: getattr(cost, name) * calls for name in COST_FIELDS}
        costs["agent_runs"] += calls
        costs[row.cost] += 1
        return costs

    def _find_seconds(self, row: EffectDescriptor) -> float:
        if not isinstance(row.parameters, WaitParameters):
            return self._limits.max_wait_s
        seconds = parse_duration(row.parameters.time)
        return seconds if seconds is not None else _SECONDS_OF_DAY

    def _build_agent_costs(self, row: EffectDescriptor) -> dict[str, float]:
        items = count_most_items(self._vocabulary, row) or 0
        if self._find_agent_cost is None:
            return {"agent_runs": items, "unknown_agent_runs": items}
        cost = self._find_agent_cost(row)
        own = {name: getattr(cost, name) * items for name in COST_FIELDS} if cost is not None else {}
        return {**own, "agent_runs": own.get("agent_runs", 0) + items}


# -- items ---------------------------------------------------------------------------------------


def find_unbounded_agents(
    vocabulary: Vocabulary, find_agent_cost: FindAgentCost | None
) -> Iterator[tuple[EffectDescriptor, str]]:
    """The effects that run agents without a bound, each with the reason and what to change."""
    for row in vocabulary.declared.values():
        if not is_agent_run(row):
            continue
        if count_most_items(vocabulary, row) is None:
            yield (
                row,
                f"the effect {row.name!r} runs an agent for each item of {row.list_source!r}, and "
                "nothing limits the list: write `at_most`, or `maxItems` in the schema that brings it",
            )
        elif find_agent_cost is not None and find_agent_cost(row) is None:
            yield row, f"the effect {row.name!r} runs an agent whose turns have no bound: check its chart"


def count_most_items(
    vocabulary: Vocabulary, row: EffectDescriptor, followed: frozenset[str] = frozenset()
) -> int | None:
    """The most children of one `run_agent`; None where nothing limits its list.

    Args:
        followed: the effects whose lists depend on this one.
    """
    if not row.list_source:
        return 1
    result, _, path = row.list_source.partition(".")
    followed |= {row.name}
    sizes = [
        _count_most_entries(vocabulary, other, path, followed)
        for other in vocabulary.declared.values()
        if other.result == result
    ] or [None]
    bounds = [] if None in sizes else [max(size for size in sizes if size is not None)]
    if row.parameters.at_most is not None:
        bounds.append(row.parameters.at_most)
    return min(bounds, default=None)


def _count_most_entries(
    vocabulary: Vocabulary, row: EffectDescriptor, path: str, followed: frozenset[str]
) -> int | None:
    """The most entries of a list in the value that an effect brings; None where nothing limits it."""
    if row.reducers and path in row.reducers.append:
        most: int = row.reducers.append[path]
        return most
    if not row.list_source:
        return _find_most_items(get_result_schema(row), path)
    # The value is the list of the answers of children, and the schema is that of one of them.
    if path != "items" or row.name in followed:
        return None
    return count_most_items(vocabulary, row, followed)


def get_result_schema(row: EffectDescriptor) -> Any:
    """The schema of the value that an effect brings; None where it has none."""
    schema = getattr(row.parameters, "schema", None)
    return schema if schema is not None else getattr(row.parameters, "form", None)


def _find_most_items(schema: Any, path: str) -> int | None:
    """The `maxItems` of the list at a path of an object that a schema describes."""
    for part in path.split("."):
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        schema = properties.get(part) if isinstance(properties, Mapping) else None
    if not isinstance(schema, Mapping) or schema.get("type") != "array":
        return None
    size = schema.get("maxItems")
    return size if isinstance(size, int) and not isinstance(size, bool) else None
