"""What `diff` says of one change of a small chart, word for word and with the lines of both files."""

from __future__ import annotations

from typing import Any

import pytest

from toolchart.app.chart_reviews import ReviewedChart, format_review, review_charts
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart, parse_chart
from toolchart.states.chart_comparison import compare_charts, suggest_renaming
from toolchart.states.proofs.check import CheckReport

BASE = """\
name: orders
states:
  asking:
    initial: true
    enter: call_model
    transitions:
      - {event: failed, target: broken}
      - {event: replied, target: weighing, cond: "replies == 1"}
      - {event: replied, target: sending, cond: "replies == 2"}
      - {event: replied, target: done}
  weighing:
    enter: call_model
    transitions:
      - {event: replied, target: asking, cond: "replies < 5"}
      - {event: replied, target: done}
      - {event: failed, target: broken}
  sending:
    enter: call_model
    transitions:
      - {event: replied, target: done, cond: "replies > 7"}
      - {event: replied, target: asking}
      - {event: failed, target: done}
  resting:
    states:
      near: {initial: true, enter: call_model, transitions: [{event: replied, target: far}]}
      far: {enter: call_model, transitions: [{event: replied, target: done}]}
    history:
      last: {transitions: [{target: near}]}
    transitions:
      - {event: failed, target: last}
  done: {final: true, enter: answer}
  broken: {final: true, enter: answer_with_error}
"""

MOVED = """\
  weighing:
    enter: call_model
    transitions:
      - {event: failed, target: broken}
"""

CASES: dict[str, tuple[list[tuple[str, str]], str, str]] = {
    "a state more": (
        [("  done: {", "  told: {final: true, enter: answer}\n  done: {")],
        "states\n  + told: final yes, enter answer  (new:31)",
        "states\n  - told  (old:31)",
    ),
    "another effect": (
        [("enter: answer_with_error", "enter: answer")],
        "states\n  ~ broken: enter: answer_with_error → answer  (new:32)",
        "states\n  ~ broken: enter: answer → answer_with_error  (new:32)",
    ),
    "another beginning": (
        [("    initial: true\n", ""), ("  weighing:\n", "  weighing:\n    initial: true\n")],
        "states\n  ~ asking: initial: yes → (none)  (new:3)\n  ~ weighing: initial: (none) → yes  (new:10)",
        "states\n  ~ asking: initial: (none) → yes  (new:3)\n  ~ weighing: initial: yes → (none)  (new:11)",
    ),
    "a deep history": (
        [("last: {", "last: {type: deep, ")],
        "states\n  ~ last: history: shallow → deep  (new:28)",
        "states\n  ~ last: history: deep → shallow  (new:28)",
    ),
    "two states renamed": (
        [("weighing", "judging"), ("sending", "posting")],
        "states\n  ~ weighing is called judging  (new:11)\n  ~ sending is called posting  (new:17)",
        "states\n  ~ judging is called weighing  (new:11)\n  ~ posting is called sending  (new:17)",
    ),
    "the first row gone, and the next one changed": (
        [
            (
                "      - {event: failed, target: broken}\n      - {event: replied, target: w",
                "      - {event: replied, target: w",
            ),
            ("replies == 1", "replies == 3"),
        ],
        """\
rows
  asking
    - failed → broken  (old:7)
    - replied [replies == 1] → weighing  (old:8)
    + replied [replies == 3] → weighing  (new:7)""",
        """\
rows
  asking
    + failed → broken  (new:7)
    - replied [replies == 3] → weighing  (old:7)
    + replied [replies == 1] → weighing  (new:8)""",
    ),
    "a row at another place": (
        [
            ("target: done}\n      - {event: failed, target: broken}\n", "target: done}\n"),
            ("  weighing:\n    enter: call_model\n    transitions:\n", MOVED),
        ],
        "rows\n  weighing\n    ~ failed → broken, moved from row 3 to row 1  (new:14)",
        "rows\n  weighing\n    ~ failed → broken, moved from row 1 to row 3  (new:16)",
    ),
}
"""By name: what is replaced in the chart, what is said of it, and what is said of the way back."""

REPORT = CheckReport(chart="chart", findings=(), state_count=0, table_size=0, worst=None)


def review(old: Chart, new: Chart) -> str:
    """The text about two charts, without proofs and without the line that names both."""
    sides = [
        ReviewedChart(name=name, chart=chart, report=REPORT) for name, chart in (("old", old), ("new", new))
    ]
    return format_review(review_charts(*sides)).partition("\n")[2].strip()


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_named(case: str) -> None:
    """Each change is one entry: what was, what is, and where it stands. So is the way back."""
    pairs, there, back = CASES[case]
    text = BASE
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    old, new = parse_chart(BASE), parse_chart(text)
    assert review(old, new) == there
    assert review(new, old) == back


