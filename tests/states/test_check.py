"""The checks: silent where a chart is sound, and right about what is not."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.specs.charts import load_chart, shipped
from toolchart.states.chart.document import walk_states
from toolchart.states.chart.loading import make_chart, parse_chart
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits
from toolchart.states.proofs.check import Finding, check
from toolchart.states.proofs.solver import compile_guard, satisfiable, witness

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
    assert resilient.waiting_s == resilient.waits * Limits().max_wait_s


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

Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A chart with one thing changed, and the rows of the resolved chart that were touched."""

    what: str
    state: str
    touched: Rows
    left: Rows
    """Rows of the same state that were not touched."""
    document: dict[str, Any]


def mutants(document: dict[str, Any]) -> Iterator[Mutant]:
    """One row dropped, its guard dropped, its bound taken away, its target swapped with another's."""
    for state, body in document["states"].items():
        rows = body.get("transitions") or []
        for place, row in enumerate(rows):
            without = rows[:place] + rows[place + 1 :]
            bound = "max_" in str(row.get("cond"))
            yield _mutant("bound" if bound else "dropped", document, state, [row], without, without)
            if row.get("cond"):
                bare = {key: value for key, value in row.items() if key != "cond"}
                changed = [*rows[:place], bare, *rows[place + 1 :]]
                yield _mutant("unguarded", document, state, [row], without, changed)
        for (i, one), (j, other) in combinations(enumerate(rows), 2):
            if one.get("target") != other.get("target"):
                changed = list(rows)
                changed[i], changed[j] = _aimed(one, other), _aimed(other, one)
                left = [row for place, row in enumerate(rows) if place not in (i, j)]
                yield _mutant("swapped", document, state, [one, other], left, changed)


def _mutant(
    what: str, document: dict[str, Any], state: str, touched: Rows, left: Rows, rows: Rows
) -> Mutant:
    changed = copy.deepcopy(document)
    changed["states"][state]["transitions"] = rows
    return Mutant(what=what, state=state, touched=touched, left=left, document=changed)


def _aimed(row: dict[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    aimed = {key: value for key, value in row.items() if key != "target"}
    return aimed if at.get("target") is None else {**aimed, "target": at["target"]}


def _sound_all_the_same(mutant: Mutant, document: dict[str, Any], idle: set[str]) -> str | None:
    """Why a mutant is a sound chart that merely does something else; None where it must be found."""
    events = {row["event"] for row in mutant.touched}
    if "cancelled" in events:
        return "a cancellation that is not taken rests in the log and is resumed from there"
    if {f"{mutant.state}/{event}" for event in events} & idle:
        return "the event never arrives there"
    if mutant.what in ("dropped", "bound") and any(
        row["event"] in events and ("cond" not in row or "max_iterations" in row["cond"])
        for row in mutant.left
    ):
        return "another row of the event takes the case, and ends or bounds it"
    ends = {name for name, body in document["states"].items() if body.get("final")}
    last = {"answering", "concluding"}  # the call that ends the turn, without tools
    if mutant.what == "swapped" and {row.get("target") for row in mutant.touched} <= ends | last:
        return "one end of the turn stands for another"
    if mutant.what == "swapped" and any(
        "budget_spent" in str(r.get("cond")) for r in mutant.touched
    ):
        return "calls are run when the budget is spent, and only then: odd, but it ends"
    return None


@pytest.mark.parametrize("name", shipped())
def test_mutated_charts_are_found_out(name: str) -> None:
    """Drop a row, a guard or a bound, or swap two targets: each gives a finding, or is sound for a reason."""
    chart = load_chart(name)
    idle = {f"{note.state}/{note.event}" for note in check(chart).notes if note.kind == "idle"}
    found, missed = 0, []
    for mutant in mutants(chart.document):
        try:
            findings: tuple[Finding, ...] = check(make_chart(mutant.document), risky=True).findings
        except SpecError:
            continue
        found += bool(findings)
        if not findings and not _sound_all_the_same(mutant, chart.document, idle):
            missed.append((mutant.what, mutant.state, mutant.touched))
    assert missed == []
    assert found


@pytest.mark.parametrize("name", shipped())
def test_a_chart_without_any_iteration_bound_is_unbounded(name: str) -> None:
    """Invariant 7: with every comparison with `max_iterations` taken away, the loop has no end."""
    document = copy.deepcopy(load_chart(name).document)
    for _, body, _ in walk_states(make_chart(document)):
        if rows := body.get("transitions"):
            body["transitions"] = [row for row in rows if "max_" not in str(row.get("cond"))]
    kinds = {finding.kind for finding in check(make_chart(document)).findings}
    assert "unbounded" in kinds


def test_bounds_that_are_removed_are_missed() -> None:
    """Without the row that compares the iteration with its limit, the loop is unbounded."""
    document = copy.deepcopy(load_chart("tool_loop").document)
    del document["states"]["executing"]["transitions"][1]
    kinds = {finding.kind for finding in check(make_chart(document)).findings}
    assert kinds == {"unbounded", "unreachable"}


# -- the logic -----------------------------------------------------------------------------------

ATOMS = (
    "iteration >= max_iterations",
    "iteration > 2",
    "attempt == 0",
    "retryable",
    "not tools_sent",
    "finish_reason == 'stop'",
    "finish_reason != 'length'",
    "0 < pending_calls < 3",
    "iteration + attempt > 3",
)
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
