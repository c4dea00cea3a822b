"""Pictures: SVG that a parser reads, labels that do not overlap, and a layout library that may die."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from hostile_texts import HOSTILE_TEXTS, find_foreign_svg
from hypothesis import HealthCheck, given, settings
from random_charts import charts

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart, walk_states
from toolchart.states.diagram import Diagram, Overlay, build_diagram, draw
from toolchart.states.diagram.effect_kinds import EffectKind
from toolchart.states.diagram.labels import make_token
from toolchart.states.diagram.picture import png
from toolchart.states.diagram.picture.content import measure_lines
from toolchart.states.diagram.picture.graph import fit_in_order
from toolchart.states.diagram.picture.layout import Layout, compute_layout
from toolchart.states.diagram.picture.style import COLOURS, PAGE_STYLE, SHAPES, STYLE, make_flat_style
from toolchart.states.errors import SpecError
from toolchart.workers.pool import BoundExceeded, WorkFailed

SVG = "{http://www.w3.org/2000/svg}"

Box = tuple[float, float, float, float]


def draw_svg(chart: Chart, overlay: Overlay | None = None) -> ElementTree.Element:
    """The parsed picture of a chart."""
    image = draw(chart, "svg", overlay)
    assert isinstance(image, bytes)
    return ElementTree.fromstring(image)


def list_classes(root: ElementTree.Element) -> list[list[str]]:
    """The classes of every element that has some."""
    return [element.get("class", "").split() for element in root.iter() if element.get("class")]


def list_boxes(layout: Layout) -> Iterator[Box]:
    """What must not overlap: states without states inside, and labels."""
    for state in layout.states:
        if not state.node.children:
            yield state.x, state.y, state.x + state.width, state.y + state.height
    for label in layout.labels:
        width, height = measure_lines(label.lines)
        yield label.x, label.y, label.x + width, label.y + height


def list_upright_lines(layout: Layout) -> Iterator[tuple[float, float, float]]:
    """The x, upper and lower end of each upright part of an arrow; the curves lie between the layers."""
    for path in layout.paths:
        for (x1, y1), (x2, y2) in itertools.pairwise(path.points):
            if abs(x1 - x2) < 0.5:
                yield x1, min(y1, y2), max(y1, y2)


def check_layout(diagram: Diagram) -> None:
    """Assert that nothing overlaps, lies outside or is missing, and that no arrow crosses one."""
    layout = compute_layout(diagram)
    boxes = list(list_boxes(layout))
    for left, top, right, bottom in boxes:
        assert left >= 0
        assert top >= 0
        assert right <= layout.width
        assert bottom <= layout.height
    for a, b in itertools.combinations(boxes, 2):
        is_apart = a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]
        assert is_apart, (a, b)
    for x, upper, lower in list_upright_lines(layout):
        for left, top, right, bottom in boxes:
            assert not (left + 1 < x < right - 1 and upper < bottom - 1 and top + 1 < lower)
    shown_rows = {label.row for label in layout.labels}
    shown_rows |= {line.edge for state in layout.states for line in state.lines if line.edge is not None}
    assert shown_rows == set(range(len(diagram.edges)))
    assert {row for path in layout.paths for row in path.rows} == {
        index for index, edge in enumerate(diagram.edges) if not edge.stays
    }


@pytest.mark.parametrize("name", list_shipped_charts())
def test_nothing_overlaps_in_the_shipped_charts(name: str) -> None:
    """States and labels of every shipped chart stand apart, and every transition is drawn."""
    check_layout(build_diagram(load_chart(name)))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=charts())
def test_nothing_overlaps_in_any_chart(document: dict[str, Any]) -> None:
    """The same for random charts with nested states, regions, histories and self-transitions."""
    check_layout(build_diagram(make_chart(document)))


@pytest.mark.parametrize("name", list_shipped_charts())
def test_the_picture_keeps_its_contract(name: str) -> None:
    """Each state and transition has its id once and its class, and ids are unique."""
    chart = load_chart(name)
    diagram, root = build_diagram(chart), draw_svg(chart)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for state, _, _ in walk_states(chart):
        assert f"state-{state}" in ids
    classes = list_classes(root)
    for index, edge in enumerate(diagram.edges):
        (group,) = [element for element in root.iter() if element.get("id") == f"transition-{index}"]
        assert (group.get("data-source"), group.get("data-row")) == (edge.source, str(edge.row))
        arrows = [names for names in classes if "arrow" in names and f"transition-{index}" in names]
        assert len(arrows) == (0 if edge.stays else len(edge.targets))
    words = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    for edge in diagram.edges:
        assert all(word in words for word in (edge.event or "").split())


def test_every_initial_mark_points_at_its_state() -> None:
    """Levels number their vertices alike; the marks of one never point where another's states stand."""
    wide = {"enter": "describe_tools_in_text"}
    states = {
        "first": {"states": {"a": wide, "b": {}}, "transitions": [{"event": "replied", "target": "second"}]},
        "second": {"states": {"c": {}, "d": wide}, "transitions": [{"event": "failed", "target": "first"}]},
    }
    layout = compute_layout(build_diagram(make_chart({"states": states})))
    tops = {state.node.id: state for state in layout.states if state.node.initial}
    ends = [path.points[-1] for path in layout.paths if not path.rows]
    assert len(ends) == len(tops) == 3
    for x, y in ends:
        owners = [s for s in tops.values() if s.x < x < s.x + s.width and abs(s.y - y) < 1]
        assert len(owners) == 1


