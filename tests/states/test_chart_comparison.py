"""`compare_charts` and its review: each change is named, with its line; what says the same is no change."""

from __future__ import annotations

import copy
import itertools
import random

import msgspec
import pytest
from chart_mutants import make_mutant
from effort import choose_count
from seeded_chart_changes import Document, SeededChange, list_bodies, make_changes

from toolchart.app.chart_reviews import ReviewedChart, format_markdown, format_review, review_charts
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart, parse_chart
from toolchart.states.chart_comparison import compare_charts
from toolchart.states.diagram.comparison import build_comparison_diagram
from toolchart.states.diagram.model import iterate_nodes
from toolchart.states.diagram.renderers import RENDERERS, find_renderer
from toolchart.states.proofs.check import CheckReport, Finding

CHANGES = list(make_changes(choose_count(short=50, long=500)))


def count_rows(document: Document) -> int:
    """The rows of all states and history states."""
    bodies = [body for _, body in list_bodies(document)]
    holders = [*bodies, *(inner for body in bodies for inner in (body.get("history") or {}).values())]
    return sum(len(body.get("transitions", ())) for body in holders)


REPORT = CheckReport(chart="chart", findings=(), state_count=0, table_size=0, worst=None)


def review(old: Chart, new: Chart) -> str:
    """The text about two charts, without proofs."""
    sides = [
        ReviewedChart(name=name, chart=chart, report=REPORT) for name, chart in (("old", old), ("new", new))
    ]
    return format_review(review_charts(*sides))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.kind}-{change.seed}")
def test_every_change_is_named(change: SeededChange) -> None:
    """One change of a chart is named with its state and with what it says now."""
    text = review(*change.load())
    assert all(part in text for part in change.told), text


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.kind}-{change.seed}")
def test_one_change_is_one_change(change: SeededChange) -> None:
    """One change is no more than one row or state, with the declared effects that it needs; the way back is
    named too."""
    old, new = change.load()
    for comparison in (compare_charts(old, new), compare_charts(new, old)):
        changed_rows = [row for row in comparison.rows if row.state not in {s.old for s in comparison.states}]
        assert len(changed_rows) <= 2 if change.kind == "swap_rows" else len(changed_rows) <= 1
        assert len(comparison.states) <= 1
        assert not comparison.is_equal


@pytest.mark.parametrize("name", list_shipped_charts())
def test_the_same_chart_has_no_difference(name: str) -> None:
    """A chart is equal to itself, written out and read again too."""
    chart = load_chart(name)
    assert compare_charts(chart, chart).is_equal
    again = parse_chart(chart.to_yaml(), effects=lambda _: dict(chart.effects))
    assert compare_charts(chart, again).is_equal
    assert review(chart, again).endswith("no difference\n")


def test_spelling_is_no_difference() -> None:
    """White space in a guard, a list of one, and a flag that is off say nothing."""
    old = load_chart("tool_loop").document
    new = copy.deepcopy(old)
    for _, body in list_bodies(new):
        body["final"] = bool(body.get("final"))
        if isinstance(body.get("enter"), str):
            body["enter"] = [body["enter"]]
        for row in body.get("transitions", ()):
            if isinstance(row.get("cond"), str):
                row["cond"] = [f"{row['cond'].replace(' ', '  ')} "]
    assert compare_charts(make_chart(old), make_chart(new)).is_equal


def test_the_order_of_regions_is_a_difference() -> None:
    """Regions are entered in the order of the chart, so another order is named."""
    regions = {
        name: {"states": {f"{name}_waits": {"initial": True, "enter": effect, "transitions": rows}}}
        for name, effect, rows in (
            ("left", "wait", [{"event": "elapsed.wait", "target": "told"}]),
            ("right", "call_model", [{"event": "replied.call_model", "target": "told"}]),
        )
    }
    both = {"initial": True, "parallel": True, "states": regions}
    old = {"name": "c", "states": {"both": both, "told": {"final": True, "enter": "answer"}}}
    new = copy.deepcopy(old)
    new["states"]["both"]["states"] = dict(reversed(list(regions.items())))
    text = review(make_chart(old), make_chart(new))
    assert "~ both: order of states: left, right → right, left" in text


