"""A Markdown table: one row per transition, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.states.diagram.model import Diagram, Node


def render(diagram: Diagram) -> str:
    """State, event, guard, target, effects; with an overlay, how often each was taken."""
    counted = diagram.overlay is not None
    heads = ["state", "event", "guard", "target", "then", *(["taken"] if counted else [])]
    lines = [_row(heads), _row(["---"] * len(heads))]
    enters = {node.id: node for node in _all(diagram.nodes)}
    for edge in diagram.edges:
        then = [*edge.effects, *(e for target in edge.targets for e in enters[target].enter)]
        cells = [
            f"`{edge.source}`",
            f"`{edge.event}`" if edge.event else "",
            f"`{edge.guard}`" if edge.guard else "",
            ", ".join(f"`{target}`" for target in edge.targets) or "(stays)",
            ", ".join(f"`{name}`" for name in then),
        ]
        taken = diagram.overlay.edges.get((edge.source, edge.row), 0) if diagram.overlay else 0
        lines.append(_row([*cells, *([str(taken)] if counted else [])]))
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _all(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _all(node.children)
