"""`check`: no findings for sound charts, and the right finding for each fault."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.document import walk_states
from toolchart.states.chart.loading import make_chart, parse_chart
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits
from toolchart.states.proofs.check import Finding, check
from toolchart.states.proofs.solving.solver import compile_guard, find_witness, is_satisfiable

BROKEN = sorted((Path(__file__).parent / "broken_charts").glob("*.yaml"))


@pytest.mark.parametrize("name", list_shipped_charts())
def test_shipped_charts_are_clean(name: str) -> None:
    """Every shipped chart has no findings and a bounded worst case."""
    report = check(load_chart(name), risky=True)
    assert report.findings == ()
    assert report.worst is not None


def test_the_worst_case_is_the_worst_case() -> None:
    """S1.7: the numbers of the loop follow from its limits: seven replies with calls, and before them the six
    pauses that are answered while there are fewer than seven replies, each with all its attempts."""
    worst = check(load_chart("tool_loop"), limits=Limits(max_iterations=7)).worst
    assert worst is not None
    assert (worst.model_calls, worst.tool_rounds, worst.waits) == (13 * 3, 7, 0)
    forced_answer = check(load_chart("forced_answer"), limits=Limits(max_iterations=7)).worst
    assert forced_answer is not None
    assert forced_answer.model_calls == 14 * 3
    resilient = check(load_chart("resilient"), limits=Limits(max_iterations=1, max_attempts=3)).worst
    assert resilient is not None
    assert resilient.waits >= 2
    assert resilient.waiting_s == resilient.waits * Limits().max_wait_s


@pytest.mark.parametrize("name", list_shipped_charts())
def test_shipped_charts_have_no_notes_about_order(name: str) -> None:
    """The rows of shipped charts are "if, else if, else", so no note says that their order matters."""
    kinds = {note.kind for note in check(load_chart(name), risky=True).notes}
    assert "order" not in kinds


def test_rows_that_a_chart_inherits_are_no_note(tmp_path: Path) -> None:
    """A row whose event never arrives is named where it stands in the chart. One of a chart that it extends
    cannot be deleted there, and is not named: the shipped charts have no such note at all."""
    for base in ("approval", "full", "tool_loop"):
        rows = "transitions: [{event: decided, target: error}]"
        text = f"name: mine\nextends: {base}\nstates:\n  executing:\n    {rows}\n"
        path = tmp_path / f"{base}.yaml"
        path.write_text(text, "utf-8")
        notes = [note for note in check(load_chart(path)).notes if note.kind == "idle"]
        assert [(note.state, note.event, note.line) for note in notes] == [("executing", "decided", 5)]
    kinds = {note.kind for name in list_shipped_charts() for note in check(load_chart(name)).notes}
    assert "idle" not in kinds


def list_order_notes(first_guard: str, second_guard: str, *, has_else: bool = False) -> list[Finding]:
    """The notes about order for a state with two guarded rows of the event `replied`."""
    rows: Rows = [
        {"event": "replied", "target": "good", "cond": first_guard},
        {"event": "replied", "target": "bad", "cond": second_guard},
        *([{"event": "replied", "target": "bad"}] if has_else else []),
        {"event": "failed", "target": "bad"},
    ]
    states = {
        "asking": {"initial": True, "enter": "call_model", "transitions": rows},
        "good": {"final": True, "enter": "answer"},
        "bad": {"final": True, "enter": "answer_with_error"},
    }
    report = check(make_chart({"name": "n", "states": states}))
    return [note for note in report.notes if note.kind == "order"]


def test_a_note_names_guarded_rows_that_overlap() -> None:
    """Two separate conditions that can both be true give a note with facts under which both are."""
    (note,) = list_order_notes("has_content", "tool_calls == 0")
    assert note.state == "asking"
    assert note.counterexample is not None
    assert note.counterexample["has_content"] is True
    assert note.counterexample["tool_calls"] == 0
    assert "transition 1 goes before transition 2" in note.message


def test_rows_whose_order_is_plainly_meant_give_no_note() -> None:
    """Disjoint guards, a final row without a guard, and a special case with its fallback give no note."""
    assert list_order_notes("tool_calls == 0", "tool_calls > 0") == []
    assert list_order_notes("has_content", "tool_calls == 0", has_else=True) == []
    assert list_order_notes("tool_calls > 2", "tool_calls > 0") == []
    assert list_order_notes("tool_calls == 0 and has_content", "tool_calls == 0") == []


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_broken_charts_give_their_finding(path: Path) -> None:
    """Each broken chart gives the finding that its first line names, with a line of the file. Each finding
    says what to change, and shows a run where there is one."""
    text = path.read_text("utf-8")
    expected_kind = text.splitlines()[0].removeprefix("# finding: ")
    report = check(parse_chart(text, source=path.name), risky=True)
    findings = {finding.kind: finding for finding in report.findings}
    assert expected_kind in findings, findings
    assert findings[expected_kind].line is not None
    for finding in report.findings:
        assert finding.change
        assert bool(finding.run) is (finding.kind not in ("unreachable", "dead row", "too large"))


def test_a_gap_is_shown_as_facts() -> None:
    """A gap comes with a concrete assignment of facts, for instance `finish_reason = 'length'`."""
    report = check(parse_chart(read_broken_chart("gap")))
    (gap,) = [finding for finding in report.findings if finding.kind == "gap"]
    assert gap.event == "replied"
    assert gap.counterexample is not None
    assert gap.counterexample["finish_reason"] != "stop"


def read_broken_chart(name: str) -> str:
    """The text of a broken chart."""
    return next(path for path in BROKEN if path.stem == name).read_text("utf-8")


def test_nothing_to_run_is_answered_at_once() -> None:
    """A reply without calls may go to `run_tools`: it is answered at once, so the chart is not stuck."""
    report = check(make_chart(NOTHING_TO_RUN), risky=True)
    assert report.findings == ()
    assert report.worst is not None
    assert report.worst.model_calls == report.worst.tool_rounds == Limits().max_iterations


NOTHING_TO_RUN: dict[str, Any] = {
    "name": "nothing_to_run",
    "states": {
        "prompting": {
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "awaiting_tools"},
                {"event": "failed", "target": "finished"},
            ],
        },
        "awaiting_tools": {
            "enter": "review_calls",
            "transitions": [
                {"event": "reviewed", "target": "executing", "cond": "undecided_calls == 0"},
                {"event": "reviewed"},
                {"event": "decided", "target": "executing", "cond": "undecided_calls == 0"},
                {"event": "decided"},
            ],
        },
        "executing": {
            "enter": "run_tools",
            "transitions": [
                {"event": "tool_finished", "cond": "pending_calls > 0"},
                {"event": "tool_finished", "target": "finished", "cond": "iteration >= max_iterations"},
                {"event": "tool_finished", "target": "prompting"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
    },
}


def test_an_approval_reviews_nothing() -> None:
    """Calls that nobody reviewed stay so where a state asks for approval: nothing is there to decide."""
    document = copy.deepcopy(load_chart("approval").document)
    document["states"]["prompting"]["transitions"][0]["target"] = "awaiting_approval"
    report = check(make_chart(document), risky=True)
    assert ("unreviewed", "awaiting_approval") in [
        (finding.kind, finding.state) for finding in report.findings
    ]


def test_nothing_is_proved_from_a_stuck_state_on() -> None:
    """The core ends a stuck turn, so that no row for a message or a cancellation can fire there."""
    document = copy.deepcopy(NOTHING_TO_RUN)
    document["states"]["prompting"]["transitions"][1]["target"] = "lost"
    document["states"]["lost"] = {"transitions": [{"event": "user_said cancelled", "target": "after"}]}
    document["states"]["after"] = {"final": True, "enter": "answer"}
    report = check(make_chart(document), risky=True)
    found = [(finding.kind, finding.state) for finding in report.findings]
    assert found == [("unreachable", "after"), ("stuck", "lost")]


def test_what_a_state_asked_for_ends_when_it_is_left() -> None:
    """A row that leaves `executing` while calls run cancels them: their outcomes need no row any more, and
    the finding says that tools are left running."""
    document = copy.deepcopy(NOTHING_TO_RUN)
    document["states"]["executing"]["transitions"] = [
        {"event": "tool_finished", "target": "finished", "cond": "iteration >= max_iterations"},
        {"event": "tool_finished", "target": "concluding"},
    ]
    document["states"]["concluding"] = {
        "enter": "call_model_without_tools",
        "transitions": [{"event": "replied failed", "target": "finished"}],
    }
    (finding,) = check(make_chart(document), risky=True).findings
    assert finding.kind == "tools left running"


def test_rows_may_name_the_effect_that_is_answered() -> None:
    """Rows of two regions that name their effects are found to take every answer."""
    document = {
        "name": "regions",
        "states": {
            "both": {
                "initial": True,
                "parallel": True,
                "states": {
                    "talk": {
                        "states": {
                            "asking": {
                                "initial": True,
                                "enter": "call_model",
                                "transitions": [{"event": "replied.call_model failed", "target": "said"}],
                            },
                            "said": {"final": True},
                        }
                    },
                    "clock": {
                        "states": {
                            "ticking": {
                                "initial": True,
                                "enter": "wait",
                                "transitions": [{"event": "elapsed.wait", "target": "rung"}],
                            },
                            "rung": {"final": True},
                        }
                    },
                },
                "transitions": [{"event": "done.state.both", "target": "finished"}],
            },
            "finished": {"final": True, "enter": "answer"},
        },
    }
    report = check(make_chart(document))
    assert report.findings == ()
    assert {note.kind for note in report.notes} == {"not cancelled", "not heard"}


@pytest.mark.parametrize("target", [None, "prompting"])
def test_rows_for_messages_of_the_user_are_no_noise(target: str | None) -> None:
    """A row for `user_said`, with or without a target, gives no finding and no note, and keeps the bounds."""
    plain = load_chart("tool_loop")
    document = copy.deepcopy(plain.document)
    for body in document["states"].values():
        if "transitions" in body:
            rows = [row for row in body["transitions"] if row["event"] != "user_said"]
            body["transitions"] = [*rows, {"event": "user_said", **({"target": target} if target else {})}]
    report, plain_report = check(make_chart(document)), check(plain)
    assert report.findings == ()
    assert report.notes == plain_report.notes
    assert report.worst == plain_report.worst


def test_an_agent_may_declare_its_chart_unbounded() -> None:
    """Invariant 8: an unbounded chart is a finding unless the agent spec declares it."""
    chart = parse_chart(read_broken_chart("unbounded"))
    assert [finding.kind for finding in check(chart).findings] == ["unbounded"]
    assert check(chart, unbounded=True).findings == ()
    assert check(chart, unbounded=True).worst is None


# -- mutations -----------------------------------------------------------------------------------

Rows = list[dict[str, Any]]


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A chart with one mutation, and the rows that it changed."""

    mutation: str
    state: str
    changed_rows: Rows
    other_rows: Rows
    """Rows of the same state that were not changed."""
    document: dict[str, Any]


