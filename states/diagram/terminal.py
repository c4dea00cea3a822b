"""A drawing for the terminal: each state in a box, its transitions below it in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from toolchart.states.diagram.model import Diagram, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Pen:
    """The characters of a drawing."""

    single: str
    """Corners, bar and side of a state: left and right above, left and right below, bar, side."""
    double: str
    """The same for a final state."""
    arrow: str
    here: str
    """Mark of a current state."""
    been: str
    """Mark of a visited state."""


BOXES = Pen(single="┌┐└┘─│", double="╔╗╚╝═║", arrow="→", here="●", been="✓")
PLAIN = Pen(single="++++-|", double="++++=|", arrow="->", here="*", been="+")
"""For terminals, mails and files that know ASCII alone."""


def render(diagram: Diagram, pen: Pen = BOXES) -> str:
    """One box per state, nested as the chart is; visited states are marked."""
    lines = [f"{diagram.chart.name}", ""]
    for node in diagram.nodes:
        lines += [*_node(diagram, node, pen), ""]
    return "\n".join(lines).rstrip() + "\n"


def render_ascii(diagram: Diagram) -> str:
    """The same, drawn with ASCII characters alone."""
    return render(diagram, PLAIN)


def _node(diagram: Diagram, node: Node, pen: Pen) -> Iterator[str]:
    head = " ".join(part for part in (node.id, _kind(node), _seen(diagram, node, pen)) if part)
    inside = [*_enters(node)]
    for child in node.children:
        inside += _node(diagram, child, pen)
    inside += _rows(diagram, node, pen)
    width = max([len(head) + 2, *(len(line) for line in inside)])
    left, right, low_left, low_right, bar, side = tuple(pen.double if node.final else pen.single)
    yield f"{left}{bar} {head} {bar * (width - len(head) - 1)}{right}"
    for line in inside:
        yield f"{side} {line.ljust(width)} {side}"
    yield f"{low_left}{bar * (width + 2)}{low_right}"


def _rows(diagram: Diagram, node: Node, pen: Pen) -> Iterator[str]:
    for edge in diagram.edges:
        if edge.source == node.id:
            goal = ", ".join(edge.targets) or "(stays)"
            then = f" / {', '.join(edge.effects)}" if edge.effects else ""
            count = diagram.count(edge)
            yield f"{edge.event or '(at once)'} {pen.arrow} {goal}{then}{count}"
            if edge.guard:
                yield f"    if {edge.guard}"


def _kind(node: Node) -> str:
    kinds = [
        word
        for word, true in (
            ("initial", node.initial),
            ("final", node.final),
            ("parallel", node.parallel),
        )
        if true
    ]
    if node.history:
        kinds.append(f"{node.history} history")
    return f"({', '.join(kinds)})" if kinds else ""


def _seen(diagram: Diagram, node: Node, pen: Pen) -> str:
    overlay = diagram.overlay
    if overlay is None or not overlay.states.get(node.id):
        return ""
    text = f"{overlay.states[node.id]}x"
    if node.id in overlay.seconds:
        text += f" {overlay.seconds[node.id]:.3g}s"
    return f"{pen.here if node.id in overlay.current else pen.been} {text}"


def _enters(node: Node) -> Iterator[str]:
    if node.enter:
        yield f"enter: {', '.join(node.enter)}"
    if node.exit:
        yield f"exit: {', '.join(node.exit)}"
