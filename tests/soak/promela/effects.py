"""The effects of a model: where each may be open, and what asking for it, answering it and leaving it do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from promela.chart_tree import ChartTree
from promela.text import name_variable
from toolchart.states.effects import EffectDescriptor

_MANY_ITEMS = 3
"""Children of a list that nothing limits."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """An effect that a state asks for and an event answers."""

    state: str
    row: EffectDescriptor

    @property
    def open(self) -> str:
        """The variable that says how far it is: 0 not open, 1 asked for, 2 answered in part."""
        return name_variable("open", self.state, self.row.name)

    @property
    def ask(self) -> str:
        """The variable that is 1 while a step asks for it."""
        return name_variable("ask", self.state, self.row.name)

    @property
    def active(self) -> str:
        """The number of children that are not done."""
        return name_variable("active", self.state, self.row.name)

    @property
    def resting(self) -> str:
        """The number of children that wait for the user."""
        return name_variable("resting", self.state, self.row.name)

    @property
    def runs_agents(self) -> bool:
        """Whether child conversations answer it."""
        return self.row.cost == "agent_runs"

    @property
    def is_list(self) -> bool:
        """Whether it runs one child for each item of a list."""
        return bool(self.row.list_source)

    @property
    def calls_main_model(self) -> bool:
        """Whether the reply belongs to the conversation."""
        return "replied" in self.row.closing and not self.row.result

    @property
    def runs_tools(self) -> bool:
        """Whether the calls of a reply begin with it."""
        return "tool_finished" in self.row.closing

    @property
    def waiting(self) -> str:
        """The condition under which only the user, or time, continues it."""
        if self.row.is_timer or self.row.waits_for_user:
            return "1"
        if self.runs_agents:
            return f"({self.resting} > 0 && {self.resting} == {self.active})"
        return "0"


def list_slots(tree: ChartTree) -> list[Slot]:
    """Every effect that an event answers, with the state that asks for it."""
    return [
        Slot(state=node.name, row=row)
        for node in tree.nodes.values()
        for row in _list_rows(tree, node.enter)
        if row.closing
    ]


def list_quiet_effects(tree: ChartTree) -> list[EffectDescriptor]:
    """Every effect that nothing answers and the chart asks for somewhere."""
    actions = [action for node in tree.nodes.values() for action in (*node.enter, *node.exit)]
    actions += [action for row in tree.rows for action in (*row.before, *row.on, *row.after)]
    rows = {row.name: row for row in _list_rows(tree, actions) if not row.closing}
    return list(rows.values())


def _list_rows(tree: ChartTree, actions: Any) -> Iterator[EffectDescriptor]:
    for action in actions:
        if isinstance(action, str):
            yield tree.chart.vocabulary.find_effect(action)


def list_items(tree: ChartTree, slot: Slot) -> list[int]:
    """The numbers of children that an effect may ask for: none, one and the most."""
    if not slot.is_list:
        return [1]
    parameters = slot.row.parameters
    result, _, path = parameters.for_each.partition(".")
    sizes = [
        _find_most_items(getattr(row.parameters, "schema", None), path.split("."))
        for row in tree.chart.vocabulary.declared.values()
        if row.result == result
    ]
    bounds: list[int] = [parameters.at_most] if parameters.at_most else []
    if None not in sizes:
        bounds += [max([size for size in sizes if size is not None], default=_MANY_ITEMS)]
    return sorted({0, 1, min(bounds, default=_MANY_ITEMS)})


def _find_most_items(schema: Any, path: list[str]) -> int | None:
    for part in path:
        schema = (schema.get("properties") or {}).get(part) if isinstance(schema, Mapping) else None
    size = schema.get("maxItems") if isinstance(schema, Mapping) else None
    return size if isinstance(size, int) and schema.get("type") == "array" else None
