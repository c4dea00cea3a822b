"""A renderer: states and transitions as an indented list."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.states.diagram.model import Diagram, Node


def render(diagram: Diagram) -> str:
    """Draw a chart as lines of text."""
    return "".join(f"{line}\n" for node in diagram.nodes for line in _list_lines(node, diagram))


def _list_lines(node: Node, diagram: Diagram, indent: str = "") -> Iterator[str]:
    yield f"{indent}{node.id}"
    for edge in diagram.edges:
        if edge.source == node.id:
            yield f"{indent}  {edge.label} -> {', '.join(edge.targets) or 'stay'}"
    for child in node.children:
        yield from _list_lines(child, diagram, f"{indent}    ")