def test_a_picture_is_the_same_every_time() -> None:
    """Two pictures of a chart are equal byte by byte, so they can be kept in version control."""
    chart = load_chart("full")
    assert draw(chart, "svg") == draw(chart, "svg")


def test_staying_and_reentering_look_different() -> None:
    """A row that stays stands inside its state; one that re-enters is an arrow from the state to itself."""
    states = {
        "asking": {
            "initial": True,
            "transitions": [
                {"event": "replied", "target": "asking"},
                {"event": "failed"},
                {"event": "elapsed", "target": "asking", "internal": True},
            ],
        }
    }
    classes = list_classes(draw_svg(make_chart({"states": states})))
    assert ["arrow", "transition-0", "re-entry"] in classes
    assert ["transition", "transition-0", "re-entry"] in classes
    assert ["transition", "transition-1", "stay"] in classes
    assert ["transition", "transition-2", "stay"] in classes


def test_the_path_of_a_conversation_is_marked() -> None:
    """Visited and current states, and the rows that were taken, have their classes and counts."""
    chart = load_chart("tool_loop")
    overlay = Overlay(
        states={"prompting": 2, "finished": 1},
        edges={("prompting", 1): 1},
        seconds={"prompting": 1.5},
        current=("finished",),
    )
    root = draw_svg(chart, overlay)
    marked = {names[1]: names[2:] for names in list_classes(root) if names[0] == "state"}
    assert "visited" in marked["state-prompting"]
    assert "current" in marked["state-finished"]
    assert "visited" not in marked["state-error"]
    assert ["arrow", "transition-1", "visited"] in list_classes(root)
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "2× · 1.5 s" in texts
    assert "(2) replied · 1×" in texts


def test_png() -> None:
    """PNG is the same picture in pixels, without Graphviz."""
    image = draw(load_chart("tool_loop"), "png")
    assert isinstance(image, bytes)
    assert image.startswith(b"\x89PNG")


# -- letters, colours, sizes ---------------------------------------------------------------------


def measure_contrast(first: str, second: str) -> float:
    """The contrast of two colours `#rrggbb`, as WCAG 2 defines it."""
    lights = []
    for colour in (first, second):
        parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(lights) / min(lights)


GROUNDS = ("ground", "panel", "box", "current-box")
"""What text and lines of a picture stand on."""