def make_mutants(document: dict[str, Any]) -> Iterator[Mutant]:
    """Mutants of a chart: a row removed, its guard or bound removed, or two targets swapped."""
    for state, body in document["states"].items():
        rows = body.get("transitions") or []
        for index, row in enumerate(rows):
            without = rows[:index] + rows[index + 1 :]
            is_bound = "max_" in str(row.get("cond"))
            yield _build_mutant("bound" if is_bound else "dropped", document, state, [row], without, without)
            if row.get("cond"):
                unguarded_row = {key: value for key, value in row.items() if key != "cond"}
                mutated_rows = [*rows[:index], unguarded_row, *rows[index + 1 :]]
                yield _build_mutant("unguarded", document, state, [row], without, mutated_rows)
        for (i, first_row), (j, second_row) in combinations(enumerate(rows), 2):
            if first_row.get("target") != second_row.get("target"):
                mutated_rows = list(rows)
                mutated_rows[i], mutated_rows[j] = (
                    _retarget_row(first_row, second_row),
                    _retarget_row(second_row, first_row),
                )
                other_rows = [row for index, row in enumerate(rows) if index not in (i, j)]
                yield _build_mutant(
                    "swapped", document, state, [first_row, second_row], other_rows, mutated_rows
                )


def _build_mutant(
    mutation: str, document: dict[str, Any], state: str, changed_rows: Rows, other_rows: Rows, rows: Rows
) -> Mutant:
    mutated_rows = copy.deepcopy(document)
    mutated_rows["states"][state]["transitions"] = rows
    return Mutant(
        mutation=mutation,
        state=state,
        changed_rows=changed_rows,
        other_rows=other_rows,
        document=mutated_rows,
    )


