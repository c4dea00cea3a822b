"""The model of diagrams: order numbers, staying and re-entering, kinds of effects, unfolded agents."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from diagram_formats import TEXT_DIAGRAMS

from toolchart.specs.charts import load_chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.diagram import Diagram, build_diagram
from toolchart.states.diagram.effect_kinds import classify_effect, find_effect_kind, list_badges
from toolchart.states.diagram.model import Edge, GuardedRow, Node, can_overlap, number_rows
from toolchart.states.diagram.renderers import find_renderer, unfold_agents
from toolchart.states.effects import EffectDescriptor
from toolchart.states.vocabulary import get_effects


def make_rows(*rows: tuple[str, str | None]) -> list[GuardedRow]:
    """Rows from their events and guards."""
    return [GuardedRow(events=tuple(events.split()), guard=guard) for events, guard in rows]


@pytest.mark.parametrize(
    ("rows", "numbers"),
    [
        ([("replied", None)], [0]),
        ([("replied", None), ("failed", None)], [0, 0]),
        ([("replied", "iteration > 1"), ("replied", None)], [1, 2]),
        ([("replied", "finish_reason == 'stop'"), ("replied", "finish_reason == 'length'")], [0, 0]),
        ([("replied", "finish_reason == 'stop'"), ("replied", "finish_reason == 'stop'")], [1, 2]),
        ([("replied", "retryable"), ("replied", "not retryable")], [0, 0]),
        ([("replied", "attempt < 3"), ("replied", "attempt >= 3")], [0, 0]),
        ([("replied", "attempt < 3"), ("replied", "attempt < 4")], [1, 2]),
        ([("replied", "retryable and attempt > 1"), ("replied", "not (retryable or attempt > 5)")], [0, 0]),
        ([("", "retryable"), ("replied", None), ("", "has_content")], [1, 0, 2]),
        ([("replied", None), ("failed", None), ("*", None)], [1, 2, 3]),
        ([("replied.call_model", None), ("replied", None)], [1, 2]),
        ([("replied.call_model", None), ("replied.other", None)], [0, 0]),
        ([("replied failed", None), ("failed", None), ("elapsed", None)], [1, 2, 0]),
        ([("replied", "("), ("replied", "x")], [1, 2]),
    ],
)
def test_order_numbers_stand_where_order_decides(
    rows: list[tuple[str, str | None]], numbers: list[int]
) -> None:
    """Rows that one event can take, with guards that can be true together, are numbered from 1."""
    assert number_rows(make_rows(*rows)) == numbers


def test_plain_contradictions_are_recognised() -> None:
    """Guards that contradict each other cannot overlap; whatever is not plain counts as an overlap."""
    assert not can_overlap("error_kind == 'a' and retryable", "error_kind == 'b'")
    assert not can_overlap("iteration != 3", "iteration == 3")
    assert can_overlap("iteration > 3", "iteration < 2")  # needs arithmetic: numbered, though it is disjoint
    assert can_overlap("retryable or has_content", "not retryable")


def test_shipped_charts_are_numbered() -> None:
    """In `tool_loop` the rows of `replied` have numbers, and the only row of `cancelled` has none."""
    edges = build_diagram(load_chart("tool_loop")).edges
    rows = [(edge.event, edge.order) for edge in edges if edge.source == "prompting"]
    assert rows[:5] == [("replied", number) for number in range(1, 6)]
    assert rows[5:8] == [("failed", 1), ("failed", 2), ("cancelled", 0)]


@pytest.mark.parametrize(
    ("changes", "stays", "reenters", "label"),
    [
        ({"targets": ()}, True, False, "replied (stays)"),
        ({"targets": ("a",)}, False, True, "replied (re-enters)"),
        ({"targets": ("a",), "internal": True}, True, False, "replied (stays)"),
        ({"targets": ("b",)}, False, False, "replied"),
        ({"targets": ("b",), "order": 2, "guard": "x"}, False, False, "(2) replied [x]"),
    ],
)
def test_staying_differs_from_reentering(
    changes: dict[str, Any], stays: bool, reenters: bool, label: str
) -> None:
    """A transition without a target stays; one to its own state re-enters it, unless it is internal."""
    edge = Edge(source="a", event="replied", row=0, **({"guard": None} | changes))
    assert (edge.stays, edge.reenters, edge.label) == (stays, reenters, label)


def test_shipped_effects_have_their_kinds() -> None:
    """The kind of each effect of Toolchart, read from its row."""
    kinds = {row.name: classify_effect(row) for row in get_effects().values()}
    assert kinds["call_model"] == kinds["call_model_without_tools"] == "model"
    assert kinds["run_tools"] == "tools"
    assert kinds["ask_approval"] == "person"
    assert kinds["wait"] == "timer"
    assert {name for name, kind in kinds.items() if kind == "answer"} == {
        "answer",
        "answer_at_limit",
        "answer_with_error",
    }
    assert kinds["review_calls"] == "other"
    assert find_effect_kind("of_a_package_that_is_not_here") == "other"


@pytest.mark.parametrize(
    ("closing", "kind"),
    [
        (("agent_finished", "failed"), "agent"),
        (("returned", "failed"), "function"),
        (("answered",), "person"),
        (("user_said",), "user"),
        (("stock_found", "failed"), "other"),
    ],
)
def test_a_new_effect_has_its_kind_from_its_row(closing: tuple[str, ...], kind: str) -> None:
    """The events that answer an effect tell who works; nothing else has to be listed."""
    assert classify_effect(EffectDescriptor(name="new", closing=closing)) == kind


def test_badges_of_a_state() -> None:
    """Each effect under `enter` has one badge, also those inside `if`; raised events have none."""
    enter = [
        "call_model",
        {"raise": "told"},
        {"if": {"cond": "x", "then": ["run_tools"], "elif": [{"cond": "y", "then": "wait"}]}},
        {"if": {"cond": "z", "then": {"raise": "told"}, "else": "answer"}},
        "call_model",
    ]
    assert [(badge.label, badge.kind) for badge in list_badges(enter)] == [
        ("call_model", "model"),
        ("run_tools", "tools"),
        ("wait", "timer"),
        ("answer", "answer"),
    ]
    assert list_badges(None) == ()
    assert [badge.kind for badge in list_badges("run_tools")] == ["tools"]


# -- agents inside states ------------------------------------------------------------------------


def unfold_tool_loop() -> Diagram:
    """A chart whose first state runs an agent with the chart `tool_loop`; its effect stands for any."""
    states = {
        "delegating": {
            "initial": True,
            "enter": "call_model",
            "transitions": [{"event": event, "target": "finished"} for event in ("replied", "failed")],
        },
        "finished": {"final": True, "enter": "answer"},
    }
    outer = build_diagram(make_chart({"name": "outer", "states": states}))
    return unfold_agents(outer, {"call_model": load_chart("tool_loop")})


def find_node(diagram: Diagram, name: str) -> Node:
    """A state of the chart itself."""
    return next(node for node in diagram.nodes if node.id == name)


def test_an_unfolded_agent_is_inside_its_state() -> None:
    """The states and transitions of the agent's chart have ids of their own, and keep their names."""
    diagram = unfold_tool_loop()
    node = find_node(diagram, "delegating")
    assert node.sub_agent == "call_model"
    assert (node.children[0].id, node.children[0].title) == ("delegating.prompting", "prompting")
    assert "delegating.finished" in {child.id for child in node.children}
    inner_edges = [edge for edge in diagram.edges if edge.source.startswith("delegating.")]
    assert len(inner_edges) == len(build_diagram(load_chart("tool_loop")).edges)
    assert all(target.startswith("delegating.") for edge in inner_edges for target in edge.targets)
    assert find_node(diagram, "finished").children == ()


def test_every_format_draws_unfolded_agents() -> None:
    """Text formats show the inner states; SVG marks their box, and ids stay unique."""
    diagram = unfold_tool_loop()
    for name in TEXT_DIAGRAMS:
        drawing = find_renderer(name)(diagram)
        assert name == "yaml" or "awaiting_tools" in drawing, name
    root = ElementTree.fromstring(find_renderer("svg")(diagram))
    (box,) = [e for e in root.iter() if e.get("id") == "state-delegating"]
    assert "sub-agent" in box.get("class", "").split()
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert "state-finished" in ids
    assert "state-delegating-2e-finished" in ids