def test_a_change_inside_an_action_is_shown() -> None:
    """Where the texts of two rows are equal, what differs inside them is written out."""
    old = copy.deepcopy(load_chart("tool_loop").document)
    old["states"]["prompting"]["transitions"][0]["on"] = {
        "if": {"cond": "attempt < 2", "then": {"raise": "one"}}
    }
    new = copy.deepcopy(old)
    new["states"]["prompting"]["transitions"][0]["on"]["if"]["then"] = {"raise": "two"}
    text = review(make_chart(old), make_chart(new))
    assert '"raise":"one"' in text
    assert '"raise":"two"' in text


@pytest.mark.parametrize("form", [name for name in RENDERERS if name not in ("png", "yaml")])
def test_every_format_draws_both_charts(form: str) -> None:
    """A picture of two charts has every state and every row of both, marked as added or removed."""
    for change in CHANGES[:20]:
        old, new = change.load()
        comparison = compare_charts(old, new)
        diagram = build_comparison_diagram(comparison)
        names = [node.id for node in iterate_nodes(diagram.nodes)]
        assert len(names) == len(set(names))
        kept = {comparison.renamed.get(name, name) for name, _ in list_bodies(change.old)}
        assert set(names) == kept | {name for name, _ in list_bodies(change.new)}
        gone = sum(row.old is not None and row.change != "moved" for row in comparison.rows)
        assert sum(edge.change == "removed" for edge in diagram.edges) == gone
        picture = find_renderer(form)(diagram)
        text = picture.decode() if isinstance(picture, bytes) else picture
        assert diagram.has_changes is (len(comparison.states) + len(comparison.rows) > 0)
        for state in comparison.states if form != "table" else ():  # a table has rows alone
            assert f"{'+' if state.old is None else '-' if state.new is None else '~'} " in text


def test_random_charts_can_be_reviewed() -> None:
    """Any two charts have a comparison, a text, Markdown and a picture; a chart and its mutant too."""
    rng = random.Random(7)
    documents = [document for _ in range(choose_count(short=40, long=600)) if (document := make_mutant(rng))]
    for first, second in itertools.pairwise(documents):
        old, new = make_chart(first), make_chart(second)
        comparison = compare_charts(old, new)
        back = compare_charts(new, old)
        assert {row.change for row in comparison.rows} <= {"added", "removed", "changed", "moved"}
        added = [row for row in comparison.rows if row.change == "added"]
        removed = [row for row in comparison.rows if row.change == "removed"]
        counts = [count_rows(chart.document) for chart in (old, new)]
        assert counts[1] - counts[0] == len(added) - len(removed)
        assert back.is_equal == comparison.is_equal
        sides = [ReviewedChart(name="a`|b", chart=chart, report=REPORT) for chart in (old, new)]
        assert format_markdown(review_charts(*sides))
        assert find_renderer("text")(build_comparison_diagram(comparison))


def test_a_renamed_state_with_a_change_is_still_the_same_state() -> None:
    """A state that was renamed, and got one more row, is called renamed, and its row added."""
    old = copy.deepcopy(load_chart("tool_loop").document)
    new = msgspec.json.decode(msgspec.json.encode(old).replace(b'"executing"', b'"working"'))
    new["states"]["working"]["transitions"].append({"event": "elapsed", "target": "error"})
    comparison = compare_charts(make_chart(old), make_chart(new))
    assert dict(comparison.renamed) == {"executing": "working"}
    assert [(row.change, row.state) for row in comparison.rows] == [("added", "working")]


def test_states_that_have_nothing_in_common_are_not_renamed() -> None:
    """A state that went and another that came are one removed and one added."""
    old = copy.deepcopy(load_chart("tool_loop").document)
    new = copy.deepcopy(old)
    del new["states"]["max_iterations"]
    for _, body in list_bodies(new):
        body["transitions"] = [r for r in body.get("transitions", ()) if r.get("target") != "max_iterations"]
    rows = [{"event": "elapsed", "target": "prompting"}]
    new["states"]["pausing"] = {"enter": "wait", "transitions": rows}
    new["states"]["prompting"]["transitions"].insert(0, {"event": "failed", "target": "pausing"})
    comparison = compare_charts(make_chart(old), make_chart(new))
    assert not comparison.renamed
    assert {(state.change, state.new or state.old) for state in comparison.states} == {
        ("added", "pausing"),
        ("removed", "max_iterations"),
    }


