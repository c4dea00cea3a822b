"""One level of a chart as a layered graph: its layers, the order in each, and the coordinates.

The method is Sugiyama's: every vertex gets a layer below those that lead to it, a long edge is cut by
extra vertices, the order in each layer is chosen so that few edges cross, and then come coordinates. A layer
takes no more than the width that the picture has: what does not fit goes into a layer of its own below.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from toolchart.states.errors import SpecError

_SWEEPS = 8
_STRAIGHTENING_SWEEPS = 30
_CHAIN_ROUNDS = 4
_ORDER_ROUNDS = 12
_LAYER_ROUNDS = 6
_MAX_VERTICES = 20_000
"""Of a level, those that cut long edges included: more take long, and nobody can read the picture."""
_GAP, _LINE_GAP = 18.0, 8.0
"""Least distance between neighbours in a layer, in pixels, and between two lines that pass."""
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

    @property
    def is_line(self) -> bool:
        """Whether an edge passes here, and nothing else stands here."""
        return not self.is_box and not self.height

    @property
    def needed_width(self) -> float:
        """Pixels that it takes in a layer, with the space beside it."""
        return self.left + self.right + (_LINE_GAP if self.is_line else _GAP)


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


def arrange(graph: LayeredGraph, limit: float) -> None:
    """Give every vertex its layer, its place in the layer and its coordinates.

    Args:
        limit: the width in pixels that the layers keep to, where no single vertex is wider.

    Raises:
        SpecError: the graph is too large for a picture.
    """
    _assign_layers(graph, limit)
    _cut_edges(graph)
    _order_layers(graph)
    _place_vertices(graph, limit)


# -- layers --------------------------------------------------------------------------------------


def _assign_layers(graph: LayeredGraph, limit: float) -> None:
    """Put each vertex below those that lead to it, and no more into a layer than its width holds."""
    above, below = _find_ends(graph)
    depths = _measure_depths(graph, below)
    missing = [len(above[number]) for number in range(len(graph.vertices))]
    ready = [number for number, count in enumerate(missing) if not count]
    layer = passing = 0
    while ready:
        ready.sort(key=lambda number: (-depths[number], number))
        taken: dict[int, None] = {}
        width = passing * Vertex().needed_width
        for number in ready:
            needed = graph.vertices[number].needed_width
            if not taken or width + needed <= limit:
                taken[number] = None
                width += needed
        for number in taken:
            graph.vertices[number].layer = layer
            passing += len(below[number]) - len(above[number])
        ready = [number for number in ready if number not in taken]
        for other in (other for number in taken for other in below[number]):
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
        layer += 1
    _balance_layers(graph, above, below, limit)


def _find_ends(graph: LayeredGraph) -> tuple[defaultdict[int, list[int]], defaultdict[int, list[int]]]:
    """Of each vertex those that lead to it, and those that it leads to."""
    above: defaultdict[int, list[int]] = defaultdict(list)
    below: defaultdict[int, list[int]] = defaultdict(list)
    for a, b in graph.edges:
        above[b].append(a)
        below[a].append(b)
    return above, below


def _measure_depths(graph: LayeredGraph, below: dict[int, list[int]]) -> list[int]:
    """How many edges the longest way down from each vertex has."""
    depths = [-1] * len(graph.vertices)
    for start in range(len(graph.vertices)):
        stack = [start]
        while stack:
            number = stack[-1]
            open_ends = [other for other in below[number] if depths[other] < 0]
            if open_ends:
                stack += open_ends
            else:
                depths[number] = max((depths[other] + 1 for other in below[number]), default=0)
                stack.pop()
    return depths


def _balance_layers(
    graph: LayeredGraph, above: dict[int, list[int]], below: dict[int, list[int]], limit: float
) -> None:
    """Move each vertex where its edges are shorter, or its layer is narrower, as far as they let it."""
    vertices = graph.vertices
    for _ in range(_LAYER_ROUNDS):
        widths = _measure_layers(graph)
        has_moved = False
        for number in reversed(range(len(vertices))):
            vertex = vertices[number]
            low = max((vertices[other].layer + 1 for other in above[number]), default=vertex.layer)
            high = min((vertices[other].layer - 1 for other in below[number]), default=vertex.layer)
            pull = len(above[number]) - len(below[number])
            size = vertex.needed_width - (Vertex().needed_width if above[number] and below[number] else 0)
            widths[vertex.layer] -= size

            best = min(
                (widths[layer] + size > limit, pull * layer, widths[layer], layer)
                for layer in range(low, high + 1)
            )[-1]
            has_moved = has_moved or best != vertex.layer
            vertex.layer = best
            widths[best] += size
        if not has_moved:
            return


def _measure_layers(graph: LayeredGraph) -> defaultdict[int, float]:
    """What each layer takes, with the edges that pass it."""
    widths: defaultdict[int, float] = defaultdict(float)
    for vertex in graph.vertices:
        widths[vertex.layer] += vertex.needed_width
    for a, b in graph.edges:
        for layer in range(graph.vertices[a].layer + 1, graph.vertices[b].layer):
            widths[layer] += Vertex().needed_width
    return widths


def _cut_edges(graph: LayeredGraph) -> None:
    """Fill the layers, and give each edge over several of them a vertex in each."""
    used = sorted({vertex.layer for vertex in graph.vertices})
    numbers = {layer: index for index, layer in enumerate(used)}
    for vertex in graph.vertices:
        vertex.layer = numbers[vertex.layer]
    spans = [graph.vertices[b].layer - graph.vertices[a].layer - 1 for a, b in graph.edges]
    if len(graph.vertices) + sum(spans) > _MAX_VERTICES:
        raise SpecError(
            "the chart is too large for a picture", hint="draw it as `text`, `table`, `mermaid` or `dot`"
        )
    graph.layers = [[] for _ in used]
    for number, vertex in enumerate(graph.vertices):
        graph.layers[vertex.layer].append(number)
    graph.chains = {}
    for a, b in graph.edges:
        chain = [a]
        for layer in range(graph.vertices[a].layer + 1, graph.vertices[b].layer):
            chain.append(graph.add_vertex(Vertex(layer=layer)))
            graph.layers[layer].append(chain[-1])
        graph.chains[(a, b)] = [*chain, b]


# -- order ---------------------------------------------------------------------------------------


def _order_layers(graph: LayeredGraph) -> None:
    """Order each layer so that few edges cross: by the means of neighbours, then by swaps."""
    above: defaultdict[int, list[int]] = defaultdict(list)
    below: defaultdict[int, list[int]] = defaultdict(list)
    for a, b in (pair for chain in graph.chains.values() for pair in itertools.pairwise(chain)):
        above[b].append(a)
        below[a].append(b)
    best, fewest = [list(layer) for layer in graph.layers], math.inf
    rounds = max(2, min(_ORDER_ROUNDS, 40_000 // (len(graph.vertices) + 1)))
    for start in (graph.layers, [layer[::-1] for layer in graph.layers]):
        layers = [list(layer) for layer in start]
        for _ in range(rounds):
            for index in range(1, len(layers)):
                _sort_by_means(layers[index], layers[index - 1], above)
            for index in reversed(range(len(layers) - 1)):
                _sort_by_means(layers[index], layers[index + 1], below)
            _swap_neighbours(layers, above, below)
            crossings = sum(_count_crossings(a, b, below) for a, b in itertools.pairwise(layers))
            if crossings < fewest:
                best, fewest = [list(layer) for layer in layers], crossings
    graph.layers = best


def _sort_by_means(layer: list[int], fixed: list[int], links: dict[int, list[int]]) -> None:
    """Order a layer by the mean place of each vertex's neighbours in the fixed one."""
    places = {number: index for index, number in enumerate(fixed)}
    own = {number: index * len(fixed) / max(len(layer), 1) for index, number in enumerate(layer)}
    means = {
        number: sum(places[other] for other in links[number]) / len(links[number])
        if links[number]
        else own[number]
        for number in layer
    }
    layer.sort(key=lambda number: (means[number], own[number]))


