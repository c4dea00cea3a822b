"""What a turn has cost so far, as counters of a model: one for each number of the worst case."""

from __future__ import annotations

from collections.abc import Mapping

from promela.text import Lines
from toolchart.states.effects import EffectDescriptor
from toolchart.states.proofs.bounds.costs import COST_FIELDS


class CostCounters:
    """The counters of one model.

    Args:
        bounds: the numbers that are claimed; without them nothing is counted.
        rows: the effects of the chart.
    """

    def __init__(self, bounds: Mapping[str, int], rows: list[EffectDescriptor]) -> None:
        costs = {row.cost for row in rows}
        self.bounds = {name: bounds[name] for name in COST_FIELDS if name in bounds and name in costs}

    def add(self, row: EffectDescriptor, amount: str = "1") -> Lines:
        """What asking for an effect adds."""
        return [
            f"{name} = ({name} + {amount} <= {bound} -> {name} + {amount} : {bound + 1});"
            for name, bound in self.bounds.items()
            if name == row.cost
        ]

    def reset(self) -> Lines:
        """A message of the user begins a new count."""
        return [f"{name} = 0;" for name in self.bounds]

    def declare(self) -> Lines:
        """The declarations."""
        return [f"short {name};" for name in self.bounds]