def test_changed_states_have_the_lines_of_both() -> None:
    """A state that was changed or renamed has its line in both charts; a new one that of the new chart."""
    text = BASE.replace("name: orders\n", "name: orders\n\n").replace("weighing", "judging")
    text = (
        text.replace("enter: answer_with_error", "enter: answer") + "  told: {final: true, enter: answer}\n"
    )
    comparison = compare_charts(parse_chart(BASE), parse_chart(text))
    lines = [(state.change, state.new, state.old_line, state.new_line) for state in comparison.states]
    assert lines == [
        ("renamed", "judging", 11, 12),
        ("changed", "broken", 32, 33),
        ("added", "told", None, 34),
    ]


# -- renamed, or another state -----------------------------------------------------------------------


def make(**states: dict[str, Any]) -> Chart:
    """A chart with these states, and one where it begins."""
    begin = {"initial": True, "enter": "call_model", "transitions": [{"event": "replied", "target": "end"}]}
    return make_chart({"name": "c", "states": {"begin": begin, **states, "end": {"final": True}}})


def leads_to(*targets: str, **body: Any) -> dict[str, Any]:
    """A state with one row for each target."""
    return {**body, "transitions": [{"event": "replied", "target": target} for target in targets]}


def test_states_are_told_apart_by_their_rows() -> None:
    """Renamed states that differ in their rows alone are paired by these, in whatever order they stand."""
    old = make(one=leads_to("begin"), two=leads_to("end"))
    new = make(zwei=leads_to("end"), eins=leads_to("begin"))
    assert compare_charts(old, new).renamed == {"one": "eins", "two": "zwei"}


def test_one_state_is_not_two() -> None:
    """Where two states that are the same went and one came, one was renamed and the other is gone."""
    comparison = compare_charts(make(one=leads_to("end"), two=leads_to("end")), make(three=leads_to("end")))
    assert comparison.renamed == {"one": "three"}
    assert [(state.change, state.old) for state in comparison.states] == [
        ("renamed", "one"),
        ("removed", "two"),
    ]


@pytest.mark.parametrize("rows", ["out", "in"])
def test_a_state_that_has_little_in_common_is_another(rows: str) -> None:
    """A state is the same by another name where at least half of what both have is the same; a row that
    leaves it or leads to it counts as much as what it asks for."""

    def build(name: str, **body: Any) -> Chart:
        if rows == "out":
            return make(**{name: leads_to("end", **body)})
        return make(**{name: body, "other": leads_to(name)})

    assert compare_charts(build("one", enter="wait"), build("two", enter="run_tools")).renamed == {}
    assert compare_charts(build("one", enter="wait"), build("two", enter="wait")).renamed == {"one": "two"}
    half = build("one", enter="wait"), build("two", enter="wait", exit={"raise": "left"})
    assert compare_charts(*half).renamed == {"one": "two"}


def test_a_renaming_is_suggested() -> None:
    """What `migrate` says of a state that is missing: how to name the one that it became, or nothing."""
    old, new = make(one=leads_to("end")), make(two=leads_to("end"))
    assert suggest_renaming(old, new, ["one"]) == "if it was renamed: --rename one=two"
    assert suggest_renaming(old, new, ["begin"]) == ""
    assert suggest_renaming(old, old, ["one"]) == ""


# -- declared effects ----------------------------------------------------------------------------------


EFFECTS = """
name: c
states:
  a: {initial: true, enter: EFFECT, transitions: [{event: replied.EFFECT, target: b}]}
  b: {final: true}
"""


def declare(name: str, prompt: str) -> Chart:
    """A chart that asks for one declared effect."""
    effects = {name: {"call_model": {"prompt": prompt, "tools": []}}}
    return parse_chart(EFFECTS.replace("EFFECT", name), effects=lambda _: effects)


def test_effects_are_compared_key_by_key() -> None:
    """An effect that came or went says what it does, and a changed one which of its keys changed."""
    changed = review(declare("tell", "Be."), declare("tell", "Be brief."))
    assert changed == "effects\n  ~ tell: call_model.prompt: Be. → Be brief."
    other = review(declare("tell", "Be."), declare("say", "Be."))
    assert other.endswith("effects\n  + say: call_model.prompt Be., call_model.tools []\n  - tell")
