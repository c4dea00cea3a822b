"""What is drawn of a chart with everything in it: regions, history, effects, guards, the path."""

from __future__ import annotations

import re
import textwrap

import pytest
from diagram_formats import TEXT_DIAGRAMS

from toolchart.states.chart.loading import make_chart, parse_chart
from toolchart.states.diagram import Overlay, build_diagram, draw
from toolchart.states.diagram.model import Edge, Node
from toolchart.states.flows.times import describe_time

CHART = parse_chart(
    textwrap.dedent(
        """
        name: everything
        states:
          busy:
            initial: true
            enter: wait
            states:
              asking:
                enter: call_model
                transitions:
                  - {event: replied failed, target: resting}
              asking_again:
                transitions:
                  - {event: replied, target: resting, on: [{raise: told}, answer_at_limit]}
                  - target: ended
                    cond: ["retryable or has_content", "iteration > 1"]
                    unless: "attempt > 2"
            history:
              before: {type: deep, transitions: [{target: asking_again}]}
            transitions:
              - {event: cancelled, target: ended}
          resting:
            exit: describe_tools_in_text
            transitions:
              - {event: elapsed, target: before}
              - {event: told}
              - {event: "*", target: both}
          both:
            parallel: true
            states:
              left:
                states:
                  left_open: {transitions: [{event: replied, target: left_done}]}
                  left_done: {final: true}
              right: {states: {right_open: {}}}
            transitions:
              - {event: done.state.both, target: ended}
          ended: {final: true, enter: answer}
        """
    )
)
DIAGRAM = build_diagram(CHART)


def nodes(level: tuple[Node, ...] = DIAGRAM.nodes) -> dict[str, Node]:
    """Every node by name."""
    return {node.id: node for parent in level for node in (parent, *nodes(parent.children).values())}


def edge(source: str, row: int) -> Edge:
    """One edge."""
    return next(item for item in DIAGRAM.edges if (item.source, item.row) == (source, row))


def text(format_name: str, overlay: Overlay | None = None) -> str:
    """A drawing as text."""
    drawing = draw(CHART, format_name, overlay)
    assert isinstance(drawing, str)
    return drawing


def test_the_model_has_the_kind_of_each_state() -> None:
    """Initial where marked or first, never among parallel regions; final, parallel and history."""
    nodes_by_name = nodes()
    assert [name for name, node in nodes_by_name.items() if node.initial] == [
        "busy",
        "asking",
        "left_open",
        "right_open",
    ]
    assert [name for name, node in nodes_by_name.items() if node.final] == ["left_done", "ended"]
    assert [name for name, node in nodes_by_name.items() if node.parallel] == ["both"]
    assert {name: node.history for name, node in nodes_by_name.items() if node.history} == {"before": "deep"}
    assert nodes_by_name["busy"].enter == ("wait",)
    assert nodes_by_name["resting"].exit == ("describe_tools_in_text",)


def test_the_model_has_guards_and_effects_of_each_row() -> None:
    """The guards of a list become one expression, with brackets where needed; effects keep their order."""
    eventless_edge = edge("asking_again", 1)
    assert eventless_edge.event is None
    assert eventless_edge.guard == "(retryable or has_content) and iteration > 1 and not (attempt > 2)"
    assert edge("asking_again", 0).effects == ("raise told", "answer_at_limit")
    assert edge("resting", 1).targets == ()
    assert edge("before", 0).targets == ("asking_again",)


def test_every_format_contains_everything() -> None:
    """Every format contains all states, effects and events, nested ones included."""
    for format_name in TEXT_DIAGRAMS:
        drawing = text(format_name)
        words = ("busy", "left_done", "call_model", "answer_at_limit", "done.state.both", "cancelled")
        assert [word for word in words if word not in drawing] == [], format_name


def test_ascii_is_the_same_drawing() -> None:
    """The ASCII drawing contains only ASCII and has the same text in every line as the other drawing."""
    plain, boxes = text("ascii"), text("text")
    assert plain.isascii()
    assert not boxes.isascii()
    bars = str.maketrans(dict.fromkeys("┌┐└┘─│╔╗╚╝═║+-|=", " "))

    def normalise_lines(drawing: str) -> list[str]:
        return [" ".join(line.translate(bars).replace("→", ">").split()) for line in drawing.splitlines()]

    assert normalise_lines(plain) == normalise_lines(boxes)


@pytest.mark.parametrize("format_name", ["text", "ascii"])
def test_boxes_are_closed(format_name: str) -> None:
    """Every line of a box is as wide as its frame, however deep it is nested."""
    for box in text(format_name).split("\n\n")[1:]:
        widths = {len(line) for line in box.splitlines()}
        assert len(widths) == 1, box


