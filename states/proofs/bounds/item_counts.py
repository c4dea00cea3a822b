"""How many items of each kind are left to answer: the calls of a reply, and the items of the lists of agents.

Each item is answered once in a turn. So a cycle that goes on with every item ends, and costs no more than
there are items.
"""

from __future__ import annotations

from msgspec.structs import replace

from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.proofs.bounds.costs import count_most_items
from toolchart.states.proofs.call_stages import ITEMS_OF_EVENT
from toolchart.states.proofs.explored_states import ExploredEdge, is_agent_list

_CALLS, _DECISIONS = 0, 1


class ItemCounter:
    """Follows the numbers of items that are left, along the edges of an exploration.

    Args:
        most_items: the most calls of one reply, and items of a list that has no limit of its own.
    """

    def __init__(self, vocabulary: Vocabulary, most_items: int) -> None:
        self._vocabulary = vocabulary
        self._most_calls = most_items
        self._lists = {}
        for row in filter(is_agent_list, vocabulary.declared.values()):
            limit = count_most_items(vocabulary, row)
            self._lists[row.name] = most_items if limit is None else limit

    def list_first_values(self) -> tuple[int, ...]:
        """The numbers where an exploration begins: every item may be open."""
        return (self._most_calls, self._most_calls, *self._lists.values())

    def count_items(self, values: tuple[int, ...], edge: ExploredEdge) -> tuple[int, ...] | None:
        """The numbers after an edge; None where no item is left that it could answer."""
        numbers = list(values)
        answered = self._find_answered_kind(edge)
        if answered is not None:
            numbers[answered] -= 1
            if numbers[answered] < _leaves_items_open(edge):
                return None
        if edge.rules_event == "replied":
            numbers[_CALLS] = numbers[_DECISIONS] = self._most_calls
        elif edge.event == "reviewed":
            numbers[_DECISIONS] = self._most_calls
        asked = {ask.effect for ask in edge.move.asks}
        for index, (name, most) in enumerate(self._lists.items(), start=2):
            if name in asked or edge.starts_turn:
                numbers[index] = most
        return tuple(numbers)

    def _find_answered_kind(self, edge: ExploredEdge) -> int | None:
        """The place of the number that an edge lowers."""
        if edge.event == "tool_finished" and edge.source.call_stage != "none":
            return _CALLS
        if edge.event == "decided" and edge.source.call_stage == "undecided":
            return _DECISIONS
        name = edge.effect.name if edge.effect is not None else ""
        if name in self._lists and edge.effect is not None and edge.effect.stage != "empty":
            return 2 + list(self._lists).index(name)
        return None


def _leaves_items_open(edge: ExploredEdge) -> bool:
    """Whether another item of the same kind is certainly open after an answer."""
    effect = edge.effect
    if effect is None or edge.event in ITEMS_OF_EVENT:
        return dict(edge.guards).get(ITEMS_OF_EVENT.get(edge.event, "")) is True
    return replace(effect, stage="begun") in edge.target.open_effects
