"""Diagrams: every format of every chart, read back where something can read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from agents import make_engine, reply_with_calls
from diagram_formats import TEXT_DIAGRAMS
from hypothesis import HealthCheck, given, settings
from random_charts import charts

from toolchart.engine.reading.visited_path import draw_conversation_path
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.specs.flows import list_shipped_flows
from toolchart.specs.loader import load_spec
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.chart.loading import make_chart, parse_chart, walk_states
from toolchart.states.diagram import build_diagram, draw
from toolchart.states.diagram.model import Node, Overlay
from toolchart.states.errors import SpecError

DOC = Path(__file__).resolve().parents[2] / "docs" / "charts.md"
PICTURES = DOC.parent / "pictures"


def ids(nodes: tuple[Node, ...]) -> Iterator[str]:
    """Every state of a diagram."""
    for node in nodes:
        yield node.id
        yield from ids(node.children)


@pytest.mark.parametrize("format_name", TEXT_DIAGRAMS)
@pytest.mark.parametrize("name", list_shipped_charts())
def test_every_state_and_event_is_drawn(name: str, format_name: str) -> None:
    """The card: each text format names every state, event, guard and effect of every shipped chart."""
    chart = load_chart(name)
    text = draw(chart, format_name)
    assert isinstance(text, str)
    unescaped_text = text.replace("''", "'").replace("\n", " ")
    for escape, character in (("&gt;", ">"), ("&lt;", "<"), ("#lt;", "<"), ("&amp;", "&")):
        unescaped_text = unescaped_text.replace(escape, character)
    for state, body, _ in walk_states(chart):
        assert state in text
        for row in body.get("transitions", ()):
            assert row.get("event", "") in text
            guard = str(row.get("cond") or "")
            assert all(word in unescaped_text for word in guard.split())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=charts())
def test_any_chart_can_be_drawn(document: dict[str, Any]) -> None:
    """Nested, parallel, historic, eventless: every text format draws it, and YAML reads back equal."""
    chart = make_chart(document)
    for format_name in TEXT_DIAGRAMS:
        assert draw(chart, format_name)
    assert parse_chart(chart.to_yaml()).digest == chart.digest
    assert set(ids(build_diagram(chart).nodes)) >= {state for state, _, _ in walk_states(chart)}


def conversation() -> tuple[Any, Overlay]:
    """A chart and the path of a conversation through it."""
    run = make_engine(
        [reply_with_calls(("echo", {"text": "a"})), reply_with_calls(("echo", {"text": "b"})), "end"]
    )
    run.run("go", conversation="c")
    return draw_conversation_path(run.store, "c")


def test_the_path_of_a_conversation() -> None:
    """Visits, transitions taken, time and the current state are counted from the log alone."""
    chart, overlay = conversation()
    assert dict(overlay.states) == {"prompting": 3, "awaiting_tools": 2, "executing": 2, "finished": 1}
    assert overlay.current == ("finished",)
    assert overlay.edges[("prompting", 0)] == 2
    assert overlay.edges[("executing", 2)] == 2
    assert set(overlay.seconds) <= set(overlay.states)
    mermaid = draw(chart, "mermaid", overlay)
    assert isinstance(mermaid, str)
    assert "(2x)" in mermaid
    assert "class finished current" in mermaid
    assert "class error" not in mermaid
    for format_name in ("text", "table", "dot"):
        assert draw(chart, format_name, overlay) != draw(chart, format_name)


def test_an_unknown_format_is_one_clear_error() -> None:
    """The error suggests the format that was meant."""
    with pytest.raises(SpecError, match="did you mean 'mermaid'"):
        draw(load_chart("tool_loop"), "mermiad")


def documented() -> str:
    """Return docs/charts.md as it should be; this file, run as a script, writes it."""
    parts = [
        "# The shipped charts\n\nHere you look up a chart that ships: its picture and its table of "
        "transitions.\n[Diagrams](diagrams.md) says how to read them, and "
        "[Writing charts](writing-charts/index.md) how to write your own.\n[Flows](flows.md) shows the "
        "charts that use several models or agents. The page is generated:\n`python "
        "tests/states/test_diagram.py` writes it, and the same file tests that it is up to date.\n"
    ]
    for name in list_shipped_charts():
        chart = load_chart(name)
        parts.append(f"## {name}\n\n![The chart {name}](pictures/{name}.svg)\n\n{draw(chart, 'table')}")
    return "\n".join(parts)


def list_marks(image: bytes) -> list[tuple[str, str, str]]:
    """Ids, classes and texts of a picture in order; places may differ with the layout library's release."""
    elements = ElementTree.fromstring(image).iter()
    return [
        (e.get("id", ""), e.get("class", ""), e.text or "") for e in elements if not e.tag.endswith("style")
    ]


PICTURE_NAMES = (*list_shipped_charts(), *list_shipped_flows())
"""The charts and flows of which docs/pictures has a picture."""


def draw_picture(name: str) -> bytes:
    """The picture of a shipped chart, or of the chart of a shipped flow."""
    is_flow = name in list_shipped_flows()
    image = draw(load_agent_chart(load_spec(name)) if is_flow else load_chart(name), "svg")
    assert isinstance(image, bytes)
    return image


@pytest.mark.parametrize("name", PICTURE_NAMES)
def test_the_documented_pictures_are_the_charts(name: str) -> None:
    """docs/pictures is up to date with the shipped charts and flows."""
    image = draw_picture(name)
    assert list_marks((PICTURES / f"{name}.svg").read_bytes()) == list_marks(image)


def test_the_documented_diagrams_are_the_charts() -> None:
    """docs/charts.md is up to date with the shipped charts."""
    assert DOC.read_text("utf-8") == documented(), (
        "run: PYTHONPATH=tests/support python tests/states/test_diagram.py"
    )


if __name__ == "__main__":
    DOC.write_text(documented(), "utf-8")
    PICTURES.mkdir(exist_ok=True)
    for chart_name in PICTURE_NAMES:
        (PICTURES / f"{chart_name}.svg").write_bytes(draw_picture(chart_name))