def _retarget_row(row: dict[str, Any], at: dict[str, Any]) -> dict[str, Any]:
    row_without_target = {key: value for key, value in row.items() if key != "target"}
    return row_without_target if at.get("target") is None else {**row_without_target, "target": at["target"]}


def _find_reason_for_soundness(mutant: Mutant, document: dict[str, Any], idle: set[str]) -> str | None:
    """Why a mutant is still a sound chart; None where `check` must report a finding."""
    events = {row.get("event") for row in mutant.changed_rows}
    if "cancelled" in events:
        return "without a row for it, a cancelled turn stays open and can be resumed"
    if "user_said" in events:
        return "without a row for it, a message waits for the next request; with a target it redirects"
    if any("strict_warnings" in str(row.get("cond")) for row in mutant.changed_rows):
        return "what follows from a strict policy is free"
    if mutant.mutation == "swapped" and events == {"failed"}:
        return "one way to try again, or to give up, replaces another"
    if {f"{mutant.state}/{event}" for event in events} & idle:
        return "the event never arrives there"
    if mutant.mutation in ("dropped", "bound") and any(
        row.get("event") in events and ("cond" not in row or "max_iterations" in row["cond"])
        for row in mutant.other_rows
    ):
        return "another row of the event handles the case, and ends or bounds it"
    final_states = {name for name, body in document["states"].items() if body.get("final")}
    last_calls = {"answering", "concluding"}  # the call that ends the turn, without tools
    if (
        mutant.mutation == "swapped"
        and {row.get("target") for row in mutant.changed_rows} <= final_states | last_calls
    ):
        return "one end of the turn replaces another"
    review_states = {name for name, body in document["states"].items() if body.get("enter") == "review_calls"}
    if mutant.mutation == "swapped" and (
        {row.get("target") for row in mutant.changed_rows} & review_states and events == {"replied"}
    ):
        return "calls are answered without running, and nothing to run is answered at once: the turn ends"
    if mutant.mutation == "swapped" and any(
        word in str(row.get("cond"))
        for row in mutant.changed_rows
        for word in ("budget_spent", "calls_over_budget", "repeated_calls")
    ):
        return "calls run only when the budget is spent or the call was repeated: odd, but the turn ends"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", list_shipped_charts())
