"""Mermaid renderer, for GitHub and wikis."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.states.diagram.labels import make_token
from toolchart.states.diagram.model import Diagram, Edge, Node, iterate_nodes
from toolchart.states.visible_text import make_visible_line

_STYLE_CLASSES = """\
    classDef visited fill:#d7ecd9,stroke:#2e7d32,color:#1b2a1c
    classDef current fill:#ffe0a3,stroke:#e65100,color:#2a1a05"""

_CHANGE_CLASSES = """\
    classDef added fill:#d7ecd9,stroke:#1a8a3f,color:#1b2a1c
    classDef removed fill:#fbdcda,stroke:#d1352c,color:#2a1a1a,stroke-dasharray:5 3
    classDef changed fill:#f7ebcf,stroke:#96690f,color:#2a1a05"""

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

_ENTITIES = {
    **{character: f"#{ord(character)};" for character in "#:;%\\{}|`"},
    '"': "#quot;",
    "<": "#lt;",
    "&": "#amp;",
}
"""Characters that end a label or begin something else in Mermaid, or in the HTML that it makes."""


def render(diagram: Diagram) -> str:
    """A `stateDiagram-v2`; with an overlay, visited states are coloured and edges have counts."""
    lines = ["stateDiagram-v2", *_render_states(diagram, diagram.nodes, "    ")]
    lines += [line for edge in diagram.edges for line in _render_edge(diagram, edge)]
    if diagram.overlay is not None:
        lines.append(_STYLE_CLASSES)
        for name in filter(diagram.is_visited, diagram.overlay.states):
            style_class = "current" if name in diagram.overlay.current else "visited"
            lines.append(f"    class {_get_mermaid_id(name)} {style_class}")
    changed_nodes = [node for node in iterate_nodes(diagram.nodes) if node.change]
    if changed_nodes:
        lines.append(_CHANGE_CLASSES)
        lines += [f"    class {_get_mermaid_id(node.id)} {node.change}" for node in changed_nodes]
    return "\n".join(lines) + "\n"


def _get_mermaid_id(name: str) -> str:
    """The id of a state: its name as one word, with a suffix where Mermaid reserves the name."""
    token = make_token(name).replace("-", "_")
    return f"{token}__" if name.lower() in _RESERVED_WORDS else token


def escape_mermaid(text: str) -> str:
    """A text as a label of Mermaid: what it would interpret becomes an entity code, `#35;`.

    Source: Mermaid 11, "Entity codes to escape characters".
    """
    return "".join(_ENTITIES.get(character, character) for character in make_visible_line(text))


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
    mermaid_id, details = _get_mermaid_id(node.id), ", ".join(node.describe_entry())
    if not details and mermaid_id == node.title:
        return mermaid_id
    texts = [escape_mermaid(text) for text in (node.title, details) if text]
    return f'"{"<br/>".join(texts)}" as {mermaid_id}'


def _format_description(diagram: Diagram, node: Node) -> str:
    details = list(node.describe_entry())
    if diagram.overlay and node.id in diagram.overlay.seconds:
        details.append(f"{diagram.overlay.seconds[node.id]:.3g} s")
    if not details and _get_mermaid_id(node.id) == node.title:
        return ""
    texts = [escape_mermaid(text) for text in (node.title, ", ".join(details)) if text]
    return f": {'<br/>'.join(texts)}"


def _render_edge(diagram: Diagram, edge: Edge) -> Iterator[str]:
    label = escape_mermaid(edge.label + diagram.format_count(edge))
    for target in edge.targets or (edge.source,):
        suffix = f": {label}" if label else ""
        yield f"    {_get_mermaid_id(edge.source)} --> {_get_mermaid_id(target)}{suffix}"
