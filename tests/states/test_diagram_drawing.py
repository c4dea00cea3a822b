"""What is drawn of a chart with everything in it: regions, history, effects, guards, the path."""

from __future__ import annotations

import textwrap

import pytest

from toolchart.states.chart.loading import make_chart, parse_chart
from toolchart.states.diagram import TEXT_FORMATS, Overlay, diagram_of, draw
from toolchart.states.diagram.model import Edge, Node

CHART = parse_chart(
    textwrap.dedent(
        """
        name: everything
        states:
          busy:
            initial: true
            enter: call_model
            states:
              asking:
                transitions:
                  - {event: replied failed, target: resting}
              asking_again:
                transitions:
                  - {event: replied, target: resting, on: [{raise: decided}, review_calls]}
                  - target: ended
                    cond: ["retryable or has_content", "iteration > 1"]
                    unless: "attempt > 2"
            history:
              before: {type: deep, transitions: [{target: asking_again}]}
            transitions:
              - {event: cancelled, target: ended}
          resting:
            exit: wait
            transitions:
              - {event: waited, target: before}
              - {event: decided}
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
DIAGRAM = diagram_of(CHART)


def nodes(level: tuple[Node, ...] = DIAGRAM.nodes) -> dict[str, Node]:
    """Every node by name."""
    return {one.id: one for node in level for one in (node, *nodes(node.children).values())}


def edge(source: str, row: int) -> Edge:
    """One edge."""
    return next(one for one in DIAGRAM.edges if (one.source, one.row) == (source, row))


def text(form: str, overlay: Overlay | None = None) -> str:
    """A drawing as text."""
    drawn = draw(CHART, form, overlay)
    assert isinstance(drawn, str)
    return drawn


def test_the_model_says_what_a_state_is() -> None:
    """Initial where marked or first, never among parallel regions; final, parallel and history."""
    found = nodes()
    assert [name for name, node in found.items() if node.initial] == [
        "busy",
        "asking",
        "left_open",
        "right_open",
    ]
    assert [name for name, node in found.items() if node.final] == ["left_done", "ended"]
    assert [name for name, node in found.items() if node.parallel] == ["both"]
    assert {name: node.history for name, node in found.items() if node.history} == {
        "before": "deep"
    }
    assert found["busy"].enter == ("call_model",)
    assert found["resting"].exit == ("wait",)


def test_the_model_says_what_a_row_does() -> None:
    """Guards of a list hold together, with brackets where they need them; effects in their order."""
    both = edge("asking_again", 1)
    assert both.event is None
    assert both.guard == "(retryable or has_content) and iteration > 1 and not (attempt > 2)"
    assert edge("asking_again", 0).effects == ("raise decided", "review_calls")
    assert edge("resting", 1).targets == ()
    assert edge("before", 0).targets == ("asking_again",)


def test_every_format_tells_everything() -> None:
    """States, effects of states and rows, and events stand in each format, nested states too."""
    for form in TEXT_FORMATS:
        drawn = text(form)
        words = ("busy", "left_done", "call_model", "review_calls", "done.state.both", "cancelled")
        assert [word for word in words if word not in drawn] == [], form


def test_ascii_is_the_same_drawing() -> None:
    """The ASCII drawing has no other characters, and says line by line what the other one says."""
    plain, boxes = text("ascii"), text("text")
    assert plain.isascii()
    assert not boxes.isascii()
    bars = str.maketrans(dict.fromkeys("┌┐└┘─│╔╗╚╝═║+-|=", " "))

    def said(drawn: str) -> list[str]:
        return [
            " ".join(line.translate(bars).replace("→", ">").split()) for line in drawn.splitlines()
        ]

    assert said(plain) == said(boxes)


@pytest.mark.parametrize("form", ["text", "ascii"])
def test_boxes_are_closed(form: str) -> None:
    """Every line of a box is as wide as its frame, however deep it is nested."""
    for box in text(form).split("\n\n")[1:]:
        widths = {len(line) for line in box.splitlines()}
        assert len(widths) == 1, box


def test_a_long_label_is_wrapped_in_pictures() -> None:
    """Graphviz gets labels in short lines, whole words each; nothing of the text is lost."""
    drawn = text("dot")
    assert "(retryable or has_content)" in drawn.replace("\\n", " ")
    labels = [part.split('"')[0] for part in drawn.split('label="')[1:]]
    assert max(len(line) for label in labels for line in label.split("\\n")) <= 34


def test_regions_of_a_parallel_state_are_apart() -> None:
    """Mermaid separates regions and starts none of them from the parent; DOT dashes their frame."""
    mermaid, dot = text("mermaid"), text("dot")
    assert "--\n" in mermaid
    assert "[*] --> left\n" not in mermaid
    assert "[*] --> left_open\n" in mermaid
    assert 'style="rounded,dashed"' in dot
    assert "lhead=cluster_busy" in dot


def test_a_path_is_marked_in_every_drawing() -> None:
    """Visits, times and the current state appear; what was not visited is not marked."""
    overlay = Overlay(
        states={"busy": 1, "asking": 1, "resting": 1},
        edges={("asking", 0): 1},
        seconds={"asking": 1.5},
        current=("resting",),
    )
    for form in ("text", "ascii", "mermaid", "dot"):
        assert "(1x)" in text(form, overlay), form
        assert "1.5" in text(form, overlay), form
    assert "● 1x" in text("text", overlay)
    assert text("mermaid", overlay).count("class resting current") == 1
    assert "class ended" not in text("mermaid", overlay)
    assert text("table", overlay).splitlines()[3].endswith("| 0 |")
    assert "(1x)" not in text("text")


def test_a_colon_does_not_end_a_mermaid_label() -> None:
    """Mermaid ends a label at a colon or a semicolon, so that no label has one of its own."""
    for line in text("mermaid").splitlines():
        if "-->" in line:
            assert line.count(": ") <= 1
            assert ";" not in line.replace("&colon;", "")


@pytest.mark.parametrize("word", ["state", "note", "default", "Class", "end"])
def test_words_that_mermaid_keeps_are_no_ids(word: str) -> None:
    """A state may be called as Mermaid's own words are: it gets another id there and keeps its title."""
    chart = make_chart(
        {
            "states": {
                word: {"initial": True, "transitions": [{"event": "replied", "target": "outer"}]},
                "outer": {"states": {f"{word}_inside": {}}},
            }
        }
    )
    drawn = draw(chart, "mermaid", Overlay(states={word: 1, "outer": 0}))
    assert isinstance(drawn, str)
    lines = [line.strip() for line in drawn.splitlines()]
    assert lines[1] == f"{word}__: {word}"
    assert f"[*] --> {word}__" in lines
    assert f"{word}__ --> outer: replied" in lines
    assert f"class {word}__ visited" in lines
    assert "class outer visited" not in lines
