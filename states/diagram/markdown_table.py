"""Markdown table renderer: one row per transition, in document order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from toolchart.states.diagram.model import Diagram, Edge, Node, iterate_nodes
from toolchart.states.visible_text import make_visible_line


def render(diagram: Diagram) -> str:
    """State, order, event, guard, target and effects; with an overlay, how often each transition fired."""
    has_counts = diagram.overlay is not None
    heads = ["state", "order", "event", "guard", "target", "then", *(["taken"] if has_counts else [])]
    lines = [_format_row(heads), _format_row(["---"] * len(heads))]
    nodes_by_id = {node.id: node for node in iterate_nodes(diagram.nodes)}
    for node in diagram.nodes:
        if node.initial:
            cells = [
                "(start)",
                "",
                "",
                "",
                format_code(node.id),
                _format_effects(_iterate_entry_effects(node)),
            ]
            lines.append(_format_row([*cells, *([""] if has_counts else [])]))
    lines += [_format_row(_build_cells(diagram, edge, nodes_by_id)) for edge in diagram.edges]
    return "\n".join(lines) + "\n"


def _build_cells(diagram: Diagram, edge: Edge, nodes_by_id: Mapping[str, Node]) -> list[str]:
    entered_states = () if edge.stays else edge.targets
    effects = [
        *edge.effects,
        *(name for target in entered_states for name in _iterate_entry_effects(nodes_by_id[target])),
    ]
    cells = [
        edge.mark + format_code(edge.source),
        str(edge.order) if edge.order else "",
        format_code(edge.event_text) if edge.event_text else "",
        format_code(edge.guard) if edge.guard else "",
        _format_target(edge),
        _format_effects(effects),
    ]
    if diagram.overlay is not None:
        cells.append(str(diagram.overlay.edges.get((edge.source, edge.row), 0)))
    return cells


def _iterate_entry_effects(node: Node) -> Iterator[str]:
    """Effects of entering a state: its own, then those of the states that are entered inside it."""
    yield from node.enter
    for child in node.children:
        if child.initial or (node.parallel and not child.history):
            yield from _iterate_entry_effects(child)


def _format_effects(effects: Iterable[str]) -> str:
    return ", ".join(format_code(name) for name in effects)


def _format_target(edge: Edge) -> str:
    if edge.stays:
        return "(stays)"
    targets = ", ".join(format_code(target) for target in edge.targets)
    return f"{targets} (re-enters)" if edge.reenters else targets


def format_code(text: str) -> str:
    """A code span; one with a backtick has longer fences, as CommonMark wants."""
    text = make_visible_line(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"


def _format_row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
