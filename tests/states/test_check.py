"""The checks: silent where a chart is sound, and right about what is not."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.specs.charts import load_chart, shipped
from toolchart.states.chart import make_chart, parse_chart
from toolchart.states.check import Finding, check
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits
from toolchart.states.logic import compile_guard, satisfiable, witness

BROKEN = sorted((Path(__file__).parent / "broken_charts").glob("*.yaml"))


@pytest.mark.parametrize("name", shipped())
def test_shipped_charts_are_clean(name: str) -> None:
    """No false alarm: every shipped chart is proved, and its worst case is a number."""
    report = check(load_chart(name), risky=True)
    assert report.findings == ()
    assert report.worst is not None


def test_the_worst_case_is_the_worst_case() -> None:
    """S1.7: the numbers of the loop follow from its limits."""
    worst = check(load_chart("tool_loop"), limits=Limits(max_iterations=7)).worst
    assert worst is not None
    assert (worst.model_calls, worst.tool_rounds, worst.waits) == (7, 7, 0)
    forced = check(load_chart("forced_answer"), limits=Limits(max_iterations=7)).worst
    assert forced is not None
    assert forced.model_calls == 8
    resilient = check(
        load_chart("resilient"), limits=Limits(max_iterations=1, max_attempts=3)
    ).worst
    assert resilient is not None
    assert resilient.waits >= 2


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_broken_charts_give_their_finding(path: Path) -> None:
    """Each broken chart gives the finding that its first line names, at a line of the file."""
    text = path.read_text("utf-8")
    expected = text.splitlines()[0].removeprefix("# finding: ")
    report = check(parse_chart(text, source=path.name), risky=True)
    found = {finding.kind: finding for finding in report.findings}
    assert expected in found, found
    assert found[expected].line is not None


def test_a_gap_is_shown_as_facts() -> None:
    """A gap comes with a concrete assignment of facts, for instance `finish_reason = 'length'`."""
    report = check(parse_chart(BROKEN_TEXT("gap")))
    (gap,) = [finding for finding in report.findings if finding.kind == "gap"]
    assert gap.event == "replied"
    assert gap.counterexample is not None
    assert gap.counterexample["finish_reason"] != "stop"


def BROKEN_TEXT(name: str) -> str:  # noqa: N802
    """The text of a broken chart."""
    return next(path for path in BROKEN if path.stem == name).read_text("utf-8")


def test_unbounded_may_be_said_aloud() -> None:
    """Invariant 7: an unbounded chart is a finding unless the agent says so."""
    chart = parse_chart(BROKEN_TEXT("unbounded"))
    assert [finding.kind for finding in check(chart).findings] == ["unbounded"]
    assert check(chart, unbounded=True).findings == ()
    assert check(chart, unbounded=True).worst is None


# -- mutations -----------------------------------------------------------------------------------

HARMLESS = {
    (
        "cancelled",
        "dropped",
    ): "a cancellation without a row rests in the log and is resumed from there",
    (
        "decided",
        "dropped",
    ): "a decision that is not taken is refused; a second row of it may still lead on",
}
"""Mutations that leave a sound chart behind, and why."""


def mutants(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every chart with one row dropped: the event, what was done, and the chart."""
    for state, body in document["states"].items():
        for place, row in enumerate(body.get("transitions") or ()):
            changed = copy.deepcopy(document)
            del changed["states"][state]["transitions"][place]
            yield str(row["event"]), "dropped", changed
            if row.get("cond"):
                changed = copy.deepcopy(document)
                del changed["states"][state]["transitions"][place]["cond"]
                yield str(row["event"]), "unguarded", changed


@pytest.mark.parametrize("name", ["tool_loop", "forced_answer", "resilient"])
def test_mutated_charts_are_found_out(name: str) -> None:
    """A row dropped or its guard removed gives a finding, but for rows that the chart can do without.

    A dropped row whose event has a later row without a guard is taken by that one: a sound chart that
    does something else.
    """
    document = load_chart(name).document
    missed = []
    for event, done, changed in mutants(document):
        try:
            findings: tuple[Finding, ...] = check(make_chart(changed), risky=True).findings
        except SpecError:
            continue
        if not findings and (event, done) not in HARMLESS and not _falls_through(document, changed):
            missed.append((event, done))
    assert missed == []


def _falls_through(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether the row that is gone leaves a row without a guard for its event."""
    for state, body in before["states"].items():
        rows, left = body.get("transitions") or [], after["states"][state].get("transitions") or []
        if len(rows) != len(left):
            gone = next(row for row in rows if row not in left)
            return any(row["event"] == gone["event"] and not row.get("cond") for row in left)
    return False


def test_bounds_that_are_removed_are_missed() -> None:
    """Without the row that compares the iteration with its limit, the loop is unbounded."""
    document = copy.deepcopy(load_chart("tool_loop").document)
    del document["states"]["executing"]["transitions"][1]
    kinds = {finding.kind for finding in check(make_chart(document)).findings}
    assert kinds == {"unbounded", "unreachable"}


# -- the logic -----------------------------------------------------------------------------------

ATOMS = ("iteration >= max_iterations", "iteration > 2", "attempt == 0", "retryable", "not tools_sent",
         "finish_reason == 'stop'", "finish_reason != 'length'", "0 < pending_calls < 3",
         "iteration + attempt > 3")  # fmt: skip
expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
        lambda t: f"({t[0]}) {t[1]} ({t[2]})"
    ),
    max_leaves=3,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(expressions, st.booleans(), min_size=1, max_size=3))
def test_logic_agrees_with_evaluation(literals: dict[str, bool]) -> None:
    """What the solver calls impossible has no small witness, and every witness is one."""
    found = witness(literals)
    assert satisfiable(literals) or found is None
    if found is not None:
        assert all(bool(compile_guard(text)(found)) is truth for text, truth in literals.items())


def test_integers_have_nothing_between_them() -> None:
    """`1 < iteration < 2` cannot hold, though it could for real numbers."""
    assert not satisfiable({"1 < iteration < 2": True})
    assert not satisfiable({"finish_reason == 'stop'": True, "finish_reason == 'length'": True})
    assert not satisfiable(
        {"finish_reason == 'tool_calls'": True, "tool_calls == 0": True}, "replied"
    )
