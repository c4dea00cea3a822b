"""Mermaid renderer, for GitHub and wikis."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.states.diagram.model import Diagram, Edge, Node

_STYLE_CLASSES = """\
    classDef visited fill:#d7ecd9,stroke:#2e7d32,color:#1b2a1c
    classDef current fill:#ffe0a3,stroke:#e65100,color:#2a1a05"""

_RESERVED_WORDS = frozenset(
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
"""Words with a meaning in Mermaid's state diagrams, which cannot be ids.

Source: Mermaid 11, the grammar of `stateDiagram`.
"""


def render(diagram: Diagram) -> str:
    """A `stateDiagram-v2`; with an overlay, visited states are coloured and edges have counts."""
    lines = ["stateDiagram-v2", *_render_states(diagram, diagram.nodes, "    ")]
    lines += [line for edge in diagram.edges for line in _render_edge(diagram, edge)]
    if diagram.overlay is not None:
        lines.append(_STYLE_CLASSES)
        for name in filter(diagram.is_visited, diagram.overlay.states):
            mermaid_id = name in diagram.overlay.current
            lines.append(f"    class {_get_mermaid_id(name)} {'current' if mermaid_id else 'visited'}")
    return "\n".join(lines) + "\n"


def _get_mermaid_id(name: str) -> str:
    """The id of a state: its name, with a suffix where Mermaid reserves the name."""
    return f"{name}__" if name.lower() in _RESERVED_WORDS else name


def _render_states(diagram: Diagram, nodes: tuple[Node, ...], indent: str) -> Iterator[str]:
    for node in nodes:
        mermaid_id = _get_mermaid_id(node.id)
        if node.history:
            yield f'{indent}state "{"H*" if node.history == "deep" else "H"}" as {mermaid_id}'
        elif node.children:
            yield f"{indent}state {_format_compound_head(node)} {{"
            for index, child in enumerate(node.children):
                if node.parallel and index:
                    yield f"{indent}    --"
                yield from _render_states(diagram, (child,), indent + "    ")
            yield f"{indent}}}"
        else:
            yield f"{indent}{mermaid_id}{_format_description(diagram, node)}"
        if node.initial:
            yield f"{indent}[*] --> {mermaid_id}"
        if node.final:
            yield f"{indent}{mermaid_id} --> [*]"


def _format_compound_head(node: Node) -> str:
    """The head of a compound state: its id, after a title where there are effects to show."""
    details = ", ".join(_list_effects(node))
    if not details and _get_mermaid_id(node.id) == node.id:
        return node.id
    title = f"{node.id}<br/>{details}" if details else node.id
    return f'"{title}" as {_get_mermaid_id(node.id)}'


def _format_description(diagram: Diagram, node: Node) -> str:
    details = list(_list_effects(node))
    if diagram.overlay and node.id in diagram.overlay.seconds:
        details.append(f"{diagram.overlay.seconds[node.id]:.3g} s")
    if not details and _get_mermaid_id(node.id) == node.id:
        return ""
    return f": {'<br/>'.join([node.id, ', '.join(details)] if details else [node.id])}"


def _list_effects(node: Node) -> Iterator[str]:
    yield from node.enter
    yield from (f"exit {name}" for name in node.exit)


def _render_edge(diagram: Diagram, edge: Edge) -> Iterator[str]:
    # A colon or a semicolon would end the label.
    label = (edge.label + diagram.format_count(edge)).replace(":", "&colon;").replace(";", ",")
    for target in edge.targets or (edge.source,):
        suffix = f": {label}" if label else ""
        yield f"    {_get_mermaid_id(edge.source)} --> {_get_mermaid_id(target)}{suffix}"
