"""A Markdown table: one row per transition, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from toolchart.states.diagram.model import Diagram, Edge, Node


def render(diagram: Diagram) -> str:
    """State, event, guard, target, effects; with an overlay, how often each was taken."""
    counted = diagram.overlay is not None
    heads = ["state", "event", "guard", "target", "then", *(["taken"] if counted else [])]
    lines = [_row(heads), _row(["---"] * len(heads))]
    known = {node.id: node for node in _all(diagram.nodes)}
    for node in diagram.nodes:
        if node.initial:
            cells = ["(start)", "", "", f"`{node.id}`", _named(_entered(node))]
            lines.append(_row([*cells, *([""] if counted else [])]))
    lines += [_row(_cells(diagram, edge, known)) for edge in diagram.edges]
    return "\n".join(lines) + "\n"


def _cells(diagram: Diagram, edge: Edge, known: Mapping[str, Node]) -> list[str]:
    then = [*edge.effects, *(name for goal in edge.targets for name in _entered(known[goal]))]
    cells = [
        f"`{edge.source}`",
        f"`{edge.event}`" if edge.event else "",
        f"`{edge.guard}`" if edge.guard else "",
        ", ".join(f"`{goal}`" for goal in edge.targets) or "(stays)",
        _named(then),
    ]
    if diagram.overlay is not None:
        cells.append(str(diagram.overlay.edges.get((edge.source, edge.row), 0)))
    return cells


def _entered(node: Node) -> Iterator[str]:
    """Effects of entering a state: its own, then those of what is entered inside it."""
    yield from node.enter
    for child in node.children:
        if child.initial or (node.parallel and not child.history):
            yield from _entered(child)


def _named(effects: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in effects)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _all(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _all(node.children)