CHOOSING = """
name: choosing
states:
  asking:
    initial: true
    enter: choose
    transitions:
      - {event: replied, target: done, cond: "choice.word == 'not  now'"}
      - {event: replied, target: done}
      - {event: failed, target: done}
      - {event: cancelled, target: done}
  done: {final: true, enter: tell}
effects:
  tell: {answer: done}
  choose:
    call_model:
      prompt: Now?
      as: choice
      schema:
        type: object
        required: [word, version]
        properties: {word: {enum: [not now, "not  now"]}, version: {const: 1}, other.word: {}}
"""


def change_choosing(old: str, new: str) -> tuple[Chart, Chart]:
    """The chart, and the same with another text."""
    assert old in CHOOSING
    return parse_chart(CHOOSING), parse_chart(CHOOSING.replace(old, new))


def test_a_word_with_other_white_space_is_another_word() -> None:
    """White space in a word that a guard compares with is no spelling: it is another guard."""
    text = review(*change_choosing("choice.word == 'not  now'", "choice.word  ==  'not now'"))
    assert "- replied [choice.word == 'not  now'] → done" in text
    assert "+ replied [choice.word == 'not now'] → done" in text


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("const: 1", 'const: "1"', 'properties.version.const: 1 → "1"'),
        ("prompt: Now?", 'prompt: "true"', 'call_model.prompt: Now? → "true"'),
        ("other.word: {}", "other: {word: {}}", 'properties."other.word": {} → (none)'),
        ("other.word: {}", 'other.word: {const: "{}"}', 'properties."other.word".const: (none) → "{}"'),
    ],
)
def test_a_text_is_no_number_and_a_dot_no_path(old: str, new: str, line: str) -> None:
    """A value of another type is another value, also where both are written alike; so is a key with a dot."""
    assert line in review(*change_choosing(old, new))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("x" * 200 + " Be kind.", "x" * 200 + " Be rude.", "xxx Be kind. → ...xxxxxxxxxxxxxxxx Be rude."),
        ("One  line.", "One line.", 'call_model.prompt: "One  line." → "One line."'),
        ("x" * 200, "x" * 200 + " ", 'xxx" → ...xxxxxxxxxxxxxxxxxxxx "'),
    ],
)
def test_the_difference_of_two_texts_is_shown(old: str, new: str, line: str) -> None:
    """Long texts that begin alike are shown where they differ, and white space is shown where it differs."""
    assert line in review(*[load_prompt(text) for text in (old, new)])


def load_prompt(prompt: str) -> Chart:
    """The chart that chooses, with a prompt."""
    return parse_chart(CHOOSING.replace("Now?", encode_canonical_text(prompt)))


def test_a_renamed_state_keeps_its_findings() -> None:
    """A finding about a renamed state is no new one: in a label, a path and a timer too, and where the state
    is called like a word of the message."""
    text = CHOOSING.replace("enter: choose", "enter: choose\n    after: {5s: done}")
    old, new = parse_chart(text), parse_chart(text.replace("asking", "the"))
    texts = (
        "from '{0}+beside' the last state is not reached",
        "a turn can go {0} -> done -> {0} for ever: the guard",
        "in '{0}' the event 'elapsed.timer_{0}' never comes",
    )
    sides: list[ReviewedChart] = []
    for name, chart in (("asking", old), ("the", new)):
        findings = tuple(
            Finding(
                kind="gap", state=f"{name}+beside", event=f"elapsed.timer_{name}", message=text.format(name)
            )
            for text in texts
        )
        report = msgspec.structs.replace(REPORT, findings=findings)
        sides.append(ReviewedChart(name=name, chart=chart, report=report))
    for pair in (sides, sides[::-1]):
        result = review_charts(*pair)
        assert (result.new_findings, result.gone_findings) == ((), ())
        assert len(result.kept_findings) == len(texts)
