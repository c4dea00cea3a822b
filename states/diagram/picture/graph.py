"""One level of a chart as a layered graph: its vertices, the layers from the library, and their coordinates.

The library (fast-sugiyama) removes nothing and knows no sizes: it gets a graph without cycles and says in
which layer each vertex lies and in what order. It cuts edges over several layers by extra vertices. From that
`place_vertices` computes coordinates for vertices of real sizes.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from toolchart.states.diagram.picture.native import run_native

_SWEEPS = 8
_STRAIGHTENING_SWEEPS = 30
_CHAIN_ROUNDS = 4
_GAP = 18.0
"""Least distance between neighbours in a layer, in pixels."""
_LAYER_GAP = 30.0
"""Least distance between layers."""


class Vertex(msgspec.Struct, kw_only=True):
    """Something that takes space in a level: a state, a label, or a point that an edge passes."""

    left: float = 4.0
    """Pixels from the anchor, where edges pass or end, to the left side."""
    right: float = 4.0
    height: float = 0.0
    is_box: bool = False
    """Whether edges end at it; they pass through any other vertex."""
    layer: int = 0
    x: float = 0.0
    """Of the anchor."""
    top: float = 0.0


class LayeredGraph(msgspec.Struct, kw_only=True):
    """A level: vertices, edges from upper to lower ones, and where they lie."""

    vertices: list[Vertex] = msgspec.field(default_factory=list)
    edges: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """From an upper to a lower vertex, without cycles; no edge occurs twice."""
    chains: dict[tuple[int, int], list[int]] = msgspec.field(default_factory=dict)
    """The vertices that each edge passes, both ends included."""
    layers: list[list[int]] = msgspec.field(default_factory=list)
    """Vertices per layer from top to bottom, each from left to right."""
    tops: list[float] = msgspec.field(default_factory=list)
    bottoms: list[float] = msgspec.field(default_factory=list)
    left: float = 0.0
    right: float = 0.0

    def add_vertex(self, vertex: Vertex) -> int:
        """Add a vertex; its number."""
        self.vertices.append(vertex)
        return len(self.vertices) - 1

    @property
    def height(self) -> float:
        """Pixels from the first layer's top to the last one's bottom."""
        return self.bottoms[-1] if self.bottoms else 0.0


def assign_layers(graphs: Sequence[LayeredGraph]) -> None:
    """Put the vertices of each graph into layers, and cut long edges.

    Raises:
        SpecError: the library failed.
    """
    answers = run_native("compute_layers", {"graphs": [graph.edges for graph in graphs]})
    for graph, components in zip(graphs, answers, strict=True):
        _read_components(graph, components)


def _read_components(graph: LayeredGraph, components: list[dict[str, list[list[float]]]]) -> None:
    real_count = len(graph.vertices)
    graph.chains, graph.layers, alone = {}, [], set(range(real_count))
    parts: list[tuple[int, list[list[int]]]] = []
    for component in components:
        numbers: dict[int, int] = {}
        rows: defaultdict[float, list[tuple[float, int]]] = defaultdict(list)
        for vertex, x, y in component["vertices"]:
            name = int(vertex)
            numbers[name] = name if name < real_count else graph.add_vertex(Vertex())
            rows[y].append((x, numbers[name]))
        parts.append((min(numbers), [[n for _, n in sorted(rows[y])] for y in sorted(rows, reverse=True)]))
        pairs = [(numbers[int(a)], numbers[int(b)]) for a, b in component["edges"]]
        graph.chains |= _join_chains(pairs, real_count)
        alone -= set(numbers)
    parts += [(number, [[number]]) for number in alone]
    for _, layers in sorted(parts):
        for index, layer in enumerate(layers):
            if index == len(graph.layers):
                graph.layers.append([])
            graph.layers[index] += layer
    for index, layer in enumerate(graph.layers):
        for number in layer:
            graph.vertices[number].layer = index


def _join_chains(pairs: Iterable[tuple[int, int]], real_count: int) -> dict[tuple[int, int], list[int]]:
    """The pieces of each edge in order, by its real ends."""
    heads = [pair for pair in pairs if pair[0] < real_count]
    next_vertices = {a: b for a, b in pairs if a >= real_count}
    chains = {}
    for start, vertex in heads:
        chain = [start, vertex]
        while chain[-1] >= real_count:
            chain.append(next_vertices[chain[-1]])
        chains[(start, chain[-1])] = chain
    return chains


# -- coordinates ---------------------------------------------------------------------------------


def place_vertices(graph: LayeredGraph) -> None:
    """Give every vertex its coordinates: nothing overlaps, the order is kept, and edges are short."""
    neighbours = _find_neighbours(graph)
    for layer in graph.layers:
        x = 0.0
        for number in layer:
            vertex = graph.vertices[number]
            vertex.x = x + vertex.left
            x = vertex.x + vertex.right + _GAP
        for number in layer:
            graph.vertices[number].x -= x / 2
    for _ in range(_SWEEPS):
        for layer in graph.layers:
            _align_layer(graph, layer, neighbours, -1)
        for layer in reversed(graph.layers):
            _align_layer(graph, layer, neighbours, 1)
    for _ in range(_STRAIGHTENING_SWEEPS):
        for layer in graph.layers:
            _align_layer(graph, layer, neighbours, 0)
    for _ in range(_CHAIN_ROUNDS):
        _straighten_chains(graph)
    _shift_to_origin(graph)
    _stack_layers(graph)


def _find_neighbours(graph: LayeredGraph) -> dict[int, list[tuple[int, float]]]:
    """Of each vertex the vertices that an edge connects it with, and how strongly they pull."""
    neighbours: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for chain in graph.chains.values():
        for a, b in itertools.pairwise(chain):
            boxes = graph.vertices[a].is_box + graph.vertices[b].is_box
            weight = (8.0, 2.0, 1.0)[boxes]  # long edges are straight before short ones are
            neighbours[a].append((b, weight))
            neighbours[b].append((a, weight))
    return neighbours


def _align_layer(
    graph: LayeredGraph, layer: list[int], neighbours: dict[int, list[tuple[int, float]]], side: int
) -> None:
    """Move a layer's vertices towards their neighbours above (-1), below (1) or on both sides (0)."""
    wishes, weights = [], []
    for number in layer:
        vertex = graph.vertices[number]
        pulls = [
            (graph.vertices[other].x, weight)
            for other, weight in neighbours.get(number, ())
            if not side or (graph.vertices[other].layer - vertex.layer) * side > 0
        ]
        total = sum(weight for _, weight in pulls)
        wishes.append(sum(x * weight for x, weight in pulls) / total if total else vertex.x)
        weights.append(total or 0.1)
    gaps = [graph.vertices[a].right + graph.vertices[b].left + _GAP for a, b in itertools.pairwise(layer)]
    for number, x in zip(layer, fit_in_order(wishes, weights, gaps), strict=True):
        graph.vertices[number].x = x