@pytest.mark.parametrize("is_dark", [False, True])
def test_text_and_lines_can_be_read(is_dark: bool) -> None:
    """In light and in dark: text has a contrast of 4.5, lines and marks have one of 3."""
    colours = {name: pair[is_dark] for name, pair in COLOURS.items()}
    for name in ("text", "quiet"):
        grounds = (*GROUNDS, *(f"heat-{level}" for level in range(1, 6))) if name == "text" else GROUNDS
        for ground in grounds:
            assert measure_contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    for name in ("line", "path", "current", "model", "tools", "person", "agent", "timer"):
        for ground in GROUNDS[:3]:
            assert measure_contrast(colours[name], colours[ground]) >= 3, (name, ground)


def test_every_kind_of_work_has_its_own_mark() -> None:
    """Each kind of effect that is drawn has a shape of its own, so that its colour does not matter."""
    kinds = set(get_args(EffectKind)) - {"answer", "other"}
    assert set(SHAPES) == kinds
    assert len(set(SHAPES.values())) == len(kinds)
    assert all(f".badge-{kind}" in STYLE for kind in kinds)


def test_the_style_fits_every_program() -> None:
    """A program without custom properties gets plain colours, a browser those that its reader prefers, and a
    page those of its own scheme."""
    assert "@media (prefers-color-scheme: dark)" in STYLE
    assert "light-dark(" not in STYLE
    assert "fill: #ffffff; fill: var(--chart-ground);" in STYLE
    assert "prefers-color-scheme" not in PAGE_STYLE
    assert "--chart-ground: light-dark(#ffffff, #101318);" in PAGE_STYLE
    for is_dark in (False, True):
        flat = make_flat_style(is_dark=is_dark)
        assert "var(" not in flat
        assert COLOURS["ground"][is_dark] in flat
    for style in (STYLE, PAGE_STYLE, make_flat_style()):
        assert "$" not in style
        assert not set("<>&") & set(style)  # so it stands in XML as it is
        assert {int(size) for size in re.findall(r"(\d+)px (?:ui|system)", style)} == {11, 13}


@pytest.mark.parametrize("name", list_shipped_charts())
def test_the_shipped_charts_fit_a_page(name: str) -> None:
    """A picture is shown one to one, and is no wider than the column of a pull request."""
    root = draw_svg(load_chart(name))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert int(root.get("width", "0")) <= 880


@pytest.mark.parametrize("name", list_shipped_charts())
def test_no_text_leaves_its_place(name: str) -> None:
    """The texts of a state lie inside its box, no text lies over another one, and all lie in the picture."""
    root = draw_svg(load_chart(name))
    width, height = (float(root.get(side, "0")) for side in ("width", "height"))
    texts = {id(text): measure_drawn(text) for text in root.iter(f"{SVG}text")}
    for a, b in itertools.combinations(texts.values(), 2):
        assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3], (a, b)
    for left, top, right, bottom in texts.values():
        assert left >= 0
        assert top >= 0
        assert right <= width
        assert bottom <= height
    for state in root.iter(f"{SVG}g"):
        if "data-state" in state.attrib:
            box = state.find(f"{SVG}rect")
            assert box is not None
            x, y, wide, high = (float(box.get(key, "0")) for key in ("x", "y", "width", "height"))
            for text in state.iter(f"{SVG}text"):
                left, top, right, bottom = texts[id(text)]
                assert x < left < right < x + wide, text.text
                assert y < top < bottom < y + high, text.text


def measure_drawn(text: ElementTree.Element) -> Box:
    """The rectangle of a text in the widest of the usual fonts: DejaVu Sans Bold and DejaVu Sans Mono."""
    is_name = "name" in text.get("class", "").split()
    size = 13 if is_name else 11
    wide = {"m": 1.042, "w": 0.924, "_": 0.5, "i": 0.343, "l": 0.343, "r": 0.493, "t": 0.478, "f": 0.435}
    ems = sum(wide.get(c, 0.72) for c in text.text or "") if is_name else 0.602 * len(text.text or "")
    x, y = float(text.get("x", "0")), float(text.get("y", "0"))
    return x, y - size * 0.78, x + ems * size, y + size * 0.24


