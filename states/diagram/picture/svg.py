"""SVG renderer. Its ids and classes are a contract, so that a page can mark what happens in a conversation.

    <g id="state-NAME" class="state state-NAME initial|final|...  visited current">
    <g id="transition-N" class="transition transition-N stay|re-entry visited">   the label of a transition
    <path class="arrow transition-N transition-M ... visited">                    its arrow
    <g class="badge badge-KIND">                                                  inside a state

In a picture of two charts, states, labels and arrows that differ have the class `added`, `removed` or
`changed`.

NAME is the state's name; a character other than an ASCII letter, digit or `_` becomes `-HEX-`. N counts the
transitions of the diagram in document order, from 0. `data-state` and `data-source` have names as they are,
and `data-row` the number among the rows of the source: what the log's `fired` has.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from toolchart.states.diagram.labels import make_token
from toolchart.states.diagram.model import Diagram
from toolchart.states.diagram.picture.content import (
    LINE_HEIGHT,
    PADDING,
    TITLE_SIZE,
    Line,
    measure_badge,
    shorten_name,
)
from toolchart.states.diagram.picture.layout import (
    Layout,
    PlacedLabel,
    PlacedPath,
    PlacedState,
    Point,
    compute_layout,
)
from toolchart.states.diagram.picture.style import ARROW_HEADS, CHANGE_STYLE, SHAPES, STYLE
from toolchart.states.visible_text import make_visible_line

_ROLE_CLASSES = {"stay": "text stay", "guard": "text guard", "event": "text event"}


def render(diagram: Diagram) -> bytes:
    """The chart as an SVG image.

    Raises:
        SpecError: the chart is too large for a picture.
    """
    layout = compute_layout(diagram)
    root = build_image(diagram.chart.name, layout.width, layout.height)
    if diagram.has_changes:
        SubElement(root, "style").text = CHANGE_STYLE
    _SvgBuilder(diagram, layout).add_all(root)
    return encode_image(root)


def build_image(title: str, width: float, height: float) -> Element:
    """An image without content: its size, title, style and arrow head."""
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}"}
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "toolchart-diagram",
            **size,
            "viewBox": f"0 0 {size['width']} {size['height']}",
            "role": "img",
        },
    )
    SubElement(root, "title").text = make_visible_line(title)
    SubElement(root, "style").text = STYLE
    root.append(_build_arrow_heads())
    SubElement(root, "rect", {**size, "class": "background"})
    return root


def encode_image(root: Element) -> bytes:
    """The image as a document."""
    image: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return image + b"\n"


def _build_arrow_heads() -> Element:
    definitions = Element("defs")
    for name, style_class in ARROW_HEADS.items():
        size = {"markerUnits": "userSpaceOnUse", "markerWidth": "9", "markerHeight": "9"}
        place = {"viewBox": "0 0 10 10", "refX": "9", "refY": "5", "orient": "auto"}
        marker = SubElement(definitions, "marker", {"id": name, **place, **size})
        SubElement(marker, "path", {"d": "M0 0L10 5L0 10z", "class": style_class})
    return definitions


def add_text(parent: Element, text: str, x: float, y: float, style_class: str) -> None:
    """Add one line of text."""
    attributes = {"x": format_number(x), "y": format_number(y), "class": style_class}
    SubElement(parent, "text", attributes).text = text


def add_box(parent: Element, box: tuple[float, float, float, float], style_class: str, radius: float) -> None:
    """Add a rectangle: x, y, width, height."""
    names = ("x", "y", "width", "height")
    sides = {name: format_number(value) for name, value in zip(names, box, strict=True)}
    SubElement(parent, "rect", {**sides, "rx": format_number(radius), "class": style_class})


class _SvgBuilder:
    def __init__(self, diagram: Diagram, layout: Layout) -> None:
        self._diagram = diagram
        self._layout = layout
        self._names = [f"transition-{index}" for index in range(len(diagram.edges))]
        self._labelled_rows: set[int] = set()

    def add_all(self, root: Element) -> None:
        """Boxes of states first, then arrows, those that were taken last, then all labels."""
        states = {state.node.id: self._add_state(root, state) for state in self._layout.states}
        for path in sorted(self._layout.paths, key=lambda path: self._is_taken(path.rows)):
            self._add_path(root, path)
        for x, y in self._layout.marks:
            SubElement(
                root, "circle", {"cx": format_number(x), "cy": format_number(y), "r": "6", "class": "start"}
            )
        for state in self._layout.states:
            if state.node.children:
                self._add_head(SubElement(root, "g", {"class": states[state.node.id]}), state)
        for label in self._layout.labels:
            self._add_label(root, label)

    # -- states ------------------------------------------------------------------------------

    def _add_state(self, root: Element, state: PlacedState) -> str:
        """Add a state; its classes."""
        node, token = state.node, make_token(state.node.id)
        classes = self._list_state_classes(state)
        group = SubElement(
            root, "g", {"id": f"state-{token}", "class": classes, "data-state": make_visible_line(node.id)}
        )
        box = (state.x, state.y, state.width, state.height)
        add_box(group, box, "box", 12 if node.history else 8)
        if node.final:
            add_box(group, (state.x + 3, state.y + 3, state.width - 6, state.height - 6), "inner-box", 6)
        if node.children:
            y = format_number(state.y + state.head_height)
            ends = {
                "x1": format_number(state.x),
                "x2": format_number(state.x + state.width),
                "y1": y,
                "y2": y,
            }
            SubElement(group, "line", {**ends, "class": "divider"})
        else:
            self._add_head(group, state)
        return classes

    def _list_state_classes(self, state: PlacedState) -> str:
        node, overlay = state.node, self._diagram.overlay
        is_current = overlay is not None and node.id in overlay.current
        marks = {
            "initial": node.initial,
            "final": node.final,
            "parallel": node.parallel,
            "compound": bool(node.children),
            "region": state.is_region,
            "history": bool(node.history),
            "sub-agent": bool(node.sub_agent),
            "visited": self._diagram.is_visited(node.id),
            "current": is_current,
            node.change: bool(node.change),
        }
        return " ".join(
            ["state", f"state-{make_token(node.id)}", *(m for m, holds in marks.items() if holds)]
        )

    def _add_head(self, group: Element, state: PlacedState) -> None:
        if state.node.history:
            word = "H*" if state.node.history == "deep" else "H"
            add_text(group, word, state.x + state.width / 2, state.y + 16, "name middle")
            return
        x, y = state.x + state.head_inset, state.y + PADDING + TITLE_SIZE - 2
        name = shorten_name(state.node.title)
        add_text(group, name, x, y, "name")
        y += TITLE_SIZE / 2
        parent, row = group, None
        for line in state.lines:
            if line.edge != row:
                row = line.edge
                parent = group if row is None else self._add_transition(group, row, "stay")
                if row is not None and any(other.is_cut for other in state.lines if other.edge == row):
                    SubElement(parent, "title").text = make_visible_line(self._diagram.edges[row].label)
            y += LINE_HEIGHT
            self._add_line(parent, line, x, y - 4)

    def _add_line(self, group: Element, line: Line, x: float, y: float) -> None:
        if line.badge:
            badge = SubElement(group, "g", {"class": f"badge badge-{line.badge}"})
            SubElement(badge, "title").text = line.badge
            place = f"translate({format_number(x)} {format_number(y - 8.5)})"
            SubElement(badge, "path", {"d": SHAPES[line.badge], "transform": place})
        style_class = _ROLE_CLASSES.get(line.role, f"text {line.role}")
        add_text(group, line.text, x + measure_badge(line.badge), y, style_class)

    # -- transitions -------------------------------------------------------------------------

    def _add_transition(self, parent: Element, row: int, kind: str = "") -> Element:
        edge = self._diagram.edges[row]
        classes = [
            "transition",
            self._names[row],
            kind,
            "visited" if self._is_taken((row,)) else "",
            edge.change,
        ]
        attributes = {
            "id": self._names[row],
            "class": " ".join(filter(None, classes)),
            "data-source": make_visible_line(edge.source),
            "data-row": str(edge.row),
        }
        if row in self._labelled_rows:
            del attributes["id"]  # a transition with two targets has two labels
        self._labelled_rows.add(row)
        return SubElement(parent, "g", attributes)

    def _is_taken(self, rows: Iterable[int]) -> bool:
        return any(self._diagram.count_taken(self._diagram.edges[row]) for row in rows)

    def _add_label(self, root: Element, label: PlacedLabel) -> None:
        edge = self._diagram.edges[label.row]
        group = self._add_transition(root, label.row, "re-entry" if edge.reenters else "")
        if any(line.is_cut for line in label.lines):
            SubElement(group, "title").text = make_visible_line(edge.label)
        for number, line in enumerate(label.lines, 1):
            self._add_line(group, line, label.x, label.y + number * LINE_HEIGHT - 4)

    def _add_path(self, root: Element, path: PlacedPath) -> None:
        classes = ["arrow", *(self._names[row] for row in path.rows)]
        classes += ["re-entry"] if path.is_loop else []
        classes += ["visited"] if self._is_taken(path.rows) else []
        changes = {self._diagram.edges[row].change for row in path.rows}
        classes += list(filter(None, changes)) if len(changes) == 1 else []
        shape = _format_loop(path.points) if path.is_loop else format_path(path.points)
        SubElement(root, "path", {"d": shape, "class": " ".join(classes)})


def format_path(points: Sequence[Point]) -> str:
    """Straight lines between points with equal x, curves that begin and end upright between others."""
    parts = [f"M{_format_points(points[0])}"]
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        if abs(x1 - x2) < 0.5:
            parts.append(f"L{_format_points((x2, y2))}")
        else:
            middle = (y1 + y2) / 2
            parts.append(f"C{_format_points((x1, middle), (x2, middle), (x2, y2))}")
    return "".join(parts)


def _format_loop(points: Sequence[Point]) -> str:
    """A curve from the first to the last of three points; the middle one says how wide it is."""
    start, (x, _), end = points
    return f"M{_format_points(start)}C{_format_points((x, start[1]), (x, end[1]), end)}"


def _format_points(*points: Point) -> str:
    return " ".join(f"{format_number(x)} {format_number(y)}" for x, y in points)


def format_number(value: float) -> str:
    """A number of pixels with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")
