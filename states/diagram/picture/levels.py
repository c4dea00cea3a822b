"""A chart as levels: the states side by side in one state, or in the chart, with the edges between them.

An edge belongs to the innermost level that has both its ends inside. Where an end lies deeper, a strand in
each level between leads it to the border. A strand goes from an upper to a lower vertex; an edge that leads
up is drawn along its strands backwards.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from toolchart.states.diagram.model import Diagram, Edge, Node
from toolchart.states.diagram.picture.graph import LayeredGraph, Vertex

ROOT = ""
"""The level of the chart itself."""


class Level(msgspec.Struct, kw_only=True):
    """The inside of a state, or of the chart."""

    name: str
    children: tuple[Node, ...]
    depth: int = 0
    """How many states it lies in."""
    is_parallel: bool = False
    graph: LayeredGraph = msgspec.field(default_factory=LayeredGraph)
    vertices: dict[str, int] = msgspec.field(default_factory=dict)
    """The vertex of each child."""
    labels: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """The transitions whose labels stand at a vertex."""
    starts: dict[str, int] = msgspec.field(default_factory=dict)
    """The vertex of the initial mark of each initial child."""
    ceiling: int | None = None
    """The vertex above all others, where strands come in from the border."""
    floor: int | None = None


class Strand(msgspec.Struct, kw_only=True):
    """A way downwards inside one level."""

    level: str
    edges: list[tuple[int, int]]
    """Edges of the level's graph, each beginning where the one before ends."""
    inner: dict[int, Strand] = msgspec.field(default_factory=dict)
    """By an end of the strand: the strand inside that state with which it goes on."""


class Route(msgspec.Struct, kw_only=True):
    """The way of transitions from one state to another."""

    rows: tuple[int, ...]
    strands: list[Strand]
    """From the source to the target."""
    leads_up: bool


class Hierarchy(msgspec.Struct, kw_only=True):
    """The levels of a chart, and the routes through them."""

    levels: dict[str, Level]
    """Outer levels before inner ones."""
    routes: list[Route]
    staying: Mapping[str, tuple[int, ...]]
    """By state: transitions that stay in it."""
    loops: Mapping[str, tuple[int, ...]]
    """By state: transitions that leave and enter it again."""


def build_hierarchy(diagram: Diagram) -> Hierarchy:
    """The levels of a chart, without sizes and coordinates."""
    levels: dict[str, Level] = {}
    ways: dict[str, tuple[str, ...]] = {}
    levels[ROOT] = Level(name=ROOT, children=diagram.nodes)
    _add_levels(levels[ROOT], (ROOT,), levels, ways)
    staying, loops, groups = _group_edges(diagram.edges, ways)
    routes = _RouteBuilder(levels, ways, groups).build_routes()
    for level in levels.values():
        _add_starts(level)
        _close_level(level)
    return Hierarchy(levels=levels, routes=routes, staying=staying, loops=loops)


def _add_levels(
    level: Level, way: tuple[str, ...], levels: dict[str, Level], ways: dict[str, tuple[str, ...]]
) -> None:
    for child in level.children:
        level.vertices[child.id] = level.graph.add_vertex(Vertex(is_box=True))
        ways[child.id] = (*way, child.id)
        if child.children:
            inner = Level(
                name=child.id, children=child.children, depth=level.depth + 1, is_parallel=child.parallel
            )
            levels[child.id] = inner
            _add_levels(inner, ways[child.id], levels, ways)


_Groups = dict[tuple[str, str], list[int]]


def _group_edges(
    edges: tuple[Edge, ...], ways: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]], _Groups]:
    """Transitions that stay, those that re-enter, and the others by source and target."""
    staying: defaultdict[str, list[int]] = defaultdict(list)
    loops: defaultdict[str, list[int]] = defaultdict(list)
    groups: _Groups = {}
    for index, edge in enumerate(edges):
        if edge.stays:
            staying[edge.source].append(index)
            continue
        for target in edge.targets:
            if target == edge.source:
                loops[edge.source].append(index)
            elif target in ways and edge.source in ways:
                groups.setdefault((edge.source, target), []).append(index)
    return _freeze(staying), _freeze(loops), groups


