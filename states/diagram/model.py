"""The neutral model that every renderer draws: nodes, edges, and the path of a conversation."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from toolchart.states.chart.document import Chart, list_state_timers
from toolchart.states.chart.guards import collapse_spaces
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.diagram.effect_kinds import EffectBadge, list_badges
from toolchart.states.flows.parameters import WaitParameters
from toolchart.states.flows.times import describe_time

Change = Literal["", "added", "removed", "changed"]
"""How a part of a chart differs from that of another chart; empty where it does not."""

_MARKS: dict[Change, str] = {"": "", "added": "+ ", "removed": "- ", "changed": "~ "}
"""What stands before the text of a part that differs: colours alone would not tell everybody."""


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
    change: Change = ""

    @property
    def title(self) -> str:
        """The name to show."""
        return _MARKS[self.change] + (self.name or self.id)

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
    change: Change = ""
    timer: str = ""
    """What is shown in place of the event that a timer brings: `after 30 d`."""

    @property
    def event_text(self) -> str | None:
        """What is shown for the event."""
        return self.timer or self.event

    @property
    def mark(self) -> str:
        """What stands before its texts where it differs from another chart: `+ `, `- `, `~ `."""
        return _MARKS[self.change]

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
            self.event_text or "",
            f"[{self.guard}]" if self.guard else "",
            "(stays)" if self.stays else "(re-enters)" if self.reenters else "",
        ]
        text = self.mark + " ".join(part for part in parts if part)
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

    @property
    def has_changes(self) -> bool:
        """Whether it shows how a chart differs from another one."""
        parts = (*self.edges, *iterate_nodes(self.nodes))
        return any(part.change for part in parts)

    def format_count(self, edge: Edge) -> str:
        """How often an edge fired, as a suffix of its label; empty for never and without an overlay."""
        count = self.count_taken(edge)
        return f" ({count}x)" if count else ""

    def count_taken(self, edge: Edge) -> int:
        """How often an edge fired; 0 without an overlay."""
        return self.overlay.edges.get((edge.source, edge.row), 0) if self.overlay else 0

    def is_visited(self, state: str) -> bool:
        """Whether the conversation entered the state."""
        return self.overlay is not None and self.overlay.states.get(state, 0) > 0


def build_diagram(chart: Chart, overlay: Overlay | None = None) -> Diagram:
    """The model of a chart, with an optional overlay."""
    edges: list[Edge] = []
    nodes = _build_nodes(chart.document["states"], edges, chart.vocabulary, _list_timers(chart))
    return Diagram(chart=chart, nodes=nodes, edges=tuple(edges), overlay=overlay)


def iterate_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """Every node, each before those inside it."""
    for node in nodes:
        yield node
        yield from iterate_nodes(node.children)


def _build_nodes(
    states: Mapping[str, Any],
    edges: list[Edge],
    vocabulary: Vocabulary,
    timers: Mapping[str, TimerText],
    *,
    parallel: bool = False,
) -> tuple[Node, ...]:
    # Without a marked initial state the first one is entered. A parallel state enters all its regions.
    has_initial = parallel or any((body or {}).get("initial") for body in states.values())
    return tuple(
        _build_node(name, body or {}, edges, vocabulary, timers, first=index == 0 and not has_initial)
        for index, (name, body) in enumerate(states.items())
    )


def _build_node(
    name: str,
    body: Mapping[str, Any],
    edges: list[Edge],
    vocabulary: Vocabulary,
    timers: Mapping[str, TimerText],
    *,
    first: bool = False,
) -> Node:
    edges.extend(_build_edges(name, body.get("transitions") or (), timers))
    history_states = body.get("history") or {}
    for history, history_body in history_states.items():
        edges.extend(_build_edges(history, (history_body or {}).get("transitions") or (), timers))
    history_nodes = tuple(
        Node(id=history, history=(history_body or {}).get("type", "shallow"))
        for history, history_body in history_states.items()
    )
    return Node(
        id=name,
        initial=bool(body.get("initial")) or first,
        final=bool(body.get("final")),
        parallel=bool(body.get("parallel")),
        enter=_format_actions(body.get("enter"), timers),
        exit=_format_actions(body.get("exit"), timers),
        badges=tuple(
            replace(badge, label=timers[badge.label].name if badge.label in timers else badge.label)
            for badge in list_badges(body.get("enter"), vocabulary)
        ),
        children=_build_nodes(
            body.get("states") or {}, edges, vocabulary, timers, parallel=bool(body.get("parallel"))
        )
        + history_nodes,
    )


class TimerText(msgspec.Struct, frozen=True, kw_only=True):
    """How a declared `wait` is shown."""

    name: str
    """Where it is asked for: `30 d`, or `pause 30 d`."""
    event: str
    """When it is over: `after 30 d`, or `after 30 d (pause)`."""


def _list_timers(chart: Chart) -> dict[str, TimerText]:
    """The declared timers of a chart. One that stands for `after` of a state has no name of its own."""
    own = {timer for timers in list_state_timers(chart).values() for timer in timers}
    texts: dict[str, TimerText] = {}
    for row in chart.vocabulary.declared.values():
        if isinstance(row.parameters, WaitParameters):
            text = describe_time(row.parameters.time)
            time = text.removeprefix("after ")
            texts[row.name] = (
                TimerText(name=time, event=text)
                if row.name in own
                else TimerText(name=f"{row.name} {time}", event=f"{text} ({row.name})")
            )
    return texts


def _describe_timer(event: str | None, timers: Mapping[str, TimerText]) -> str:
    """What to show for the events of a row, where a declared timer brings one; else empty."""
    if event is None or "elapsed." not in event:
        return ""
    words = [(word, *word.partition(".")) for word in event.split()]
    return " ".join(
        timers[effect].event if name == "elapsed" and effect in timers else word
        for word, name, _, effect in words
    )


def _build_edges(
    source: str, rows: Sequence[Mapping[str, Any]], timers: Mapping[str, TimerText]
) -> Iterator[Edge]:
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
            timer=_describe_timer(row.get("event"), timers),
            guard=guarded_row.guard,
            effects=tuple(text for action in actions for text in _format_actions(action, timers)),
            row=index,
            order=number,
            internal=bool(row.get("internal")),
        )


def _read_guard(row: Mapping[str, Any]) -> str | None:
    """All conditions of a row as one text, with white space collapsed."""
    return format_guard(_to_list(row.get("cond")), _to_list(row.get("unless")))


def format_guard(conditions: Sequence[str], negated_conditions: Sequence[str]) -> str | None:
    """`cond` and `unless` of a row as one expression; None where both are empty."""
    texts = [collapse_spaces(text) for text in conditions]
    if len(texts) + len(negated_conditions) > 1:
        texts = [f"({text})" if " or " in text else text for text in texts]
    texts += [f"not ({collapse_spaces(text)})" for text in negated_conditions]
    return " and ".join(texts) or None


def _to_list(value: Any) -> list[str]:
    return [] if not value else [value] if isinstance(value, str) else list(value)


def _format_actions(value: Any, timers: Mapping[str, TimerText]) -> tuple[str, ...]:
    """Actions as text: effects by name, timers by their time, `raise` and `if` with their argument."""
    entries = value if isinstance(value, list) else [value] if value else []
    return tuple(
        _format_action(entry)
        if not isinstance(entry, str)
        else timers[entry].name
        if entry in timers
        else entry
        for entry in entries
    )


def _format_action(action: Mapping[str, Any]) -> str:
    if "raise" in action:
        raised_event = action["raise"]
        return f"raise {raised_event if isinstance(raised_event, str) else raised_event.get('event')}"
    return f"if {action['if'].get('cond')}" if "if" in action else str(next(iter(action)))


def render_yaml(diagram: Diagram) -> str:
    """The chart itself as YAML, after `extends` was resolved."""
    return diagram.chart.to_yaml()


# -- the order of rows ---------------------------------------------------------------------------
# Order numbers of rows: shown where the order in the chart decides which row is taken.
#
# A state tries its rows for an event in document order, and the first whose guard is true is taken. The order
# matters only where two guards can be true at once. It is enough to recognise plain contradictions, such as
# two words of one fact: a number too many explains itself, a missing one misleads.


_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.LtE: ast.Gt}

_Literal = tuple[str, str | None, bool]
"""A comparison as text, the constant it compares with if it is `==`, and the truth that is required."""


class GuardedRow(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a row is taken."""

    events: tuple[str, ...]
    """The events that it takes; empty for an eventless row."""
    guard: str | None


