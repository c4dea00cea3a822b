"""Sub-agents in diagrams: folded, a state shows a badge; unfolded, it contains the chart of its agent."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolchart.states.chart.document import Chart
from toolchart.states.diagram.model import Diagram, Edge, Node, build_diagram


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