def _freeze(lists: Mapping[str, list[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(items) for name, items in lists.items()}


class _RouteBuilder:
    """Builds the routes, and the graphs of the levels with them."""

    def __init__(
        self, levels: Mapping[str, Level], ways: Mapping[str, tuple[str, ...]], groups: _Groups
    ) -> None:
        self._levels = levels
        self._ways = ways
        self._groups = groups

    def build_routes(self) -> list[Route]:
        """One route per pair of states."""
        pairs = {pair: self._find_level(*pair) for pair in self._groups}
        upward_pairs = self._find_upward_pairs(pairs)
        return [self._build_route(pair, depth, pair in upward_pairs) for pair, depth in pairs.items()]

    def _find_level(self, source: str, target: str) -> int:
        """How deep the innermost level lies that has both ends, or that is the inside of one of them."""
        source_way, target_way = self._ways[source], self._ways[target]
        depth = 0
        while depth + 1 < min(len(source_way), len(target_way)) and (
            source_way[depth + 1] == target_way[depth + 1]
        ):
            depth += 1
        return depth

    def _find_upward_pairs(self, pairs: Mapping[tuple[str, str], int]) -> set[tuple[str, str]]:
        """Pairs whose edge must lead up, so that no level has a cycle."""
        links: defaultdict[str, dict[tuple[str, str], list[tuple[str, str]]]] = defaultdict(dict)
        for (source, target), depth in pairs.items():
            source_way, target_way = self._ways[source], self._ways[target]
            if min(len(source_way), len(target_way)) > depth + 1:
                ends = (source_way[depth + 1], target_way[depth + 1])
                links[source_way[depth]].setdefault(ends, []).append((source, target))
        upward_pairs: set[tuple[str, str]] = set()
        for name, pairs_by_link in links.items():
            children = sorted(self._levels[name].children, key=lambda node: not node.initial)
            for back in _find_back_links([node.id for node in children], list(pairs_by_link)):
                upward_pairs.update(pairs_by_link[back])
        return upward_pairs

    def _build_route(self, pair: tuple[str, str], depth: int, leads_up: bool) -> Route:
        source_way, target_way = (self._ways[name] for name in pair)
        main = self._build_main_strand(pair, depth, leads_up)
        leaving = self._build_border_strands(source_way, depth, is_top=leads_up)
        entering = self._build_border_strands(target_way, depth, is_top=not leads_up)
        for way, strands in ((source_way, leaving), (target_way, entering)):
            for offset, (outer, inner) in enumerate(zip([main, *strands], strands, strict=False)):
                container = way[depth + 1 + offset]
                outer.inner[self._levels[way[depth + offset]].vertices[container]] = inner
        return Route(
            rows=tuple(self._groups[pair]), strands=[*reversed(leaving), main, *entering], leads_up=leads_up
        )

    def _build_main_strand(self, pair: tuple[str, str], depth: int, leads_up: bool) -> Strand:
        source_way, target_way = (self._ways[name] for name in pair)
        level = self._levels[source_way[depth]]
        label = level.graph.add_vertex(Vertex())
        level.labels[label] = tuple(self._groups[pair])
        is_outermost_source, is_outermost_target = len(source_way) == depth + 1, len(target_way) == depth + 1
        start = _get_ceiling(level) if is_outermost_source else level.vertices[source_way[depth + 1]]
        end = _get_floor(level) if is_outermost_target else level.vertices[target_way[depth + 1]]
        if leads_up:
            start, end = end, start
        return _add_strand(level, [start, label, end])

    def _build_border_strands(self, way: tuple[str, ...], depth: int, *, is_top: bool) -> list[Strand]:
        """The strands from a state to the level of its edge, the outermost first."""
        strands = []
        for index in range(depth + 1, len(way) - 1):
            level = self._levels[way[index]]
            child = level.vertices[way[index + 1]]
            port = level.graph.add_vertex(Vertex())
            ends = [_get_ceiling(level), port, child] if is_top else [child, port, _get_floor(level)]
            strands.append(_add_strand(level, ends))
        return strands


def _add_strand(level: Level, vertices: list[int]) -> Strand:
    edges = list(itertools.pairwise(vertices))
    level.graph.edges += edges
    return Strand(level=level.name, edges=edges)


def _get_ceiling(level: Level) -> int:
    if level.ceiling is None:
        level.ceiling = level.graph.add_vertex(Vertex())
    return level.ceiling


def _get_floor(level: Level) -> int:
    if level.floor is None:
        level.floor = level.graph.add_vertex(Vertex())
    return level.floor


def _find_back_links(names: list[str], links: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Links that lead back to a name from which they are reached, when names are visited in this order."""
    targets: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in links:
        targets[source].append(target)
    open_names: dict[str, bool] = {}
    """Whether a visited name is on the way to the current one."""
    for start in names:
        if start in open_names:
            continue
        stack = [(start, iter(targets[start]))]
        open_names[start] = True
        while stack:
            name, rest = stack[-1]
            target = next(rest, "")
            if not target:
                open_names[name] = False
                stack.pop()
            elif target not in open_names:
                open_names[target] = True
                stack.append((target, iter(targets[target])))
            elif open_names[target]:
                yield name, target


def _add_starts(level: Level) -> None:
    for child in level.children:
        if child.initial:
            mark = level.starts[child.id] = level.graph.add_vertex(
                Vertex(left=6, right=6, height=12, is_box=True)
            )
            level.graph.edges.append((mark, level.vertices[child.id]))


def _close_level(level: Level) -> None:
    """Put the ceiling above and the floor below all other vertices."""
    graph = level.graph
    others = [n for n in range(len(graph.vertices)) if n not in (level.ceiling, level.floor)]
    ends, heads = {b for _, b in graph.edges}, {a for a, _ in graph.edges}
    if level.is_parallel and level.ceiling is not None:
        # A vertex above each region, as above those that a strand enters, so that all stand side by side.
        for number in (n for n in level.vertices.values() if n not in ends):
            others.append(graph.add_vertex(Vertex()))
            graph.edges.append((others[-1], number))
        ends |= set(level.vertices.values())
    if level.ceiling is not None:
        graph.edges += [(level.ceiling, number) for number in others if number not in ends]
    if level.floor is not None:
        graph.edges += [(number, level.floor) for number in others if number not in heads]
