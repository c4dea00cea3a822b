"""Strongly connected components of a graph, by Tarjan's algorithm without recursion."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def find_components(successors: Mapping[Node, Iterable[Node]]) -> dict[Node, int]:
    """The number of each node's component. A component has a greater number than those that it leads to.

    Args:
        successors: by node; a node that only others lead to may be missing.
    """
    indexes: dict[Node, int] = {}
    low_links: dict[Node, int] = {}
    stack: list[Node] = []
    component_of: dict[Node, int] = {}
    count = 0
    for root in successors:
        if root in indexes:
            continue
        path = [(root, iter(successors[root]))]
        indexes[root] = low_links[root] = len(indexes)
        stack.append(root)
        while path:
            node, next_nodes = path[-1]
            next_node = next((n for n in next_nodes if n not in component_of), None)
            if next_node is not None and next_node not in indexes:
                indexes[next_node] = low_links[next_node] = len(indexes)
                stack.append(next_node)
                path.append((next_node, iter(successors.get(next_node, ()))))
            elif next_node is not None:
                low_links[node] = min(low_links[node], indexes[next_node])
            else:
                path.pop()
                if path:
                    low_links[path[-1][0]] = min(low_links[path[-1][0]], low_links[node])
                if low_links[node] == indexes[node]:
                    _close_component(node, stack, component_of, count)
                    count += 1
    return component_of


def _close_component(node: Node, stack: list[Node], component_of: dict[Node, int], number: int) -> None:
    while True:
        member = stack.pop()
        component_of[member] = number
        if member == node:
            return