def _swap_neighbours(
    layers: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]]
) -> None:
    """Swap vertices side by side where fewer edges cross then."""
    places = {number: index for layer in layers for index, number in enumerate(layer)}
    for _ in range(4):
        has_changed = False
        for layer in layers:
            for index, (a, b) in enumerate(itertools.pairwise(list(layer))):
                a = layer[index]
                before = after = 0
                for links in (above, below):
                    for x, y in itertools.product(links[a], links[b]):
                        before += places[x] > places[y]
                        after += places[y] > places[x]
                if after < before:
                    layer[index], layer[index + 1] = b, a
                    places[a], places[b] = index + 1, index
                    has_changed = True
        if not has_changed:
            return


def _count_crossings(upper: list[int], lower: list[int], below: dict[int, list[int]]) -> int:
    """How many pairs of edges between two layers cross."""
    places = {number: index for index, number in enumerate(lower)}
    seen: list[int] = []
    crossings = 0
    for number in upper:
        ends = sorted(places[other] for other in below[number])
        crossings += sum(len(seen) - bisect.bisect_right(seen, end) for end in ends)
        for end in ends:
            bisect.insort(seen, end)
    return crossings


# -- coordinates ---------------------------------------------------------------------------------


def _place_vertices(graph: LayeredGraph, limit: float) -> None:
    """Give every vertex its coordinates: nothing overlaps, the order is kept, and edges are short."""
    neighbours = _find_neighbours(graph)
    rows = [(layer, _list_gaps(graph, layer)) for layer in graph.layers]
    widths = [graph.vertices[row[0]].left + sum(gaps) + graph.vertices[row[-1]].right for row, gaps in rows]
    room = max([limit, *widths])
    for layer in graph.layers:
        x = 0.0
        for number in layer:
            vertex = graph.vertices[number]
            vertex.x = x + vertex.left
            x = vertex.x + vertex.right + _GAP
        for number in layer:
            graph.vertices[number].x -= x / 2
    for _ in range(_SWEEPS):
        for layer, gaps in rows:
            _align_layer(graph, layer, gaps, neighbours, -1, room)
        for layer, gaps in reversed(rows):
            _align_layer(graph, layer, gaps, neighbours, 1, room)
    for _ in range(_STRAIGHTENING_SWEEPS):
        for layer, gaps in rows:
            _align_layer(graph, layer, gaps, neighbours, 0, room)
    for _ in range(_CHAIN_ROUNDS):
        _straighten_chains(graph, room)
    _shift_to_origin(graph)
    _stack_layers(graph)


