"""The neutral model that every renderer draws from: nodes, edges, and what a conversation visited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolchart.states.chart.document import Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One transition."""

    source: str
    targets: tuple[str, ...]
    """Empty for a transition that stays."""
    event: str | None
    guard: str | None
    effects: tuple[str, ...] = ()
    row: int
    """Its place among the transitions of its source."""

    @property
    def label(self) -> str:
        """`event [guard] / effects`, in one line."""
        parts = [self.event or "", f"[{self.guard}]" if self.guard else ""]
        text = " ".join(part for part in parts if part)
        return f"{text} / {', '.join(self.effects)}" if self.effects else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What a conversation, or many, made of a chart."""

    states: Mapping[str, int] = field(default_factory=dict)
    """Visits per state."""
    edges: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Times that a transition was taken, by source and row."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Time spent per state."""
    current: tuple[str, ...] = ()
    """Where it stands now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """What renderers draw."""

    chart: Chart
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    overlay: Overlay | None = None

    def count(self, edge: Edge) -> str:
        """How often an edge was taken, for a label; empty without an overlay."""
        taken = self.overlay.edges.get((edge.source, edge.row), 0) if self.overlay else 0
        return f" ({taken}x)" if taken else ""

    def visited(self, state: str) -> bool:
        """Whether the conversation was there."""
        return self.overlay is not None and self.overlay.states.get(state, 0) > 0


def diagram_of(chart: Chart, overlay: Overlay | None = None) -> Diagram:
    """The model of a chart."""
    edges: list[Edge] = []
    nodes = _nodes(chart.document["states"], edges)
    return Diagram(chart=chart, nodes=nodes, edges=tuple(edges), overlay=overlay)


def _nodes(
    states: Mapping[str, Any], edges: list[Edge], *, parallel: bool = False
) -> tuple[Node, ...]:
    # Where none is marked the first is entered; the regions of a parallel state are all entered.
    marked = parallel or any((body or {}).get("initial") for body in states.values())
    return tuple(
        _node(name, body or {}, edges, first=place == 0 and not marked)
        for place, (name, body) in enumerate(states.items())
    )


def _node(name: str, body: Mapping[str, Any], edges: list[Edge], *, first: bool = False) -> Node:
    edges.extend(_edge(name, row, place) for place, row in enumerate(body.get("transitions") or ()))
    histories = body.get("history") or {}
    for history, inside in histories.items():
        rows = (inside or {}).get("transitions") or ()
        edges.extend(_edge(history, row, place) for place, row in enumerate(rows))
    remembered = tuple(
        Node(id=history, history=(inside or {}).get("type", "shallow"))
        for history, inside in histories.items()
    )
    return Node(
        id=name,
        initial=bool(body.get("initial")) or first,
        final=bool(body.get("final")),
        parallel=bool(body.get("parallel")),
        enter=_effects(body.get("enter")),
        exit=_effects(body.get("exit")),
        children=_nodes(body.get("states") or {}, edges, parallel=bool(body.get("parallel")))
        + remembered,
    )


def _edge(source: str, row: Mapping[str, Any], place: int) -> Edge:
    effects = [e for slot in ("before", "on", "after") for e in _effects(row.get(slot))]
    return Edge(
        source=source,
        targets=tuple(str(row.get("target") or "").split()),
        event=row.get("event"),
        guard=_guard(row),
        effects=tuple(effects),
        row=place,
    )


def _guard(row: Mapping[str, Any]) -> str | None:
    """All conditions of a row as one text, white space collapsed."""
    return guard_text(_listed(row.get("cond")), _listed(row.get("unless")))


def guard_text(wanted: Sequence[str], unwanted: Sequence[str]) -> str | None:
    """Conditions that all hold and conditions of which none does, as one; None where there is none."""
    texts = [" ".join(text.split()) for text in wanted]
    if len(texts) + len(unwanted) > 1:
        texts = [f"({text})" if " or " in text else text for text in texts]
    texts += [f"not ({' '.join(text.split())})" for text in unwanted]
    return " and ".join(texts) or None


def _listed(value: Any) -> list[str]:
    return [] if not value else [value] if isinstance(value, str) else list(value)


def _effects(value: Any) -> tuple[str, ...]:
    """Effects by name; structured actions (`raise`, `if`) as what they are."""
    entries = value if isinstance(value, list) else [value] if value else []
    return tuple(entry if isinstance(entry, str) else _action(entry) for entry in entries)


def _action(action: Mapping[str, Any]) -> str:
    if "raise" in action:
        raised = action["raise"]
        return f"raise {raised if isinstance(raised, str) else raised.get('event')}"
    return f"if {action['if'].get('cond')}" if "if" in action else str(next(iter(action)))
