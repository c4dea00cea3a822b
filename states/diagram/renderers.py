"""The table of diagram formats, and `draw`, which draws a chart in one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from toolchart.states.chart.document import Chart
from toolchart.states.descriptors import (
    Descriptor,
    build_table,
    find_reference_gaps,
    find_row,
    find_text_gaps,
    load_reference,
)
from toolchart.states.diagram.model import Diagram, Edge, Node, Overlay, build_diagram
from toolchart.states.errors import SpecError, format_install
from toolchart.states.visible_text import make_visible


class RendererDescriptor(Descriptor, frozen=True, kw_only=True):
    """One format of diagrams."""

    summary: str = ""
    """What the format is, in a few words."""
    render: str = ""
    """Reference to a function that makes text or bytes from a `Diagram`."""
    media_type: str = ""
    """Media type of the result: `image/svg+xml`."""
    is_binary: bool = False
    """Whether the result is bytes, not text."""
    needs: str = ""
    """Software that must be installed besides Toolchart; empty for none."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each."""
        return [
            *super().find_gaps(),
            *find_text_gaps(summary=self.summary, media_type=self.media_type),
            *find_reference_gaps("render", self.render, "the function that draws a diagram"),
        ]

    def list_references(self) -> dict[str, str]:
        """The function that draws."""
        return {"render": self.render}


def _list_renderers() -> list[RendererDescriptor]:
    return [
        _describe_text("text", "boxes and arrows for a terminal", "terminal:render"),
        _describe_text("ascii", "the same in ASCII", "terminal:render_ascii"),
        _describe_text("mermaid", "Mermaid", "mermaid:render", "text/vnd.mermaid"),
        _describe_text("dot", "the language of Graphviz", "dot:render", "text/vnd.graphviz"),
        _describe_text("table", "a Markdown table", "markdown_table:render", "text/markdown"),
        _describe_text("yaml", "the chart itself", "model:render_yaml", "application/yaml"),
        _describe_image("svg", "an SVG image", "image/svg+xml"),
        _describe_image("png", "a PNG image", "image/png"),
    ]


def _describe_text(
    name: str, summary: str, function: str, media_type: str = "text/plain"
) -> RendererDescriptor:
    return RendererDescriptor(
        name=name, summary=summary, render=f"toolchart.states.diagram.{function}", media_type=media_type
    )


def _describe_image(name: str, summary: str, media_type: str) -> RendererDescriptor:
    return RendererDescriptor(
        name=name,
        summary=summary,
        render=f"toolchart.states.diagram.picture.{name}:render",
        media_type=media_type,
        is_binary=True,
        needs=f"the extra `pictures`: {format_install('pictures')}",
    )


RENDERERS = build_table("diagram format", _list_renderers())
"""Every format of diagrams by its name, in the order of `toolchart draw --help`."""


def list_text_formats() -> list[str]:
    """Names of the formats that are text; they need no further software."""
    return [row.name for row in RENDERERS.values() if not row.is_binary]


def draw(
    chart: Chart, format_name: str, overlay: Overlay | None = None, agents: Mapping[str, Chart] | None = None
) -> str | bytes:
    """Draw a chart in a format; an overlay adds the path of a conversation.

    Args:
        agents: charts of agents by the effects that run them; each is drawn inside the state that asks.

    Raises:
        SpecError: the format is unknown, or it needs software that is not installed.
    """
    row = find_row(RENDERERS, "diagram format", format_name)
    try:
        render: Callable[[Diagram], str | bytes] = load_reference(row.render)
    except (ImportError, AttributeError) as error:
        needs = f"it needs {row.needs}" if row.needs else None
        message = f"the diagram format {row.name!r} cannot be loaded: {error}"
        raise SpecError(message, hint=needs) from error
    result = render(unfold_agents(build_diagram(chart, overlay), agents or {}))
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