def test_a_long_label_is_wrapped_in_pictures() -> None:
    """Labels for Graphviz are wrapped at word ends, and no text is lost."""
    drawing = text("dot")
    assert "(retryable or has_content)" in drawing.replace("\\n", " ")
    labels = [part.split('"')[0] for part in drawing.split('label="')[1:]]
    assert max(len(line) for label in labels for line in label.split("\\n")) <= 34


def test_regions_of_a_parallel_state_are_apart() -> None:
    """Mermaid separates regions and starts none of them from the parent; DOT dashes their frame."""
    mermaid, dot = text("mermaid"), text("dot")
    assert "--\n" in mermaid
    assert "[*] --> left\n" not in mermaid
    assert "[*] --> left_open\n" in mermaid
    assert 'style="rounded,dashed"' in dot
    assert 'lhead="cluster_busy"' in dot


def test_a_path_is_marked_in_every_drawing() -> None:
    """Visits, times and the current state appear; what was not visited is not marked."""
    overlay = Overlay(
        states={"busy": 1, "asking": 1, "resting": 1},
        edges={("asking", 0): 1},
        seconds={"asking": 1.5},
        current=("resting",),
    )
    for format_name in ("text", "ascii", "mermaid", "dot"):
        assert "(1x)" in text(format_name, overlay), format_name
        assert "1.5" in text(format_name, overlay), format_name
    assert "● 1x" in text("text", overlay)
    assert text("mermaid", overlay).count("class resting current") == 1
    assert "class ended" not in text("mermaid", overlay)
    assert text("table", overlay).splitlines()[3].endswith("| 0 |")
    assert "(1x)" not in text("text")


def test_a_colon_does_not_end_a_mermaid_label() -> None:
    """No label contains a colon or a semicolon, because Mermaid ends a label there."""
    for line in text("mermaid").splitlines():
        if "-->" in line:
            assert line.count(": ") <= 1
            assert ";" not in re.sub(r"#\w+;", "", line)


@pytest.mark.parametrize("word", ["state", "note", "default", "Class", "end"])
def test_reserved_words_of_mermaid_are_not_ids(word: str) -> None:
    """A state may have a reserved word of Mermaid as its name: it gets another id and keeps its title."""
    chart = make_chart(
        {
            "states": {
                word: {"initial": True, "transitions": [{"event": "replied", "target": "outer"}]},
                "outer": {"states": {f"{word}_inside": {}}},
            }
        }
    )
    drawing = draw(chart, "mermaid", Overlay(states={word: 1, "outer": 0}))
    assert isinstance(drawing, str)
    lines = [line.strip() for line in drawing.splitlines()]
    assert lines[1] == f"{word}__: {word}"
    assert f"[*] --> {word}__" in lines
    assert f"{word}__ --> outer: replied" in lines
    assert f"class {word}__ visited" in lines
    assert "class outer visited" not in lines


TIMED = {
    "name": "timed",
    "states": {
        "asking": {
            "initial": True,
            "enter": "ask",
            "after": {"30d": "told", "17:00": {"target": "told"}, "2027-01-31": {"target": "told"}},
            "transitions": [{"event": "answered cancelled", "target": "pausing"}],
        },
        "pausing": {
            "enter": "pause",
            "transitions": [{"event": "elapsed.pause cancelled", "target": "told"}],
        },
        "told": {"final": True, "enter": "tell"},
    },
    "effects": {
        "ask": {"ask_person": {"question": "Go?"}},
        "pause": {"wait": "1h30m"},
        "tell": {"answer": "done"},
    },
}


@pytest.mark.parametrize("form", [*TEXT_DIAGRAMS, "svg"])
def test_a_timer_is_drawn_by_its_time(form: str) -> None:
    """`after` is drawn as the time that it names, in the state and at its row, and not by the name of the
    timer that stands for it; a declared timer has its name beside the time."""
    if form == "yaml":
        return
    drawing = draw(make_chart(TIMED), form)
    text = (drawing.decode() if isinstance(drawing, bytes) else drawing).replace("#58;", ":")
    text = re.sub(r"<[^>]+>|\\n", " ", text)
    for words in ("after 30 d", "at 17:00", "on 2027-01-31", "after 1 h 30 m", "pause 1 h 30 m"):
        assert words in re.sub(r"\s+", " ", text), words
    assert "timer_asking" not in text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (45, "after 45 s"),
        (0.5, "after 0.5 s"),
        ("90s", "after 90 s"),
        ("1h30m", "after 1 h 30 m"),
        ("1.5d", "after 1.5 d"),
        ("17:00+02:00", "at 17:00+02:00"),
        ("2027-01-31T09:00Z", "on 2027-01-31T09:00Z"),
    ],
)
def test_a_time_in_words(time: str | float, text: str) -> None:
    """A duration is `after`, a time of day `at`, a date `on`, with the units as they were written."""
    assert describe_time(time) == text
