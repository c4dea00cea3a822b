"""What stands in a picture: the lines of each state and of each transition, and how much space they take.

All text is monospaced, so its width is known without a font: 0.61 em per column covers the usual fonts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from toolchart.states.diagram.effect_kinds import EffectKind
from toolchart.states.diagram.labels import make_visible, measure_width, shorten_text, wrap_text
from toolchart.states.diagram.model import Diagram, Edge, Node

TITLE_SIZE, TEXT_SIZE, BADGE_SIZE = 13.0, 11.0, 9.0
"""Heights of fonts in pixels."""
LINE_HEIGHT = 15.0
TITLE_HEIGHT = 20.0
PADDING = 10.0
HISTORY_SIZE = 24.0
_EM = 0.61
_STATE_COLUMNS = 44
_ROW_COLUMNS = 30
_MAX_CHARACTERS = 400
"""A longer text is shortened: a picture is no place to read it."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of text."""

    text: str
    role: str
    """`effect`, `exit`, `visits`, `stay`, `event`, `guard`; part of its CSS class."""
    badge: EffectKind | None = None
    """The kind of an effect; drawn before its name."""
    edge: int | None = None
    """The transition that it belongs to."""

    @property
    def width(self) -> float:
        """Pixels, badge included."""
        return measure_pixels(self.text, TEXT_SIZE) + measure_badge(self.badge)


def measure_pixels(text: str, size: float) -> float:
    """Width of a text."""
    return measure_width(text) * size * _EM


def measure_badge(badge: str | None) -> float:
    """Width of a badge with the space behind it."""
    return measure_pixels(badge, BADGE_SIZE) + 14 if badge else 0.0


def shorten_name(name: str) -> str:
    """A name as it is shown."""
    return shorten_text(make_visible(name), 60)


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
        lines += _wrap(edge.label + diagram.format_count(edge), "stay", _STATE_COLUMNS, edge=index)
    return tuple(lines)


def _wrap_visits(diagram: Diagram, node: Node) -> Iterator[Line]:
    overlay = diagram.overlay
    if overlay is not None and overlay.states.get(node.id):
        text = f"{overlay.states[node.id]}x"
        if node.id in overlay.seconds:
            text += f" {overlay.seconds[node.id]:.3g} s"
        yield Line(text=text, role="visits")


def list_row_lines(diagram: Diagram, index: int) -> tuple[Line, ...]:
    """The lines of a transition's label: order and event, guard, effects."""
    edge = diagram.edges[index]
    order = f"({edge.order}) " if edge.order else ""
    event = _describe_event(edge) + diagram.format_count(edge)
    lines = [*_wrap(f"{order}{event}", "event", _ROW_COLUMNS, edge=index)]
    if edge.guard:
        lines += _wrap(f"[{edge.guard}]", "guard", _ROW_COLUMNS, edge=index)
    if edge.effects:
        lines += _wrap(f"/ {', '.join(edge.effects)}", "guard", _ROW_COLUMNS, edge=index)
    return tuple(lines)


def _describe_event(edge: Edge) -> str:
    event = edge.event or ("(at once)" if edge.guard or edge.order else "")
    return f"{event} (re-enters)" if edge.reenters else event


def _wrap(
    text: str, role: str, columns: int, badge: EffectKind | None = None, edge: int | None = None
) -> Iterator[Line]:
    visible_text = shorten_text(make_visible(text), _MAX_CHARACTERS)
    for number, part in enumerate(wrap_text(visible_text, columns)):
        yield Line(text=part, role=role, badge=None if number else badge, edge=edge)


def measure_lines(lines: Iterable[Line]) -> tuple[float, float]:
    """Width and height of lines under each other."""
    sizes = [line.width for line in lines]
    return max(sizes, default=0.0), len(sizes) * LINE_HEIGHT


def measure_head(node: Node, lines: Sequence[Line]) -> tuple[float, float]:
    """Width and height of a state's name and lines, padding included."""
    if node.history:
        return HISTORY_SIZE, HISTORY_SIZE
    width, height = measure_lines(lines)
    width = max(width, measure_pixels(shorten_name(node.title), TITLE_SIZE))
    return width + 2 * PADDING, height + TITLE_HEIGHT + 2 * PADDING - 4
