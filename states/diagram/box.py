"""A drawing for the terminal: each state in a box, its transitions below it in their order."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.states.diagram.model import Diagram, Node


def render(diagram: Diagram) -> str:
    """One box per state, nested as the chart is; visited states are marked."""
    lines = [f"{diagram.chart.name}", ""]
    for node in diagram.nodes:
        lines += [*_node(diagram, node), ""]
    return "\n".join(lines).rstrip() + "\n"


def _node(diagram: Diagram, node: Node) -> Iterator[str]:
    head = " ".join(part for part in (node.id, _kind(node), _seen(diagram, node)) if part)
    inside = [*_enters(node)]
    for child in node.children:
        inside += _node(diagram, child)
    for edge in diagram.edges:
        if edge.source == node.id:
            goal = ", ".join(edge.targets) or "(stays)"
            inside.append(f"{edge.event or '(at once)'} → {goal}{diagram.count(edge)}")
            if edge.guard:
                inside.append(f"    if {edge.guard}")
    width = max([len(head) + 2, *(len(line) for line in inside)])
    left, right = ("╔", "╗") if node.final else ("┌", "┐")
    bar = "═" if node.final else "─"
    yield f"{left}{bar} {head} {bar * (width - len(head) - 1)}{right}"
    side = "║" if node.final else "│"
    for line in inside:
        yield f"{side} {line.ljust(width)} {side}"
    low_left, low_right = ("╚", "╝") if node.final else ("└", "┘")
    yield f"{low_left}{bar * (width + 2)}{low_right}"


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


def _seen(diagram: Diagram, node: Node) -> str:
    overlay = diagram.overlay
    if overlay is None or not overlay.states.get(node.id):
        return ""
    text = f"{overlay.states[node.id]}x"
    if node.id in overlay.seconds:
        text += f" {overlay.seconds[node.id]:.3g}s"
    return f"● {text}" if node.id in overlay.current else f"✓ {text}"


def _enters(node: Node) -> Iterator[str]:
    if node.enter:
        yield f"enter: {', '.join(node.enter)}"
    if node.exit:
        yield f"exit: {', '.join(node.exit)}"
