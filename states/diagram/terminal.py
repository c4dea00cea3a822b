"""Terminal renderer: each state in a box, with its transitions in document order."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from toolchart.states.diagram.labels import measure_width
from toolchart.states.diagram.model import Diagram, Edge, Node
from toolchart.states.visible_text import make_visible_line


class BoxCharacters(msgspec.Struct, frozen=True, kw_only=True):
    """The characters of a drawing."""

    state_frame: str
    """Frame of a state: top left, top right, bottom left, bottom right, horizontal and vertical line."""
    final_frame: str
    """Frame of a final state."""
    arrow: str
    current_mark: str
    """Mark of a current state."""
    visited_mark: str
    """Mark of a visited state."""


BOXES = BoxCharacters(
    state_frame="┌┐└┘─│", final_frame="╔╗╚╝═║", arrow="→", current_mark="●", visited_mark="✓"
)
ASCII_BOXES = BoxCharacters(
    state_frame="++++-|", final_frame="++++=|", arrow="->", current_mark="*", visited_mark="+"
)
"""For terminals and files that support only ASCII."""


def render(diagram: Diagram, characters: BoxCharacters = BOXES) -> str:
    """One box per state, nested like the chart; visited states are marked."""
    lines = [make_visible_line(diagram.chart.name), ""]
    for node in diagram.nodes:
        lines += [*_render_node(diagram, node, characters), ""]
    return "\n".join(lines).rstrip() + "\n"


def render_ascii(diagram: Diagram) -> str:
    """The same with ASCII characters only."""
    return render(diagram, ASCII_BOXES)


def _render_node(diagram: Diagram, node: Node, characters: BoxCharacters) -> Iterator[str]:
    head = " ".join(
        part
        for part in (
            make_visible_line(node.title),
            _format_kinds(node),
            _format_visits(diagram, node, characters),
        )
        if part
    )
    content_lines = [*_format_effects(node)]
    for child in node.children:
        content_lines += _render_node(diagram, child, characters)
    content_lines += _render_rows(diagram, node, characters)
    width = max([measure_width(head) + 2, *(measure_width(line) for line in content_lines)])
    left, right, low_left, low_right, bar, side = tuple(
        characters.final_frame if node.final else characters.state_frame
    )
    yield f"{left}{bar} {head} {bar * (width - measure_width(head) - 1)}{right}"
    for line in content_lines:
        yield f"{side} {line}{' ' * (width - measure_width(line))} {side}"
    yield f"{low_left}{bar * (width + 2)}{low_right}"


def _render_rows(diagram: Diagram, node: Node, characters: BoxCharacters) -> Iterator[str]:
    for edge in diagram.edges:
        if edge.source == node.id:
            order = f"({edge.order}) " if edge.order else ""
            target = _format_target(edge)
            effects_text = f" / {', '.join(edge.effects)}" if edge.effects else ""
            count = diagram.format_count(edge)
            event = edge.event_text or "(at once)"
            yield make_visible_line(
                f"{edge.mark}{order}{event} {characters.arrow} {target}{effects_text}{count}"
            )
            if edge.guard:
                yield make_visible_line(f"    if {edge.guard}")


def _format_target(edge: Edge) -> str:
    if edge.stays:
        return "(stays)"
    return ", ".join(edge.targets) + (" (re-enters)" if edge.reenters else "")


def _format_kinds(node: Node) -> str:
    kinds = [
        word
        for word, applies in (("initial", node.initial), ("final", node.final), ("parallel", node.parallel))
        if applies
    ]
    if node.sub_agent:
        kinds.append(f"agent of {node.sub_agent}")
    if node.history:
        kinds.append(f"{node.history} history")
    return f"({', '.join(kinds)})" if kinds else ""


def _format_visits(diagram: Diagram, node: Node, characters: BoxCharacters) -> str:
    overlay = diagram.overlay
    if overlay is None or not overlay.states.get(node.id):
        return ""
    text = f"{overlay.states[node.id]}x"
    if node.id in overlay.seconds:
        text += f" {overlay.seconds[node.id]:.3g}s"
    return f"{characters.current_mark if node.id in overlay.current else characters.visited_mark} {text}"


def _format_effects(node: Node) -> Iterator[str]:
    entries = node.describe_entry()
    if node.enter:
        yield make_visible_line(f"enter: {', '.join(entries[: len(node.enter)])}")
    if node.exit:
        yield make_visible_line(f"exit: {', '.join(node.exit)}")