def fit_in_order(wishes: Sequence[float], weights: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Positions nearest to the wishes (least weighted squares) that keep the order and the least gaps.

    Source: Best and Chakravarti, "Active set algorithms for isotonic regression" (pool adjacent violators).
    """
    blocks: list[list[float]] = []  # mean, weight, number of entries
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    for wish, weight, offset in zip(wishes, weights, offsets, strict=False):
        blocks.append([wish - offset, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, total, count = blocks.pop()
            last = blocks[-1]
            last[0] = (last[0] * last[1] + mean * total) / (last[1] + total)
            last[1] += total
            last[2] += count
    means = [block[0] for block in blocks for _ in range(int(block[2]))]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


def _straighten_chains(graph: LayeredGraph) -> None:
    """Turn the stairs of long edges into upright lines, as long as the space between neighbours allows."""
    ranges = _Ranges(graph)
    for chain in sorted(graph.chains.values(), key=len, reverse=True):
        run: list[int] = []
        low, high = -math.inf, math.inf
        for number in chain:
            if graph.vertices[number].is_box:
                continue
            left, right = ranges.find(number)
            if run and max(low, left) > min(high, right):
                _move_run(graph, run, low, high)
                run, low, high = [], -math.inf, math.inf
                left, right = ranges.find(number)
            run.append(number)
            low, high = max(low, left), min(high, right)
        _move_run(graph, run, low, high)


def _move_run(graph: LayeredGraph, run: list[int], low: float, high: float) -> None:
    if len(run) > 1:
        mean = sum(graph.vertices[number].x for number in run) / len(run)
        for number in run:
            graph.vertices[number].x = min(max(mean, low), high)


class _Ranges:
    """How far each vertex can move between its neighbours in its layer."""

    def __init__(self, graph: LayeredGraph) -> None:
        self._graph = graph
        self._places = {number: index for layer in graph.layers for index, number in enumerate(layer)}

    def find(self, number: int) -> tuple[float, float]:
        """The least and the greatest x of a vertex."""
        vertex, index = self._graph.vertices[number], self._places[number]
        layer = self._graph.layers[vertex.layer]
        low, high = -math.inf, math.inf
        if index:
            other = self._graph.vertices[layer[index - 1]]
            low = other.x + other.right + _GAP + vertex.left
        if index + 1 < len(layer):
            other = self._graph.vertices[layer[index + 1]]
            high = other.x - other.left - _GAP - vertex.right
        return min(low, vertex.x), max(high, vertex.x)


def _shift_to_origin(graph: LayeredGraph) -> None:
    if graph.vertices:
        start = min(vertex.x - vertex.left for vertex in graph.vertices)
        for vertex in graph.vertices:
            vertex.x -= start
        graph.right = max(vertex.x + vertex.right for vertex in graph.vertices)


def _stack_layers(graph: LayeredGraph) -> None:
    """Give layers their heights; many slanted edges between two layers need more distance."""
    graph.tops, graph.bottoms, y = [], [], 0.0
    for index, layer in enumerate(graph.layers):
        if index:
            y += _LAYER_GAP + min(40.0, 3.0 * _count_slanted_edges(graph, index))
        height = max(graph.vertices[number].height for number in layer)
        graph.tops.append(y)
        graph.bottoms.append(y + height)
        for number in layer:
            vertex = graph.vertices[number]
            vertex.top = y + (height - vertex.height) / 2
        y += height


def _count_slanted_edges(graph: LayeredGraph, layer: int) -> int:
    """Edges into a layer that come from well to the left or the right."""
    return sum(
        abs(graph.vertices[a].x - graph.vertices[b].x) > 80
        for chain in graph.chains.values()
        for a, b in itertools.pairwise(chain)
        if graph.vertices[b].layer == layer
    )