def number_rows(rows: Sequence[GuardedRow]) -> list[int]:
    """The number of each row of one state, from 1; 0 where order does not decide."""
    numbers = [0] * len(rows)
    for group in _group_by_events(rows):
        if _has_overlap([rows[index] for index in group]):
            for number, index in enumerate(group, 1):
                numbers[index] = number
    return numbers


def _group_by_events(rows: Sequence[GuardedRow]) -> list[list[int]]:
    """The indexes of rows that take common events, directly or through a third row."""
    groups: list[list[int]] = []
    for index, row in enumerate(rows):
        related = [group for group in groups if any(_share_event(rows[other], row) for other in group)]
        groups = [group for group in groups if group not in related]
        groups.append(sorted([index, *(other for group in related for other in group)]))
    return groups


def _share_event(a: GuardedRow, b: GuardedRow) -> bool:
    """Whether one event can be taken by both rows: `replied` takes `replied.call_model` too."""
    if not a.events or not b.events:
        return not a.events and not b.events
    return any(_covers(x, y) or _covers(y, x) for x in a.events for y in b.events)


def _covers(general: str, special: str) -> bool:
    general = general.removesuffix(".*")
    return general in ("*", special) or special.startswith(f"{general}.")


def _has_overlap(rows: Sequence[GuardedRow]) -> bool:
    return any(
        _share_event(a, b) and can_overlap(a.guard, b.guard)
        for index, a in enumerate(rows)
        for b in rows[index + 1 :]
    )


