"""What a turn has cost so far, as counters of a model: one for each number of the worst case."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolchart.states.effects import EffectDescriptor
from toolchart.states.proofs.promela.text import Lines

_COSTS: dict[str, Callable[[EffectDescriptor], bool]] = {
    "model_calls": lambda row: row.calls_model,
    "tool_rounds": lambda row: "tool_finished" in row.closing,
    "waits": lambda row: row.is_timer,
    "agent_runs": lambda row: (row.kind or row.name) == "run_agent",
    "function_calls": lambda row: row.kind == "call_function",
    "questions": lambda row: row.kind == "ask_person",
}
"""By number of the worst case: whether an effect adds to it."""


class CostCounters:
    """The counters of one model.

    Args:
        bounds: the numbers that are claimed; without them nothing is counted.
        rows: the effects of the chart.
    """

    def __init__(self, bounds: Mapping[str, int], rows: list[EffectDescriptor]) -> None:
        self.bounds = {
            name: bounds[name] for name, counts in _COSTS.items() if name in bounds and any(map(counts, rows))
        }

    def add(self, row: EffectDescriptor, amount: str = "1") -> Lines:
        """What asking for an effect adds."""
        return [
            f"{name} = ({name} + {amount} <= {bound} -> {name} + {amount} : {bound + 1});"
            for name, bound in self.bounds.items()
            if _COSTS[name](row)
        ]

    def reset(self) -> Lines:
        """A message of the user begins a new count."""
        return [f"{name} = 0;" for name in self.bounds]

    def declare(self) -> Lines:
        """The declarations."""
        return [f"short {name};" for name in self.bounds]
