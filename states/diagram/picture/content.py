"""What stands in a picture: the lines of each state and of each transition, and how much space they take.

Widths are known without a font: 0.61 em per column covers the usual monospaced fonts, and names get what the
widest of the usual fonts needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from toolchart.states.diagram.effect_kinds import EffectKind
from toolchart.states.diagram.labels import measure_width, shorten_text, wrap_text
from toolchart.states.diagram.model import Diagram, Edge, Node
from toolchart.states.diagram.picture.style import MARK_SIZE
from toolchart.states.visible_text import make_visible_line

TITLE_SIZE, TEXT_SIZE = 13.0, 11.0
"""Heights of fonts in pixels: names, which are not monospaced, and everything else."""
LINE_HEIGHT = 15.0
TITLE_HEIGHT = 20.0
PADDING = 10.0
HISTORY_SIZE = 24.0
_EM = 0.61
_NARROW, _WIDE = frozenset("fijlrt1I_-.,:;'|!()[] "), frozenset("mwMW@%")
_STATE_COLUMNS = 34
_ROW_COLUMNS = 26
_MAX_LINES = 12
"""A longer text is shortened, and its whole is the title of the label."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of text."""

    text: str
    role: str
    """`effect`, `exit`, `visits`, `stay`, `event`, `guard`; part of its CSS class."""
    badge: EffectKind | None = None
    """The kind of an effect; drawn before its name."""
    edge: int | None = None
    """The transition that it belongs to."""
    is_cut: bool = False
    """Whether the text goes on after it."""

    @property
    def width(self) -> float:
        """Pixels, badge included."""
        return measure_text(self.text) + measure_badge(self.badge)


def measure_text(text: str) -> float:
    """Width of a monospaced text."""
    return measure_width(text) * TEXT_SIZE * _EM


def measure_name(name: str) -> float:
    """Width of the name of a state, which is bold and not monospaced."""
    ems = (
        0.5 if c in _NARROW else 1.1 if c in _WIDE else 0.84 if c.isupper() else 0.72 * measure_width(c)
        for c in name
    )
    return sum(ems) * TITLE_SIZE


def measure_badge(badge: str | None) -> float:
    """Width of a badge with the space behind it."""
    return MARK_SIZE + 6 if badge else 0.0


def shorten_name(name: str) -> str:
    """A name as it is shown."""
    return shorten_text(make_visible_line(name), 60)


def list_state_lines(diagram: Diagram, node: Node, staying_edges: Sequence[int]) -> tuple[Line, ...]:
    """The lines under the name of a state: effects, time, and the rows that stay."""
    kinds: dict[str, EffectKind] = {badge.label: badge.kind for badge in node.badges}
    lines: list[Line] = []
    for name in node.enter:
        kind = kinds.get(name)
        lines += _wrap(name, "effect", _STATE_COLUMNS, badge=None if kind in ("answer", "other") else kind)
    for name in node.exit:
        lines += _wrap(f"exit {name}", "exit", _STATE_COLUMNS)
    lines += _wrap_visits(diagram, node)
    for index in staying_edges:
        edge = diagram.edges[index]
        lines += _wrap(edge.label + _format_count(diagram, edge), "stay", _STATE_COLUMNS, edge=index)
    return tuple(lines)


def _wrap_visits(diagram: Diagram, node: Node) -> Iterator[Line]:
    overlay = diagram.overlay
    if overlay is not None and overlay.states.get(node.id):
        text = f"{overlay.states[node.id]}×"
        if node.id in overlay.seconds:
            text += f" · {overlay.seconds[node.id]:.3g} s"
        yield Line(text=text, role="visits")


def list_row_lines(diagram: Diagram, index: int) -> tuple[Line, ...]:
    """The lines of a transition's label: order and event, guard, effects."""
    edge = diagram.edges[index]
    order = f"({edge.order}) " if edge.order else ""
    event = _describe_event(edge) + _format_count(diagram, edge)
    lines = [*_wrap(f"{edge.mark}{order}{event}", "event", _ROW_COLUMNS, edge=index)]
    if edge.guard:
        lines += _wrap(f"[{edge.guard}]", "guard", _ROW_COLUMNS, edge=index)
    if edge.effects:
        lines += _wrap(f"/ {', '.join(edge.effects)}", "guard", _ROW_COLUMNS, edge=index)
    return tuple(lines)


def _format_count(diagram: Diagram, edge: Edge) -> str:
    count = diagram.count_taken(edge)
    return f" · {count}×" if count else ""


def _describe_event(edge: Edge) -> str:
    event = edge.event_text or ("(at once)" if edge.guard or edge.order else "")
    return f"{event} (re-enters)" if edge.reenters else event


def _wrap(
    text: str, role: str, columns: int, badge: EffectKind | None = None, edge: int | None = None
) -> Iterator[Line]:
    parts = wrap_text(make_visible_line(text[: columns * (_MAX_LINES + 1)]), columns)
    is_cut = len(parts) > _MAX_LINES
    if is_cut:
        last = parts[_MAX_LINES - 1]
        parts = [*parts[: _MAX_LINES - 1], f"{last[: columns - 3]}..."]
    for number, part in enumerate(parts):
        yield Line(text=part, role=role, badge=None if number else badge, edge=edge, is_cut=is_cut)


def measure_lines(lines: Iterable[Line]) -> tuple[float, float]:
    """Width and height of lines under each other."""
    sizes = [line.width for line in lines]
    return max(sizes, default=0.0), len(sizes) * LINE_HEIGHT


def measure_head(node: Node, lines: Sequence[Line]) -> tuple[float, float]:
    """Width and height of a state's name and lines, padding included."""
    if node.history:
        return HISTORY_SIZE, HISTORY_SIZE
    width, height = measure_lines(lines)
    width = max(width, measure_name(shorten_name(node.title)))
    return width + 2 * PADDING, height + TITLE_HEIGHT + 2 * PADDING - 4