def can_overlap(a: str | None, b: str | None) -> bool:
    """Whether two guards can be true together; false only where they contradict each other plainly."""
    if a is None or b is None:
        return True
    return not any(_contradict(x, y) for x in _list_literals(a) for y in _list_literals(b))


def _contradict(a: _Literal, b: _Literal) -> bool:
    if a[0] != b[0]:
        return False
    if a[1] == b[1]:
        return a[2] is not b[2]
    return a[2] and b[2]  # one fact cannot equal two constants


@cache
def _list_literals(guard: str) -> tuple[_Literal, ...]:
    """What must hold for a guard to be true; nothing where it cannot be read."""
    try:
        return _split(ast.parse(guard, mode="eval").body, True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _split(node: ast.expr, truth: bool) -> tuple[_Literal, ...]:
    match node:
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And if truth else ast.Or):
            return tuple(literal for value in values for literal in _split(value, truth))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _split(operand, not truth)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return (_make_comparison(left, op, right, truth),)
    return ((ast.unparse(node), None, truth),)


def _make_comparison(left: ast.expr, op: ast.cmpop, right: ast.expr, truth: bool) -> _Literal:
    kind = _OPPOSITES.get(type(op))
    if kind is not None:
        truth = not truth
    kind = kind or type(op)
    if kind is ast.Eq and isinstance(right, ast.Constant):
        return f"{ast.unparse(left)} ==", repr(right.value), truth
    return f"{ast.unparse(left)} {kind.__name__} {ast.unparse(right)}", None, truth