def test_a_long_label_is_cut_and_has_its_whole_as_a_title() -> None:
    """A guard of many lines ends in three dots, and its title has all of it."""
    guard = " and ".join(f"iteration != {number}" for number in range(40))
    rows = [{"event": "replied", "target": "b", "cond": guard}, {"event": "failed", "cond": guard}]
    root = draw_svg(make_chart({"states": {"a": {"transitions": rows}, "b": {"final": True}}}))
    for index in (0, 1):
        (group,) = [group for group in root.iter() if group.get("id") == f"transition-{index}"]
        assert guard in (group.findtext(f"{SVG}title") or "")
        texts = [text.text or "" for text in group.iter(f"{SVG}text")]
        assert len(texts) <= 13
        assert texts[-1].endswith("...")


# -- limits --------------------------------------------------------------------------------------


def test_a_chart_needs_no_package_for_its_picture() -> None:
    """SVG is drawn with a plain installation: no package of an extra is imported, and no process started."""
    program = (
        "import subprocess, sys; from toolchart.specs.charts import load_chart\n"
        "from toolchart.states.diagram import draw\n"
        "subprocess.Popen = None\n"
        "for name in ('resvg_py', 'fast_sugiyama'): sys.modules[name] = None\n"
        "print(len(draw(load_chart('full'), 'svg')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 10_000


def test_a_chart_that_is_too_large_is_an_error_message() -> None:
    """A chart whose picture would take minutes is refused at once, with the formats that can show it."""
    states: dict[str, Any] = {f"s{number}": {} for number in range(300)}
    for number in range(299):
        rows = [{"event": "replied", "target": f"s{number + 1}"}, {"event": "failed", "target": "s299"}]
        states[f"s{number}"] = {"transitions": rows}
    with pytest.raises(SpecError, match="too large for a picture") as caught:
        draw(make_chart({"states": states}), "svg")
    assert "mermaid" in str(caught.value.hint)


def test_an_abort_of_the_library_is_an_error_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process that makes PNG dies, this one goes on and names other formats."""
    image = draw(load_chart("tool_loop"), "svg")
    assert isinstance(image, bytes)
    for limit, says in (
        (BoundExceeded("exit", -6), "by signal 6"),
        (BoundExceeded("memory"), "too much memory"),
        (WorkFailed("ValueError", "no"), "cannot be drawn: "),
        (OSError("no"), "cannot be started"),
    ):
        monkeypatch.setattr(png, "run_bounded", partial(fail, limit))
        with pytest.raises(SpecError, match=says) as caught:
            png.rasterize_svg(image)
        assert "svg" in str(caught.value.hint)


def fail(error: Exception, *_: Any, **__: Any) -> None:
    """Raise this error."""
    raise error


def test_a_hanging_library_is_stopped() -> None:
    """A call that does not end in time is killed."""
    image = draw(load_chart("full"), "svg")
    assert isinstance(image, bytes)
    with pytest.raises(SpecError, match=r"not ready after 0\.001 s"):
        png.rasterize_svg(image, timeout_s=0.001)


def test_without_the_package_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """PNG without its package is one clear error, with a way to get it and a way around it; SVG is drawn."""
    draw(load_chart("tool_loop"), "png")  # starts the host, which needs the path itself
    monkeypatch.setattr(sys, "path", [])
    assert draw(load_chart("tool_loop"), "svg")
    with pytest.raises(SpecError, match="PNG needs a package that is not installed: 'resvg_py'") as caught:
        draw(load_chart("tool_loop"), "png")
    assert "pip install 'resvg-py" in str(caught.value.hint)
    assert "svg" in str(caught.value.hint)


def test_positions_keep_order_and_gaps() -> None:
    """Wishes are met where they can be; where they conflict, the mean is, and gaps are kept."""
    assert fit_in_order([0, 100], [1, 1], [10]) == [0, 100]
    assert fit_in_order([50, 50], [1, 1], [10]) == [45, 55]
    assert fit_in_order([100, 0, 0], [2, 1, 1], [10, 10]) == pytest.approx([42.5, 52.5, 62.5])


# -- hostile names -------------------------------------------------------------------------------


def make_hostile_chart(name: str) -> Chart:
    """A chart that no rule has checked: the name stands wherever a text can stand."""
    target = name if name.split() == [name] else "plain"  # a space separates targets
    row = {"event": name, "target": target, "cond": name, "on": [name, {"raise": name}]}
    inner = {f"{name}2": {"enter": name}, f"{name}3": {"final": True}}
    return Chart(
        name=name,
        document={
            "states": {
                name: {"enter": [name, {"if": {"cond": name}}], "exit": name, "transitions": [row]},
                f"{name}1": {
                    "parallel": True,
                    "states": inner,
                    "transitions": [{"event": name, "target": "plain"}],
                },
                "plain": {
                    "transitions": [{"event": name}, {"target": target}],
                    "history": {f"{name}4": None},
                },
            }
        },
    )


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_hostile_names_stay_text_in_xml(name: str) -> None:
    """An XML parser reads the picture; no name becomes an element or a control character."""
    image = draw(make_hostile_chart(name), "svg")
    assert isinstance(image, bytes)
    text = image.decode()
    root = ElementTree.fromstring(text)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert find_foreign_svg(text) == []
    assert re.search("[\x00-\x08\x0b-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text) is None


MERMAID_LINE = re.compile(
    r"""
      stateDiagram-v2
    | \ +[A-Za-z0-9_]+(:\ [^:;\n]+)?                                  # a state
    | \ +state\ ([A-Za-z0-9_]+|"[^":;]*"\ as\ [A-Za-z0-9_]+)(\ \{)?   # a compound or history state
    | \ +(\}|--)
    | \ +(\[\*\]|[A-Za-z0-9_]+)\ -->\ (\[\*\]|[A-Za-z0-9_]+)(:\ [^:;\n]+)?
    """,
    re.VERBOSE,
)


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_hostile_names_stay_labels_in_mermaid(name: str) -> None:
    """Every line of Mermaid has one of its forms, once entity codes are read as text."""
    text = draw(make_hostile_chart(name), "mermaid")
    assert isinstance(text, str)
    for line in text.splitlines():
        assert MERMAID_LINE.fullmatch(re.sub(r"#\w+;", "?", line).replace("<br/>", "?")), line
        assert "<" not in line.replace("<br/>", "")


DOT_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_hostile_names_stay_strings_in_dot(name: str) -> None:
    """Outside of its quoted strings, DOT consists of words, numbers and signs of its grammar."""
    text = draw(make_hostile_chart(name), "dot")
    assert isinstance(text, str)
    assert re.fullmatch(r"[\w\s{}\[\]=,;>.#-]*", DOT_TEXT.sub("Q", text))


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
@pytest.mark.parametrize("format_name", ["text", "ascii", "table"])
def test_hostile_names_stay_in_their_line(name: str, format_name: str) -> None:
    """No name ends a line, moves the cursor, or turns the direction of the text."""
    text = draw(make_hostile_chart(name), format_name)
    plain_text = draw(make_hostile_chart("state"), format_name)
    assert isinstance(text, str)
    assert isinstance(plain_text, str)
    assert len(text.splitlines()) == len(plain_text.splitlines())
    assert re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text) is None


def test_tokens_are_unique() -> None:
    """Two names never share a token, and a plain name is its own."""
    names = ("a", "a b", "a-b", "a-20-b", "a_b", "", "-", "1", "é", "e\u0301")
    assert len({make_token(name) for name in names}) == len(names)
    assert make_token("awaiting_tools") == "awaiting_tools"
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", make_token(name)) for name in names)
