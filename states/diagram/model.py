"""The neutral model that every renderer draws: nodes, edges, and the path of a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from toolchart.states.chart.document import Chart
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.diagram.effect_kinds import EffectBadge, list_badges
from toolchart.states.diagram.row_order import GuardedRow, number_rows


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
    badges: tuple[EffectBadge, ...] = ()
    """The effects that it asks for when it is entered, each with its kind."""
    children: tuple[Node, ...] = ()
    name: str = ""
    """The name to show, where it is not the id."""
    sub_agent: str | None = None
    """The effect that runs an agent whose chart the children are; None for any other state."""

    @property
    def title(self) -> str:
        """The name to show."""
        return self.name or self.id

    def describe_entry(self) -> tuple[str, ...]:
        """What entering and leaving the state does, one text each: `call_model (model)`, `exit NAME`."""
        kinds = {badge.label: badge.kind for badge in self.badges if badge.kind not in ("answer", "other")}
        texts = [f"{name} ({kinds[name]})" if name in kinds else name for name in self.enter]
        return (*texts, *(f"exit {name}" for name in self.exit))


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
    order: int = 0
    """Which row of its state is tried first, second, ... for its event; 0 where order does not decide."""
    internal: bool = False

    @property
    def stays(self) -> bool:
        """Whether it leaves no state: it has no target, or is internal with its own state as the target."""
        return not self.targets or (self.internal and self.targets == (self.source,))

    @property
    def reenters(self) -> bool:
        """Whether it leaves its state and enters it again, so that its effects are asked for again."""
        return self.source in self.targets and not self.stays

    @property
    def label(self) -> str:
        """`(order) event [guard] (stays) / effects`, in one line; `(re-enters)` in place of `(stays)`."""
        parts = [
            f"({self.order})" if self.order else "",
            self.event or "",
            f"[{self.guard}]" if self.guard else "",
            "(stays)" if self.stays else "(re-enters)" if self.reenters else "",
        ]
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
    nodes = _build_nodes(chart.document["states"], edges, chart.vocabulary)
    return Diagram(chart=chart, nodes=nodes, edges=tuple(edges), overlay=overlay)


def _build_nodes(
    states: Mapping[str, Any], edges: list[Edge], vocabulary: Vocabulary, *, parallel: bool = False
) -> tuple[Node, ...]:
    # Without a marked initial state the first one is entered. A parallel state enters all its regions.
    has_initial = parallel or any((body or {}).get("initial") for body in states.values())
    return tuple(
        _build_node(name, body or {}, edges, vocabulary, first=index == 0 and not has_initial)
        for index, (name, body) in enumerate(states.items())
    )


def _build_node(
    name: str, body: Mapping[str, Any], edges: list[Edge], vocabulary: Vocabulary, *, first: bool = False
) -> Node:
    edges.extend(_build_edges(name, body.get("transitions") or ()))
    history_states = body.get("history") or {}
    for history, history_body in history_states.items():
        edges.extend(_build_edges(history, (history_body or {}).get("transitions") or ()))
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
        badges=list_badges(body.get("enter"), vocabulary),
        children=_build_nodes(
            body.get("states") or {}, edges, vocabulary, parallel=bool(body.get("parallel"))
        )
        + history_nodes,
    )


def _build_edges(source: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Edge]:
    """The edges of one state, with their order."""
    guarded_rows = [
        GuardedRow(events=tuple(str(row.get("event") or "").split()), guard=_read_guard(row)) for row in rows
    ]
    numbers = number_rows(guarded_rows)
    for index, (row, guarded_row, number) in enumerate(zip(rows, guarded_rows, numbers, strict=True)):
        actions = [row.get(slot) for slot in ("before", "on", "after")]
        yield Edge(
            source=source,
            targets=tuple(str(row.get("target") or "").split()),
            event=row.get("event"),
            guard=guarded_row.guard,
            effects=tuple(text for action in actions for text in _format_actions(action)),
            row=index,
            order=number,
            internal=bool(row.get("internal")),
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
