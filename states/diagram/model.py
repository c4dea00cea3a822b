"""The neutral model that every renderer draws: nodes, edges, and the path of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from toolchart.states.chart.document import Chart


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One state."""

    id: str
    initial: bool = False
    final: bool = False
    parallel: bool = False
    history: str | None = None
    """`shallow` or `deep` for a history state."""
    enter: tuple[str, ...] = ()
    exit: tuple[str, ...] = ()
    children: tuple[Node, ...] = ()


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One transition."""

    source: str
    targets: tuple[str, ...]
    """Empty for a transition without a target."""
    event: str | None
    guard: str | None
    effects: tuple[str, ...] = ()
    row: int
    """Index among the transitions of its source."""

    @property
    def label(self) -> str:
        """`event [guard] (stays) / effects`, in one line.

        A transition without a target stays. One with its own state as the target leaves and enters it, so
        that its effects are asked for again; both are drawn from the state to itself.
        """
        stays = "" if self.targets else "(stays)"
        parts = [self.event or "", f"[{self.guard}]" if self.guard else "", stays]
        text = " ".join(part for part in parts if part)
        return f"{text} / {', '.join(self.effects)}" if self.effects else text


class Overlay(msgspec.Struct, frozen=True, kw_only=True):
    """The path of one conversation, or of many, through a chart."""

    states: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Visits per state."""
    edges: Mapping[tuple[str, int], int] = msgspec.field(default_factory=dict)
    """Times that a transition fired, by source and row."""
    seconds: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Seconds spent in each state."""
    current: tuple[str, ...] = ()
    """The active states."""


class Diagram(msgspec.Struct, frozen=True, kw_only=True):
    """A chart as nodes and edges, with an optional overlay: the input of every renderer."""

    chart: Chart
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    overlay: Overlay | None = None

    def format_count(self, edge: Edge) -> str:
        """How often an edge fired, as a suffix of its label; empty for never and without an overlay."""
        count = self.overlay.edges.get((edge.source, edge.row), 0) if self.overlay else 0
        return f" ({count}x)" if count else ""

    def is_visited(self, state: str) -> bool:
        """Whether the conversation entered the state."""
        return self.overlay is not None and self.overlay.states.get(state, 0) > 0


def build_diagram(chart: Chart, overlay: Overlay | None = None) -> Diagram:
    """The model of a chart, with an optional overlay."""
    edges: list[Edge] = []
    nodes = _build_nodes(chart.document["states"], edges)
    return Diagram(chart=chart, nodes=nodes, edges=tuple(edges), overlay=overlay)


def _build_nodes(states: Mapping[str, Any], edges: list[Edge], *, parallel: bool = False) -> tuple[Node, ...]:
    # Without a marked initial state the first one is entered. A parallel state enters all its regions.
    has_initial = parallel or any((body or {}).get("initial") for body in states.values())
    return tuple(
        _build_node(name, body or {}, edges, first=index == 0 and not has_initial)
        for index, (name, body) in enumerate(states.items())
    )


def _build_node(name: str, body: Mapping[str, Any], edges: list[Edge], *, first: bool = False) -> Node:
    edges.extend(_build_edge(name, row, index) for index, row in enumerate(body.get("transitions") or ()))
    history_states = body.get("history") or {}
    for history, history_body in history_states.items():
        rows = (history_body or {}).get("transitions") or ()
        edges.extend(_build_edge(history, row, index) for index, row in enumerate(rows))
    history_nodes = tuple(
        Node(id=history, history=(history_body or {}).get("type", "shallow"))
        for history, history_body in history_states.items()
    )
    return Node(
        id=name,
        initial=bool(body.get("initial")) or first,
        final=bool(body.get("final")),
        parallel=bool(body.get("parallel")),
        enter=_format_actions(body.get("enter")),
        exit=_format_actions(body.get("exit")),
        children=_build_nodes(body.get("states") or {}, edges, parallel=bool(body.get("parallel")))
        + history_nodes,
    )


def _build_edge(source: str, row: Mapping[str, Any], index: int) -> Edge:
    effects = [e for slot in ("before", "on", "after") for e in _format_actions(row.get(slot))]
    return Edge(
        source=source,
        targets=tuple(str(row.get("target") or "").split()),
        event=row.get("event"),
        guard=_read_guard(row),
        effects=tuple(effects),
        row=index,
    )


def _read_guard(row: Mapping[str, Any]) -> str | None:
    """All conditions of a row as one text, with white space collapsed."""
    return format_guard(_to_list(row.get("cond")), _to_list(row.get("unless")))


def format_guard(conditions: Sequence[str], negated_conditions: Sequence[str]) -> str | None:
    """`cond` and `unless` of a row as one expression; None where both are empty."""
    texts = [" ".join(text.split()) for text in conditions]
    if len(texts) + len(negated_conditions) > 1:
        texts = [f"({text})" if " or " in text else text for text in texts]
    texts += [f"not ({' '.join(text.split())})" for text in negated_conditions]
    return " and ".join(texts) or None


def _to_list(value: Any) -> list[str]:
    return [] if not value else [value] if isinstance(value, str) else list(value)


def _format_actions(value: Any) -> tuple[str, ...]:
    """Actions as text: effects by name, `raise` and `if` with their argument."""
    entries = value if isinstance(value, list) else [value] if value else []
    return tuple(entry if isinstance(entry, str) else _format_action(entry) for entry in entries)


def _format_action(action: Mapping[str, Any]) -> str:
    if "raise" in action:
        raised_event = action["raise"]
        return f"raise {raised_event if isinstance(raised_event, str) else raised_event.get('event')}"
    return f"if {action['if'].get('cond')}" if "if" in action else str(next(iter(action)))


def render_yaml(diagram: Diagram) -> str:
    """The chart itself as YAML, after `extends` was resolved."""
    return diagram.chart.to_yaml()