def _list_gaps(graph: LayeredGraph, layer: Sequence[int]) -> list[float]:
    """The least distances between the anchors of neighbours in a layer."""
    vertices = [graph.vertices[number] for number in layer]
    return [a.right + b.left + _find_gap(a, b) for a, b in itertools.pairwise(vertices)]


def _find_gap(a: Vertex, b: Vertex) -> float:
    """The least distance between two neighbours."""
    return _LINE_GAP if a.is_line and b.is_line else _GAP


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
    graph: LayeredGraph,
    layer: list[int],
    gaps: list[float],
    neighbours: dict[int, list[tuple[int, float]]],
    side: int,
    room: float,
) -> None:
    """Move a layer's vertices towards their neighbours above (-1), below (1) or on both sides (0).

    Args:
        room: how wide the level may be; its middle is at 0.
    """
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
    low = graph.vertices[layer[0]].left - room / 2
    high = room / 2 - graph.vertices[layer[-1]].right - sum(gaps)
    for number, x in zip(layer, fit_in_order(wishes, weights, gaps, low, high), strict=True):
        graph.vertices[number].x = x


def fit_in_order(
    wishes: Sequence[float],
    weights: Sequence[float],
    gaps: Sequence[float],
    low: float = -math.inf,
    high: float = math.inf,
) -> list[float]:
    """Positions nearest to the wishes (least weighted squares) that keep the order and the least gaps.

    Args:
        wishes: from left to right.
        weights: how much each wish counts.
        gaps: between neighbours.
        low: the least position of the first.
        high: the greatest position of the first; the last then lies as far right as it may.

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
    return [min(max(mean, low), high) + offset for mean, offset in zip(means, offsets, strict=False)]


def _straighten_chains(graph: LayeredGraph, room: float) -> None:
    """Turn the stairs of long edges into upright lines, as long as the space between neighbours allows."""
    ranges = _Ranges(graph, room)
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

    def __init__(self, graph: LayeredGraph, room: float) -> None:
        self._graph = graph
        self._room = room
        self._places = {number: index for layer in graph.layers for index, number in enumerate(layer)}

    def find(self, number: int) -> tuple[float, float]:
        """The least and the greatest x of a vertex."""
        vertex, index = self._graph.vertices[number], self._places[number]
        layer = self._graph.layers[vertex.layer]
        low, high = vertex.left - self._room / 2, self._room / 2 - vertex.right
        if index:
            other = self._graph.vertices[layer[index - 1]]
            low = other.x + other.right + _find_gap(other, vertex) + vertex.left
        if index + 1 < len(layer):
            other = self._graph.vertices[layer[index + 1]]
            high = other.x - other.left - _find_gap(vertex, other) - vertex.right
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
    slanted = _count_slanted_edges(graph)
    for index, layer in enumerate(graph.layers):
        if index:
            y += _LAYER_GAP + min(40.0, 3.0 * slanted[index])
        height = max(graph.vertices[number].height for number in layer)
        graph.tops.append(y)
        graph.bottoms.append(y + height)
        for number in layer:
            vertex = graph.vertices[number]
            vertex.top = y + (height - vertex.height) / 2
        y += height


def _count_slanted_edges(graph: LayeredGraph) -> Counter[int]:
    """By layer: the edges into it that come from well to the left or the right."""
    return Counter(
        graph.vertices[b].layer
        for chain in graph.chains.values()
        for a, b in itertools.pairwise(chain)
        if abs(graph.vertices[a].x - graph.vertices[b].x) > 80
    )
