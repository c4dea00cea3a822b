"""The picture of two charts: the new one, with what was added, removed and changed since the old one.

A row that has changed is drawn twice, as it was and as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from toolchart.states.chart_comparison import ChartComparison
from toolchart.states.diagram.model import Change, Diagram, Edge, Node, build_diagram, iterate_nodes


def build_comparison_diagram(comparison: ChartComparison) -> Diagram:
    """The model of both charts, for every renderer. A renamed state has its new name, as a changed one."""
    old, new = build_diagram(comparison.old), build_diagram(comparison.new)
    names = {state.id: comparison.renamed.get(state.id, state.id) for state in iterate_nodes(old.nodes)}
    nodes = _add_missing(new.nodes, old.nodes, names)
    changes = _list_node_changes(comparison)
    return Diagram(
        chart=comparison.new,
        nodes=tuple(_mark_node(node, changes) for node in nodes),
        edges=tuple(_list_edges(comparison, new.edges, names)),
    )


def _list_node_changes(comparison: ChartComparison) -> dict[str, Change]:
    changes: dict[str, Change] = {}
    for state in comparison.states:
        name = state.new or state.old or ""
        changes[name] = "changed" if state.change == "renamed" else state.change
    return changes


def _mark_node(node: Node, changes: Mapping[str, Change]) -> Node:
    children = tuple(_mark_node(child, changes) for child in node.children)
    change = changes.get(node.id, "")
    # A state that was removed, or that stands elsewhere, is no place where a chart begins.
    return replace(node, children=children, change=change, initial=node.initial and change != "removed")


def _add_missing(
    new: Sequence[Node], old: Sequence[Node], names: Mapping[str, str], known: frozenset[str] | None = None
) -> tuple[Node, ...]:
    """The states of the new chart, and those of the old one that it does not have, where they stood.

    Args:
        known: the names of all states of the new chart.
    """
    known = known if known is not None else frozenset(node.id for node in iterate_nodes(new))
    merged = list(new)
    for node in old:
        name = names[node.id]
        same = next((i for i, other in enumerate(merged) if other.id == name), None)
        if same is not None:
            children = _add_missing(merged[same].children, node.children, names, known)
            merged[same] = replace(merged[same], children=children)
        elif name not in known:
            merged.append(_take_missing(node, known, names))
        else:  # it stands elsewhere; what was inside it and is gone stays here
            merged += _add_missing((), node.children, names, known)
    return tuple(merged)


def _take_missing(node: Node, known: frozenset[str], names: Mapping[str, str]) -> Node:
    """A removed state with those of its inner states that were removed too."""
    children = (child for child in node.children if names[child.id] not in known)
    return replace(node, children=tuple(_take_missing(child, known, names) for child in children))


def _list_edges(comparison: ChartComparison, new: Sequence[Edge], names: Mapping[str, str]) -> list[Edge]:
    """The rows of the new chart and, behind those of the same state, the rows that are gone."""
    added = {(row.new.source, row.new.row) for row in comparison.rows if row.new and row.change != "moved"}
    moved = {(row.new.source, row.new.row) for row in comparison.rows if row.new and row.change == "moved"}
    edges: list[Edge] = []
    for edge in new:
        place = (edge.source, edge.row)
        change: Change = "added" if place in added else "changed" if place in moved else ""
        edges.append(replace(edge, change=change))
    for row in comparison.rows:
        if row.old is None or row.change == "moved":
            continue
        targets = tuple(names.get(target, target) for target in row.old.targets)
        # Its number among the rows would name one of the new chart.
        edge = replace(row.old, source=row.state, targets=targets, order=0, row=-1, change="removed")
        last = max((i for i, other in enumerate(edges) if other.source == row.state), default=len(edges) - 1)
        edges.insert(last + 1, edge)
    return edges
