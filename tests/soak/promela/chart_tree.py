"""A chart as a tree of states and rows, read from its document alone: the source of the translation.

Nothing here is shared with the machine, the compiler or `check`. How SCXML leaves and enters states is
written down a second time, so that a mistake there and a mistake here are two mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from toolchart.states.chart.document import Chart
from toolchart.states.errors import SpecError


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One transition."""

    number: int
    """Its index among the rows of the chart."""
    source: str
    events: tuple[str, ...]
    """Descriptors of events; empty for a row without an event."""
    guards: tuple[tuple[str, bool], ...]
    """Guards, each with the truth that it must have."""
    targets: tuple[str, ...]
    is_internal: bool
    before: tuple[Any, ...]
    on: tuple[Any, ...]
    after: tuple[Any, ...]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One state."""

    name: str
    index: int
    """Its place in the order of the document."""
    parent: str | None
    children: tuple[str, ...]
    is_final: bool
    is_parallel: bool
    initial: tuple[str, ...]
    """What a compound state enters where nothing else says what."""
    enter: tuple[Any, ...]
    exit: tuple[Any, ...]
    rows: tuple[Row, ...]

    @property
    def is_compound(self) -> bool:
        """Whether one of its inner states is active at a time."""
        return bool(self.children) and not self.is_parallel


class HistoryNode(msgspec.Struct, frozen=True, kw_only=True):
    """One history state."""

    name: str
    parent: str
    is_deep: bool
    targets: tuple[str, ...]
    """What is entered where there is nothing to remember."""


class ChartTree:
    """The states of a chart in the order of the document, and questions about them.

    Raises:
        SpecError: the chart uses something that the translation does not know.
    """

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.nodes: dict[str, Node] = {}
        self.histories: dict[str, HistoryNode] = {}
        self.rows: list[Row] = []
        states = chart.document["states"]
        self.roots = tuple(states)
        self.initial = _find_initial(states)
        self._add_level(states, None)

    # -- reading ---------------------------------------------------------------------------------

    def _add_level(self, states: Mapping[str, Any], parent: str | None) -> None:
        for name, definition in states.items():
            body = definition or {}
            children = body.get("states") or {}
            rows, initial = self._read_rows(name, body.get("transitions") or ())
            self.nodes[name] = Node(
                name=name,
                index=len(self.nodes),
                parent=parent,
                children=tuple(children),
                is_final=bool(body.get("final")),
                is_parallel=bool(body.get("parallel")),
                initial=initial or (_find_initial(children) if children else ()),
                enter=_list_actions(body.get("enter")),
                exit=_list_actions(body.get("exit")),
                rows=rows,
            )
            for history, history_body in (body.get("history") or {}).items():
                self._add_history(history, history_body or {}, name)
            self._add_level(children, name)

    def _read_rows(
        self, source: str, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[Row, ...], tuple[str, ...]]:
        """The rows of a state, and the targets of its initial transition, if it has one."""
        kept: list[Row] = []
        initial: tuple[str, ...] = ()
        for row in rows:
            targets = tuple(str(row.get("target") or "").split())
            if row.get("initial"):
                self._refuse_actions(row, source)
                initial = targets
                continue
            guards = [(text, True) for text in _list_actions(row.get("cond"))]
            guards += [(text, False) for text in _list_actions(row.get("unless"))]
            self.rows.append(
                Row(
                    number=len(self.rows),
                    source=source,
                    events=tuple(str(row.get("event") or "").split()),
                    guards=tuple(guards),
                    targets=targets,
                    is_internal=bool(row.get("internal")),
                    before=_list_actions(row.get("before")),
                    on=_list_actions(row.get("on")),
                    after=_list_actions(row.get("after")),
                )
            )
            kept.append(self.rows[-1])
        return tuple(kept), initial

    def _add_history(self, name: str, body: Mapping[str, Any], parent: str) -> None:
        (row,) = body["transitions"]
        self._refuse_actions(row, name)
        self.histories[name] = HistoryNode(
            name=name,
            parent=parent,
            is_deep=body.get("type") == "deep",
            targets=tuple(str(row["target"]).split()),
        )

    def _refuse_actions(self, row: Mapping[str, Any], name: str) -> None:
        if any(row.get(slot) for slot in ("before", "on", "after")):
            self.refuse(f"the default transition of {name!r} has actions")

    def refuse(self, message: str) -> NoReturn:
        """Raise the error of something that the translation does not know."""
        raise SpecError(
            f"the chart {self.chart.name!r} cannot be written in Promela: {message}",
            file=self.chart.source,
            hint="`toolchart check` proves the chart in any case",
        )

    # -- questions -------------------------------------------------------------------------------

    def list_ancestors(self, name: str) -> list[str]:
        """The states around a state, from inside to outside."""
        ancestors = []
        parent = self.nodes[name].parent
        while parent is not None:
            ancestors.append(parent)
            parent = self.nodes[parent].parent
        return ancestors

    def is_inside(self, name: str, outer: str) -> bool:
        """Whether a state lies in another one."""
        return outer in self.list_ancestors(name)

    def list_leaves(self) -> list[Node]:
        """The states without inner states."""
        return [node for node in self.nodes.values() if not node.children]

    def list_inner_rows(self, name: str) -> list[Row]:
        """The rows that are tried while a leaf is active: its own first, then those of the states around."""
        return [row for state in (name, *self.list_ancestors(name)) for row in self.nodes[state].rows]

    def list_remembered(self, history: HistoryNode) -> list[str]:
        """The states that a history may remember."""
        if not history.is_deep:
            return list(self.nodes[history.parent].children)
        return [name for name in self.nodes if self.is_inside(name, history.parent)]

    def find_domain(self, row: Row) -> str | None:
        """The state whose inside a row leaves; None for the whole chart."""
        source = self.nodes[row.source]
        choices = [self._list_effective_targets(target) for target in row.targets]
        if row.is_internal:
            targets = [name for names in choices for name in names]
            if source.is_compound and all(self.is_inside(name, row.source) for name in targets):
                return row.source
            if row.targets == (row.source,) and not source.children:
                return row.source
        domains = {self._find_common_compound(row.source, [name]) for names in choices for name in names}
        outermost = [d for d in domains if all(other == d or self._contains(d, other) for other in domains)]
        if len(domains) > 1 and any(target in self.histories for target in row.targets):
            self.refuse(f"what a transition of {row.source!r} leaves depends on what is remembered")
        return outermost[0]

    def _list_effective_targets(self, target: str) -> list[str]:
        if target not in self.histories:
            return [target]
        history = self.histories[target]
        return [*self.list_remembered(history), *history.targets]

    def _contains(self, outer: str | None, inner: str | None) -> bool:
        return outer is None or (inner is not None and self.is_inside(inner, outer))

    def _find_common_compound(self, source: str, targets: Sequence[str]) -> str | None:
        for outer in self.list_ancestors(source):
            if self.nodes[outer].is_compound and all(self.is_inside(target, outer) for target in targets):
                return outer
        return None

    def list_ancestors_below(self, name: str, domain: str | None) -> Iterator[str]:
        """The states around a state, up to the one whose inside is entered."""
        for outer in self.list_ancestors(name):
            if outer == domain:
                return
            yield outer


def _find_initial(states: Mapping[str, Any]) -> tuple[str, ...]:
    marked = [name for name, body in states.items() if (body or {}).get("initial")]
    return (marked[0] if marked else next(iter(states)),)


def _list_actions(value: Any) -> tuple[Any, ...]:
    return () if not value else tuple(value) if isinstance(value, list) else (value,)
