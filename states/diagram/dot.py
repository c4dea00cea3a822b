"""Graphviz DOT; what a conversation visited is drawn heavier."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from toolchart.states.diagram.model import Diagram, Edge, Node

_WIDEST = 34
"""Characters of a line of an edge's label."""


def render(diagram: Diagram) -> str:
    """A digraph, one cluster per compound state."""
    lines = [
        "digraph chart {",
        '  compound=true; rankdir=TB; nodesep=0.5; ranksep=0.6; fontname="Helvetica";',
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="Helvetica"];',
        '  edge [fontname="Helvetica", fontsize=10, color="#555555"];',
        *_nodes(diagram, diagram.nodes, "  "),
        *(line for edge in diagram.edges for line in _edge(diagram, edge)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _nodes(diagram: Diagram, nodes: tuple[Node, ...], pad: str) -> Iterator[str]:
    for node in nodes:
        if node.initial:
            start = f"__start_{node.id}"
            leaf = _leaf(node)
            inside = f" [lhead=cluster_{node.id}]" if leaf != node.id else ""
            yield f'{pad}{start} [shape=point, width=0.12, style=filled, fillcolor="#555555"];'
            yield f"{pad}{start} -> {_quoted(leaf)}{inside};"
        if node.children:
            yield f"{pad}subgraph cluster_{node.id} {{"
            yield f"{pad}  {_cluster(diagram, node)}"
            yield from _nodes(diagram, node.children, pad + "  ")
            yield f"{pad}}}"
        else:
            yield f"{pad}{_quoted(node.id)} [{_style(diagram, node)}];"


def _cluster(diagram: Diagram, node: Node) -> str:
    """The frame of a compound state: its effects in the label, dashed where its regions are parallel."""
    told = [node.id, *node.enter, *(f"exit {name}" for name in node.exit)]
    style = (
        f'label={_quoted(chr(10).join(told))}; style="rounded{",dashed" if node.parallel else ""}";'
    )
    return f'{style} color="#2e7d32"; penwidth=2;' if diagram.visited(node.id) else style


def _wrapped(label: str) -> str:
    """A label in short lines: Graphviz draws a long one as wide as it is."""
    return "\n".join(textwrap.wrap(label, _WIDEST, break_long_words=False, break_on_hyphens=False))


def _style(diagram: Diagram, node: Node) -> str:
    if node.history:
        return f'shape=circle, label="{"H*" if node.history == "deep" else "H"}"'
    told = [node.id, *node.enter, *(f"exit {name}" for name in node.exit)]
    if diagram.overlay and node.id in diagram.overlay.seconds:
        told.append(f"{diagram.overlay.seconds[node.id]:.3g} s")
    style = [f"label={_quoted(chr(10).join(told))}"]
    if node.final:
        style.append("peripheries=2")
    if diagram.overlay and node.id in diagram.overlay.current:
        style.append('fillcolor="#ffe0a3", color="#e65100", penwidth=2')
    elif diagram.visited(node.id):
        style.append('fillcolor="#d7ecd9", color="#2e7d32", penwidth=2')
    return ", ".join(style)


def _edge(diagram: Diagram, edge: Edge) -> Iterator[str]:
    count = diagram.count(edge)
    style = f"label={_quoted(_wrapped(edge.label + count))}"
    if count:
        style += ', color="#2e7d32", penwidth=2'
    leaves = {node.id: _leaf(node) for node in _all(diagram.nodes)}
    tail = "" if leaves[edge.source] == edge.source else f", ltail=cluster_{edge.source}"
    for target in edge.targets or (edge.source,):
        head = "" if leaves[target] == target else f", lhead=cluster_{target}"
        yield f"  {_quoted(leaves[edge.source])} -> {_quoted(leaves[target])} [{style}{tail}{head}];"


def _all(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        yield from _all(node.children)


def _leaf(node: Node) -> str:
    """An edge of DOT ends at a simple node: the first one inside a compound state."""
    while node.children:
        node = node.children[0]
    return node.id
