"""Mermaid, as GitHub and most wikis show it."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.states.diagram.model import Diagram, Edge, Node

_CLASSES = """\
    classDef visited fill:#d7ecd9,stroke:#2e7d32,color:#1b2a1c
    classDef current fill:#ffe0a3,stroke:#e65100,color:#2a1a05"""


def render(diagram: Diagram) -> str:
    """A `stateDiagram-v2`; visited states are coloured, edges counted."""
    lines = ["stateDiagram-v2", *_states(diagram, diagram.nodes, "    ")]
    lines += [line for edge in diagram.edges for line in _edge(diagram, edge)]
    if diagram.overlay is not None:
        lines.append(_CLASSES)
        for name in diagram.overlay.states:
            here = name in diagram.overlay.current
            lines.append(f"    class {name} {'current' if here else 'visited'}")
    return "\n".join(lines) + "\n"


def _states(diagram: Diagram, nodes: tuple[Node, ...], pad: str) -> Iterator[str]:
    for node in nodes:
        if node.history:
            yield f'{pad}state "{"H*" if node.history == "deep" else "H"}" as {node.id}'
        elif node.children:
            told = [*node.enter, *(f"exit {name}" for name in node.exit)]
            named = f'"{node.id}<br/>{", ".join(told)}" as {node.id}' if told else node.id
            yield f"{pad}state {named} {{"
            for place, child in enumerate(node.children):
                if node.parallel and place:
                    yield f"{pad}    --"
                yield from _states(diagram, (child,), pad + "    ")
            yield f"{pad}}}"
        else:
            yield f"{pad}{node.id}{_text(diagram, node)}"
        if node.initial:
            yield f"{pad}[*] --> {node.id}"
        if node.final:
            yield f"{pad}{node.id} --> [*]"


def _text(diagram: Diagram, node: Node) -> str:
    told = [*node.enter, *(f"exit {name}" for name in node.exit)]
    if diagram.overlay and node.id in diagram.overlay.seconds:
        told.append(f"{diagram.overlay.seconds[node.id]:.3g} s")
    return f": {node.id}<br/>{', '.join(told)}" if told else ""


def _edge(diagram: Diagram, edge: Edge) -> Iterator[str]:
    # A colon or a semicolon would end the label early.
    label = (edge.label + diagram.count(edge)).replace(":", "&colon;").replace(";", ",")
    for target in edge.targets or (edge.source,):
        yield f"    {edge.source} --> {target}{f': {label}' if label else ''}"
