"""Graphviz DOT renderer; visited states and edges are drawn in colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from toolchart.states.diagram.model import Diagram, Edge, Node, iterate_nodes
from toolchart.states.visible_text import make_visible_line

_MAX_LABEL_WIDTH = 34
"""Characters in one line of an edge's label."""


def render(diagram: Diagram) -> str:
    """A digraph with one cluster per compound state."""
    lines = [
        "digraph chart {",
        '  compound=true; rankdir=TB; nodesep=0.5; ranksep=0.6; fontname="Helvetica";',
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica"];',
        '  edge [fontname="Helvetica", fontsize=10, color="#555555"];',
        *_render_nodes(diagram, diagram.nodes, "  "),
        *(line for edge in diagram.edges for line in _render_edge(diagram, edge)),
        "}",
    ]
    return "\n".join(lines) + "\n"


_CHANGE_COLOURS = {"added": "#1a8a3f", "removed": "#d1352c", "changed": "#96690f"}


def _quote(text: str) -> str:
    """A quoted string of DOT; lines stay lines, and any other control character becomes visible."""
    lines = [make_visible_line(line) for line in text.split("\n")]
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'


def _render_nodes(diagram: Diagram, nodes: tuple[Node, ...], indent: str) -> Iterator[str]:
    for node in nodes:
        if node.initial:
            start = _quote(f"__start_{node.id}")
            leaf = _find_first_leaf(node)
            cluster_attribute = f" [lhead={_quote(f'cluster_{node.id}')}]" if leaf != node.id else ""
            yield f'{indent}{start} [shape=point, width=0.12, style=filled, fillcolor="#555555"];'
            yield f"{indent}{start} -> {_quote(leaf)}{cluster_attribute};"
        if node.children:
            yield f"{indent}subgraph {_quote(f'cluster_{node.id}')} {{"
            yield f"{indent}  {_format_cluster_style(diagram, node)}"
            yield from _render_nodes(diagram, node.children, indent + "  ")
            yield f"{indent}}}"
        else:
            yield f"{indent}{_quote(node.id)} [{_format_node_style(diagram, node)}];"


def _format_cluster_style(diagram: Diagram, node: Node) -> str:
    """The style of a compound state: effects in the label, a dashed frame for parallel regions."""
    label_lines = [node.title, *node.describe_entry()]
    style = f'label={_quote(chr(10).join(label_lines))}; style="rounded{",dashed" if node.parallel else ""}";'
    if node.change:
        return f'{style} color="{_CHANGE_COLOURS[node.change]}"; penwidth=2;'
    return f'{style} color="#2e7d32"; penwidth=2;' if diagram.is_visited(node.id) else style


def _wrap_label(label: str) -> str:
    """A label in short lines, because Graphviz does not wrap labels."""
    return "\n".join(textwrap.wrap(label, _MAX_LABEL_WIDTH, break_long_words=False, break_on_hyphens=False))


def _format_node_style(diagram: Diagram, node: Node) -> str:
    if node.history:
        return f'shape=circle, label="{"H*" if node.history == "deep" else "H"}"'
    label_lines = [node.title, *node.describe_entry()]
    if diagram.overlay and node.id in diagram.overlay.seconds:
        label_lines.append(f"{diagram.overlay.seconds[node.id]:.3g} s")
    style = [f"label={_quote(chr(10).join(label_lines))}"]
    if node.final:
        style.append("peripheries=2")
    if diagram.overlay and node.id in diagram.overlay.current:
        style.append('fillcolor="#ffe0a3", color="#e65100", penwidth=2')
    elif diagram.is_visited(node.id):
        style.append('fillcolor="#d7ecd9", color="#2e7d32", penwidth=2')
    elif node.change:
        style.append(f'color="{_CHANGE_COLOURS[node.change]}", penwidth=2')
    return ", ".join(style)


def _render_edge(diagram: Diagram, edge: Edge) -> Iterator[str]:
    count = diagram.format_count(edge)
    style = f"label={_quote(_wrap_label(edge.label + count))}"
    if count:
        style += ', color="#2e7d32", penwidth=2'
    elif edge.change:
        style += f', color="{_CHANGE_COLOURS[edge.change]}", penwidth=2'
    leaves = {node.id: _find_first_leaf(node) for node in iterate_nodes(diagram.nodes)}
    tail = "" if leaves[edge.source] == edge.source else f", ltail={_quote(f'cluster_{edge.source}')}"
    for target in edge.targets or (edge.source,):
        head = "" if leaves[target] == target else f", lhead={_quote(f'cluster_{target}')}"
        yield f"  {_quote(leaves[edge.source])} -> {_quote(leaves[target])} [{style}{tail}{head}];"


def _find_first_leaf(node: Node) -> str:
    """The first simple state inside a state: an edge in DOT cannot end at a cluster."""
    while node.children:
        node = node.children[0]
    return node.id