def test_mutated_charts_give_findings(name: str) -> None:
    """Each mutant of a shipped chart gives a finding, or is sound for a stated reason.

    The short form takes some of the mutants of a long chart, spread evenly over its states.
    """
    chart = make_chart(load_chart(name).document)  # without lines: inherited rows are named too
    idle = {f"{note.state}/{note.event}" for note in check(chart).notes if note.kind == "idle"}
    found_count, missed_mutants = 0, []
    mutants = list(make_mutants(chart.document))
    for mutant in mutants[:: -(-len(mutants) // choose_count(short=12, long=len(mutants)))]:
        try:
            findings: tuple[Finding, ...] = check(make_chart(mutant.document), risky=True).findings
        except SpecError:
            continue
        found_count += bool(findings)
        if not findings and not _find_reason_for_soundness(mutant, chart.document, idle):
            missed_mutants.append((mutant.mutation, mutant.state, mutant.changed_rows))
    assert missed_mutants == []
    assert found_count


@pytest.mark.parametrize("name", list_shipped_charts())
def test_a_chart_without_any_iteration_bound_is_unbounded(name: str) -> None:
    """Invariant 8: without any comparison with `max_iterations`, the loop is unbounded."""
    chart = make_chart(load_chart(name).document)  # a copy of the document
    for _, body, _ in walk_states(chart):
        if rows := body.get("transitions"):
            body["transitions"] = [row for row in rows if "max_" not in str(row.get("cond"))]
    kinds = {finding.kind for finding in check(make_chart(chart.document)).findings}
    assert "unbounded" in kinds


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
    """Where the solver says "impossible" no witness exists, and every witness satisfies its guards."""
    facts = find_witness(literals)
    assert is_satisfiable(literals) or facts is None
    if facts is not None:
        assert all(bool(compile_guard(text)(facts)) is truth for text, truth in literals.items())


def test_integers_have_nothing_between_them() -> None:
    """`1 < iteration < 2` cannot hold, though it could for real numbers."""
    assert not is_satisfiable({"1 < iteration < 2": True})
    assert not is_satisfiable({"finish_reason == 'stop'": True, "finish_reason == 'length'": True})
    assert not is_satisfiable({"finish_reason == 'tool_calls'": True, "tool_calls == 0": True}, "replied")
