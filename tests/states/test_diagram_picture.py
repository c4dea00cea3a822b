"""Pictures: SVG that a parser reads, labels that do not overlap, and a layout library that may die."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any
from xml.etree import ElementTree

import pytest
from hostile_texts import HOSTILE_TEXTS, find_foreign_svg
from hypothesis import HealthCheck, given, settings
from random_charts import charts

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart, walk_states
from toolchart.states.diagram import Diagram, Overlay, build_diagram, draw
from toolchart.states.diagram.labels import make_token
from toolchart.states.diagram.picture import png
from toolchart.states.diagram.picture.content import measure_lines
from toolchart.states.diagram.picture.graph import fit_in_order
from toolchart.states.diagram.picture.layout import Layout, compute_layout
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
