"""The table of diagram formats, `draw`, which draws a chart in one of them, and `draw_diagram`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from toolchart.states.chart.document import Chart
from toolchart.states.descriptors import load_reference
from toolchart.states.diagram.model import Diagram, Edge, Node, Overlay, build_diagram
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.visible_text import make_visible

Renderer = Callable[[Diagram], str | bytes]

RENDERERS = {
    "text": "terminal:render",
    "ascii": "terminal:render_ascii",
    "mermaid": "mermaid:render",
    "dot": "dot:render",
    "table": "markdown_table:render",
    "yaml": "model:render_yaml",
    "svg": "picture.svg:render",
    "png": "picture.png:render",
}
"""Every format of diagrams, in the order of `toolchart draw --help`, with the function of this package that
draws it. SVG and PNG are bytes; PNG needs the extra `pictures`."""


def find_renderer(format_name: str) -> Renderer:
    """The function that draws in a format; its module is imported now.

    Raises:
        SpecError: the format is unknown.
    """
    if format_name not in RENDERERS:
        hint = suggest_name(format_name, RENDERERS)
        raise SpecError(f"unknown diagram format {format_name!r}", hint=hint)
    renderer: Renderer = load_reference(f"toolchart.states.diagram.{RENDERERS[format_name]}")
    return renderer


def draw(
    chart: Chart, format_name: str, overlay: Overlay | None = None, agents: Mapping[str, Chart] | None = None
) -> str | bytes:
    """Draw a chart in a format; an overlay adds the path of a conversation.

    Args:
        agents: charts of agents by the effects that run them; each is drawn inside the state that asks.

    Raises:
        SpecError: the format is unknown, or it needs software that is not installed.
    """
    return draw_diagram(unfold_agents(build_diagram(chart, overlay), agents or {}), format_name)


def draw_diagram(diagram: Diagram, format_name: str) -> str | bytes:
    """Draw a diagram in a format; no character of a text acts on a terminal.

    Raises:
        SpecError: as `draw`.
    """
    result = find_renderer(format_name)(diagram)
    return make_visible(result) if isinstance(result, str) else result


# -- sub-agents ----------------------------------------------------------------------------------


def unfold_agents(diagram: Diagram, agents: Mapping[str, Chart]) -> Diagram:
    """The diagram with the charts of agents inside the states that run them.

    The id of a state of an agent is `STATE.NAME`, so that it differs from every state of the chart itself.

    Args:
        agents: charts by the name of the effect that runs them; an effect that is missing stays folded.
    """
    edges: list[Edge] = list(diagram.edges)
    nodes = tuple(_unfold_node(node, agents, edges) for node in diagram.nodes)
    return replace(diagram, nodes=nodes, edges=tuple(edges))


def _unfold_node(node: Node, agents: Mapping[str, Chart], edges: list[Edge]) -> Node:
    if node.children:
        return replace(node, children=tuple(_unfold_node(child, agents, edges) for child in node.children))
    effect = next((name for name in node.enter if name in agents), None)
    if effect is None:
        return node
    inner = build_diagram(agents[effect])
    edges += [_move_edge(edge, node.id) for edge in inner.edges]
    return replace(
        node, children=tuple(_move_node(child, node.id) for child in inner.nodes), sub_agent=effect
    )


def _move_node(node: Node, owner: str) -> Node:
    children = tuple(_move_node(child, owner) for child in node.children)
    return replace(node, id=f"{owner}.{node.id}", name=node.title, children=children)


def _move_edge(edge: Edge, owner: str) -> Edge:
    targets = tuple(f"{owner}.{target}" for target in edge.targets)
    return replace(edge, source=f"{owner}.{edge.source}", targets=targets)
