"""The layout of a chart: where every state, line of text, arrow and mark stands, in pixels."""

from __future__ import annotations

import math
from collections import defaultdict

import msgspec

from toolchart.states.diagram.model import Diagram, Node
from toolchart.states.diagram.picture.content import (
    PADDING,
    Line,
    list_row_lines,
    list_state_lines,
    measure_head,
    measure_lines,
)
from toolchart.states.diagram.picture.graph import LayeredGraph, arrange, fit_in_order
from toolchart.states.diagram.picture.levels import ROOT, Hierarchy, Level, Route, Strand, build_hierarchy

_MARGIN = 16.0
_WIDTH = 880.0
"""What a picture keeps to where its chart lets it: the column of a code host is about 900 pixels wide."""
_PORT_GAP = 14.0
"""Distance between arrows at one side of a state."""
_LOOP_WIDTH = 26.0

Point = tuple[float, float]


class PlacedState(msgspec.Struct, frozen=True, kw_only=True):
    """A state as a box; one with states inside comes before them."""

    node: Node
    x: float
    y: float
    width: float
    height: float
    head_height: float
    """Height of the part with its name and lines."""
    head_inset: float = PADDING
    """From the left side of the box to its name: arrows that come in from above pass beside it."""
    lines: tuple[Line, ...]
    is_region: bool


class PlacedLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of one transition under each other."""

    row: int
    x: float
    y: float
    lines: tuple[Line, ...]


class PlacedPath(msgspec.Struct, frozen=True, kw_only=True):
    """An arrow: a straight line between points with equal x, else a curve."""

    rows: tuple[int, ...]
    """The transitions that it stands for; empty for the arrow from an initial mark."""
    points: tuple[Point, ...]
    is_loop: bool = False


class Layout(msgspec.Struct, kw_only=True):
    """A whole picture."""

    width: float = 0.0
    height: float = 0.0
    states: list[PlacedState] = msgspec.field(default_factory=list)
    labels: list[PlacedLabel] = msgspec.field(default_factory=list)
    paths: list[PlacedPath] = msgspec.field(default_factory=list)
    marks: list[Point] = msgspec.field(default_factory=list)
    """The centres of the initial marks."""


def compute_layout(diagram: Diagram) -> Layout:
    """The layout of a chart.

    Raises:
        SpecError: the chart is too large for a picture.
    """
    return _LayoutBuilder(diagram, build_hierarchy(diagram)).build()


class _Box(msgspec.Struct, kw_only=True):
    """The size of a state, before it has a place."""

    node: Node
    lines: tuple[Line, ...]
    width: float
    height: float
    head_height: float
    inset: float = 0.0
    """From the left side of the box to the left side of its level."""


class _LayoutBuilder:
    def __init__(self, diagram: Diagram, hierarchy: Hierarchy) -> None:
        self._diagram = diagram
        self._hierarchy = hierarchy
        self._rows = [list_row_lines(diagram, index) for index in range(len(diagram.edges))]
        self._boxes: dict[str, _Box] = {}
        self._origins: dict[str, Point] = {}
        self._ports: dict[tuple[str, int, int], float] = {}
        """By level, strand and vertex: x of the end, in its level."""
        self._layout = Layout()

    def build(self) -> Layout:
        """Measure the levels from the inside out, then place them from the outside in."""
        levels = self._hierarchy.levels
        for level in reversed(levels.values()):
            self._measure_level(level)
            arrange(level.graph, _WIDTH - 2 * _MARGIN - 2 * PADDING * level.depth)
            self._assign_ports(level)
        self._origins[ROOT] = (_MARGIN, _MARGIN)
        for level in levels.values():
            self._place_level(level)
        for route in self._hierarchy.routes:
            points = self._trace_route(route)
            self._layout.paths.append(PlacedPath(rows=route.rows, points=tuple(points)))
        root = levels[ROOT].graph
        self._layout.width = root.right + 2 * _MARGIN
        self._layout.height = root.height + 2 * _MARGIN
        return self._layout

    # -- sizes -------------------------------------------------------------------------------

    def _measure_level(self, level: Level) -> None:
        for child in level.children:
            box = self._boxes[child.id] = self._measure_state(child)
            loops = self._hierarchy.loops.get(child.id, ())
            loop_width, loop_height = measure_lines([line for row in loops for line in self._rows[row]])
            vertex = level.graph.vertices[level.vertices[child.id]]
            vertex.left = box.width / 2
            vertex.right = box.width / 2 + (loop_width + _LOOP_WIDTH if loops else 0)
            vertex.height = max(box.height, loop_height)
        for number, rows in level.labels.items():
            width, height = measure_lines([line for row in rows for line in self._rows[row]])
            vertex = level.graph.vertices[number]
            vertex.right, vertex.height = width + 8, height + 4

    def _measure_state(self, node: Node) -> _Box:
        lines = list_state_lines(self._diagram, node, self._hierarchy.staying.get(node.id, ()))
        width, head_height = measure_head(node, lines)
        if not node.children:
            return _Box(node=node, lines=lines, width=width, height=head_height, head_height=head_height)
        graph = self._hierarchy.levels[node.id].graph
        full_width = max(width, graph.right + 2 * PADDING)
        return _Box(
            node=node,
            lines=lines,
            width=full_width,
            height=head_height + graph.height + 2 * PADDING,
            head_height=head_height,
            inset=(full_width - graph.right) / 2,
        )

    # -- ends of arrows ----------------------------------------------------------------------

    def _list_strands(self, name: str) -> list[Strand]:
        return [s for route in self._hierarchy.routes for s in route.strands if s.level == name]

    def _assign_ports(self, level: Level) -> None:
        """Spread the ends of strands over the sides of the states, each as near to its way as can be."""
        graph = level.graph
        sides: defaultdict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
        chains: dict[int, list[int]] = {}
        for strand in self._list_strands(level.name):
            chain = chains[id(strand)] = _join_strand(graph, strand)
            for vertex, other, side in ((chain[0], chain[1], 1), (chain[-1], chain[-2], -1)):
                inner = strand.inner.get(vertex)
                if inner is not None:
                    x = self._find_border_x(inner) + self._find_left_side(level, vertex)
                    self._ports[(level.name, id(strand), vertex)] = x
                elif graph.vertices[vertex].is_box:
                    sides[(vertex, side)].append((graph.vertices[other].x, id(strand)))
        for mark in level.starts.values():
            (child,) = [b for a, b in graph.edges if a == mark and b != level.floor]
            chain = chains[-mark - 1] = graph.chains[(mark, child)]
            sides[(child, -1)].append((graph.vertices[chain[-2]].x, -mark - 1))
        for (vertex, _), ends in sides.items():
            self._spread_ends(level, vertex, sorted(ends))

    def _spread_ends(self, level: Level, number: int, ends: list[tuple[float, int]]) -> None:
        vertex = level.graph.vertices[number]
        low, high = vertex.x - vertex.left + 10, vertex.x + vertex.left - 10
        gap = min(_PORT_GAP, (high - low) / max(len(ends) - 1, 1))
        places = fit_in_order([x for x, _ in ends], [1.0] * len(ends), [gap] * (len(ends) - 1))
        for index, (x, (_, strand)) in enumerate(zip(places, ends, strict=True)):
            x = max(x, low + index * gap)
            self._ports[(level.name, strand, number)] = min(x, high - (len(ends) - 1 - index) * gap)

    def _find_left_side(self, level: Level, number: int) -> float:
        """Where the level inside the state of this vertex begins."""
        (name,) = [name for name, vertex in level.vertices.items() if vertex == number]
        vertex = level.graph.vertices[number]
        return vertex.x - vertex.left + self._boxes[name].inset

    def _find_border_x(self, strand: Strand) -> float:
        """Where a strand meets the border of its level."""
        level = self._hierarchy.levels[strand.level]
        chain = _join_strand(level.graph, strand)
        return level.graph.vertices[chain[1] if chain[0] == level.ceiling else chain[-2]].x

    # -- places ------------------------------------------------------------------------------

    def _place_level(self, level: Level) -> None:
        left, top = self._origins[level.name]
        is_parallel = level.name != ROOT and self._boxes[level.name].node.parallel
        for child in level.children:
            vertex = level.graph.vertices[level.vertices[child.id]]
            box = self._boxes[child.id]
            x = left + vertex.x - vertex.left
            y = top + vertex.top + (vertex.height - box.height) / 2
            state = PlacedState(
                node=child,
                x=x,
                y=y,
                width=box.width,
                height=box.height,
                head_height=box.head_height,
                head_inset=self._find_head_inset(box),
                lines=box.lines,
                is_region=is_parallel and not child.history,
            )
            self._layout.states.append(state)
            self._origins[child.id] = (x + box.inset, y + box.head_height + PADDING)
            self._place_loops(state)
        for number, rows in level.labels.items():
            vertex = level.graph.vertices[number]
            self._place_labels(rows, left + vertex.x + 6, top + vertex.top + 2)
        for child_name, mark in level.starts.items():
            self._place_start(level, mark, level.vertices[child_name])

    def _find_head_inset(self, box: _Box) -> float:
        """The first place for the name of a state that no incoming arrow crosses, if there is one."""
        level = self._hierarchy.levels.get(box.node.id)
        if level is None or level.ceiling is None:
            return PADDING
        width, _ = measure_head(box.node, box.lines)
        arrows = sorted(
            box.inset + self._find_border_x(strand)
            for strand in self._list_strands(level.name)
            if strand.edges[0][0] == level.ceiling
        )
        for inset in (PADDING, *(x + PADDING for x in arrows)):
            end = inset + width - 2 * PADDING
            if end < box.width and not any(inset - 5 < x < end + 5 for x in arrows):
                return inset
        return PADDING

    def _place_labels(self, rows: tuple[int, ...], x: float, y: float) -> None:
        for row in rows:
            self._layout.labels.append(PlacedLabel(row=row, x=x, y=y, lines=self._rows[row]))
            y += measure_lines(self._rows[row])[1]

    def _place_loops(self, state: PlacedState) -> None:
        rows = self._hierarchy.loops.get(state.node.id, ())
        if not rows:
            return
        right, middle = state.x + state.width, state.y + state.height / 2
        _, height = measure_lines([line for row in rows for line in self._rows[row]])
        points = ((right, middle - 9), (right + _LOOP_WIDTH - 4, middle), (right, middle + 9))
        self._layout.paths.append(PlacedPath(rows=rows, points=points, is_loop=True))
        self._place_labels(rows, right + _LOOP_WIDTH, middle - height / 2)

    def _place_start(self, level: Level, mark: int, child: int) -> None:
        left, top = self._origins[level.name]
        vertex = level.graph.vertices[mark]
        self._layout.marks.append((left + vertex.x, top + vertex.top + 6))
        self._ports[(level.name, -mark - 1, mark)] = vertex.x
        points = self._trace_chain(level, level.graph.chains[(mark, child)], -mark - 1)
        self._layout.paths.append(PlacedPath(rows=(), points=tuple(_drop_needless_points(points))))

    # -- ways --------------------------------------------------------------------------------

    def _trace_route(self, route: Route) -> list[Point]:
        points: list[Point] = []
        for strand in route.strands:
            level = self._hierarchy.levels[strand.level]
            part = self._trace_chain(level, _join_strand(level.graph, strand), id(strand))
            points += reversed(part) if route.leads_up else part
        return _drop_needless_points(points)

    def _trace_chain(self, level: Level, chain: list[int], strand: int) -> list[Point]:
        """The points of a chain from top to bottom; between layers it passes no vertex."""
        graph, (left, top) = level.graph, self._origins[level.name]
        points: list[Point] = []
        for position, number in enumerate(chain):
            vertex = graph.vertices[number]
            x = self._ports.get((level.name, strand, number), vertex.x)
            if number in (level.ceiling, level.floor):
                x = graph.vertices[chain[1] if position == 0 else chain[-2]].x
            y_top, y_bottom = graph.tops[vertex.layer], graph.bottoms[vertex.layer]
            if vertex.is_box:
                box_top, box_bottom = self._find_box_sides(level, number)
                # The first vertex is left at its bottom, and the last one is reached at its top.
                ys = (box_bottom, y_bottom) if position == 0 else (y_top, box_top)
            else:
                ys = (y_top, y_bottom)
            if number == level.floor:
                ys = (y_top, graph.height + PADDING)
            points += [(left + x, top + y) for y in ys]
        return points

    def _find_box_sides(self, level: Level, number: int) -> Point:
        vertex = level.graph.vertices[number]
        names = [name for name, owner in level.vertices.items() if owner == number]
        height = self._boxes[names[0]].height if names else vertex.height
        start = vertex.top + (vertex.height - height) / 2
        return start, start + height


def _join_strand(graph: LayeredGraph, strand: Strand) -> list[int]:
    """All vertices that a strand passes."""
    chain = [strand.edges[0][0]]
    for edge in strand.edges:
        chain += graph.chains[edge][1:]
    return chain


def _drop_needless_points(points: list[Point]) -> list[Point]:
    """The points without those that lie on a straight line between others."""
    path: list[Point] = []
    for point in points:
        if path and math.dist(path[-1], point) < 0.5:
            continue
        if len(path) > 1 and abs(path[-2][0] - path[-1][0]) < 0.5 and abs(path[-1][0] - point[0]) < 0.5:
            path.pop()
        path.append(point)
    return path
