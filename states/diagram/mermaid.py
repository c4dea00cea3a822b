"""Mermaid, as GitHub and most wikis show it."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.states.diagram.model import Diagram, Edge, Node

_CLASSES = """\
    classDef visited fill:#d7ecd9,stroke:#2e7d32,color:#1b2a1c
    classDef current fill:#ffe0a3,stroke:#e65100,color:#2a1a05"""

_KEPT = frozenset(
    (
        "accdescr",
        "acctitle",
        "as",
        "class",
        "classdef",
        "click",
        "default",
        "direction",
        "end",
        "hide",
        "note",
        "scale",
        "state",
        "style",
    )
)
"""Words of Mermaid's state diagrams, which it does not take as ids.

Source: Mermaid 11, the grammar of `stateDiagram`.
"""


def render(diagram: Diagram) -> str:
    """A `stateDiagram-v2`; visited states are coloured, edges counted."""
    lines = ["stateDiagram-v2", *_states(diagram, diagram.nodes, "    ")]
    lines += [line for edge in diagram.edges for line in _edge(diagram, edge)]
    if diagram.overlay is not None:
        lines.append(_CLASSES)
        for name in filter(diagram.visited, diagram.overlay.states):
            here = name in diagram.overlay.current
            lines.append(f"    class {_id(name)} {'current' if here else 'visited'}")
    return "\n".join(lines) + "\n"


def _id(name: str) -> str:
    """The name of a state where Mermaid needs an id: its own, unless Mermaid keeps that for itself."""
    return f"{name}__" if name.lower() in _KEPT else name


def _states(diagram: Diagram, nodes: tuple[Node, ...], pad: str) -> Iterator[str]:
    for node in nodes:
        here = _id(node.id)
        if node.history:
            yield f'{pad}state "{"H*" if node.history == "deep" else "H"}" as {here}'
        elif node.children:
            yield f"{pad}state {_framed(node)} {{"
            for place, child in enumerate(node.children):
                if node.parallel and place:
                    yield f"{pad}    --"
                yield from _states(diagram, (child,), pad + "    ")
            yield f"{pad}}}"
        else:
            yield f"{pad}{here}{_text(diagram, node)}"
        if node.initial:
            yield f"{pad}[*] --> {here}"
        if node.final:
            yield f"{pad}{here} --> [*]"


def _framed(node: Node) -> str:
    """The head of a compound state: its id, behind a title where it says more."""
    told = ", ".join(_effects(node))
    if not told and _id(node.id) == node.id:
        return node.id
    return f'"{node.id}{f"<br/>{told}" if told else ""}" as {_id(node.id)}'


def _text(diagram: Diagram, node: Node) -> str:
    told = list(_effects(node))
    if diagram.overlay and node.id in diagram.overlay.seconds:
        told.append(f"{diagram.overlay.seconds[node.id]:.3g} s")
    if not told and _id(node.id) == node.id:
        return ""
    return f": {'<br/>'.join([node.id, ', '.join(told)] if told else [node.id])}"


def _effects(node: Node) -> Iterator[str]:
    yield from node.enter
    yield from (f"exit {name}" for name in node.exit)


def _edge(diagram: Diagram, edge: Edge) -> Iterator[str]:
    # A colon or a semicolon would end the label early.
    label = (edge.label + diagram.count(edge)).replace(":", "&colon;").replace(";", ",")
    for target in edge.targets or (edge.source,):
        yield f"    {_id(edge.source)} --> {_id(target)}{f': {label}' if label else ''}"
