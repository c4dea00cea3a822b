"""The decision procedure for guards, compared with Python on small facts and with Z3 on unbounded ones."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from effort import choose_count
from random_guards import GuardGenerator, ask_z3, build_facts, find_by_trying, holds_in_python

from toolchart.states.chart.loading import make_chart
from toolchart.states.events import Limits
from toolchart.states.proofs.check import check
from toolchart.states.proofs.solving.solver import FACT_DOMAIN, GuardSolver, find_witness, is_satisfiable
from toolchart.states.vocabulary import Fact

BATCHES = 8
EXACT_COUNT = choose_count(short=60, long=7_000)
"""Formulas in each batch, for each judge."""
INEXACT_COUNT = choose_count(short=40, long=4_000)

# -- random guards -------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", range(BATCHES))
def test_small_facts_agree_with_python(batch: int) -> None:
    """Guards over small facts are possible just where Python finds values for them, by trying all."""
    compare_with_python(f"small {batch}", EXACT_COUNT)


def compare_with_python(seed: str, count: int) -> None:
    """Try all values of the facts of so many random guards; raises where the solver says something else."""
    facts = build_facts(are_small=True)
    generator = GuardGenerator(Random(seed), facts)
    solver = GuardSolver(facts.get, rules=())
    for _ in range(count):
        literals = generator.make_literals()
        witness = solver.find_witness(literals)
        assert solver.is_satisfiable(literals) is (witness is not None), literals
        if witness is None:
            assert find_by_trying(literals, facts) is None, literals
        else:
            assert holds_in_python(literals, witness), (literals, witness)
            assert all(is_in_range(facts[name], value) for name, value in witness.items()), witness


def is_in_range(fact: Fact, value: Any) -> bool:
    """Whether a fact can have this value."""
    if fact.type == "integer":
        return fact.minimum is None or fact.minimum <= value <= (fact.maximum or value)
    return value in (fact.words or (False, True))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_facts_without_bounds_agree_with_z3(batch: int) -> None:
    """Guards over facts without bounds are possible just where Z3 says so; Python confirms the witness."""
    compare_with_z3(f"large {batch}", EXACT_COUNT)


def compare_with_z3(seed: str, count: int) -> int:
    """Ask Z3 about so many random guards; raises where the solver says something else.

    Returns:
        The number of guards about which Z3 says nothing.
    """
    facts = build_facts(are_small=False)
    generator = GuardGenerator(Random(seed), facts)
    solver = GuardSolver(facts.get, rules=())
    undecided_count = 0
    for _ in range(count):
        literals = generator.make_literals()
        witness = solver.find_witness(literals)
        verdict = ask_z3(literals, facts)
        undecided_count += verdict is None
        assert solver.is_satisfiable(literals) is (witness is not None), literals
        assert verdict in (witness is not None, None), literals
        assert witness is None or holds_in_python(literals, witness), (literals, witness)
    return undecided_count


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", ["fractions", "products"])
def test_what_is_called_impossible_is_impossible(batch: int, kind: str) -> None:
    """With fractions and products "impossible" is still a proof, and every witness is one for Python."""
    facts = build_facts(are_small=True)
    generator = GuardGenerator(
        Random(f"{kind} {batch}"), facts, fractions=kind == "fractions", products=kind == "products"
    )
    solver = GuardSolver(facts.get, rules=())
    unknown_count = 0
    for _ in range(INEXACT_COUNT):
        literals = generator.make_literals()
        witness = solver.find_witness(literals)
        if not solver.is_satisfiable(literals):
            assert find_by_trying(literals, facts) is None, literals
        elif witness is not None:
            assert holds_in_python(literals, witness), (literals, witness)
        else:
            unknown_count += find_by_trying(literals, facts) is None
    assert unknown_count <= 1 + 0.06 * INEXACT_COUNT


@pytest.mark.parametrize(
    "literals",
    [
        {"6 != n >= 6 * n + 20": False, "1000 * (verdict.score % 10) != n + verdict.score + 24": False},
        {
            "n // 7 - n > (n + m) // 4 or 12 + m == n - m <= n or q": False,
            "7 - n * 3 != m and p and m * 4 != 1 and (n > -2 > m or m // 5 == 8) "
            "and (word == 'two' or word == 'three' or n == 6 + n + m)": False,
            "(17 - n <= m) != q and m != n * 5 // 2 and -m >= n and m > -2 + n % 3": True,
            "40 != n and -6 < 1000 * (m % 4) == m - n and word == 'two'": True,
        },
    ],
)
def test_large_factors_are_decided_by_small_ranges(literals: dict[str, bool]) -> None:
    """Guards with a factor of 1,000 before a remainder are decided: the remainder has few values to try."""
    facts = build_facts(are_small="1000 * (verdict.score % 10)" in str(literals))
    solver = GuardSolver(facts.get, rules=())
    assert not solver.is_satisfiable(literals)
    assert ask_z3(literals, facts) is False


# -- faults of the solver before this one --------------------------------------------------------


def test_an_alternative_with_an_inequality_is_found_possible() -> None:
    """`not a or i >= 6` together with `a` is possible, and the witness shows it."""
    literals = {"not has_content or iteration >= 6": True, "has_content": True}
    assert is_satisfiable(literals)
    assert find_witness(literals) == {"has_content": True, "iteration": 6}


@pytest.mark.parametrize("least", [1, 2, 5, 6, 8, 100, 5000])
def test_a_gap_is_found_whatever_its_number(least: int) -> None:
    """A chart that handles no reply with text from the n-th iteration on has a gap, at each n."""
    rows = [
        {"event": "replied", "target": "running", "cond": "tool_calls >= 1"},
        {"event": "replied", "target": "finished", "cond": "not has_content"},
        {"event": "replied", "target": "finished", "cond": f"has_content and iteration < {least}"},
        {"event": "failed", "target": "finished"},
    ]
    document = build_loop(rows)
    document["states"]["running"]["transitions"][0]["target"] = "executing"  # which counts iterations
    document["states"]["executing"] = {
        "enter": "run_tools",
        "transitions": [
            {"event": "tool_finished", "target": "asking", "cond": "pending_calls == 0"},
            {"event": "tool_finished"},
        ],
    }
    (gap,) = [finding for finding in check(make_chart(document)).findings if finding.kind == "gap"]
    assert gap.counterexample == {"has_content": True, "iteration": least, "tool_calls": 0}


def build_loop(rows: list[dict[str, str]]) -> dict[str, Any]:
    """A chart that asks the model with these rows, and runs tools."""
    states = {
        "asking": {"initial": True, "enter": "call_model", "transitions": rows},
        "running": {
            "enter": "review_calls",
            "transitions": [{"event": "reviewed", "target": "asking"}, {"event": "decided"}],
        },
        "finished": {"final": True, "enter": "answer"},
    }
    return {"name": "loop", "states": states}


@pytest.mark.parametrize("bound", ["replies < 5000", "replies // 2 < 3", "replies <= 4", "replies * 3 < 50"])
def test_a_counter_below_a_number_is_bounded(bound: str) -> None:
    """A loop that goes on while a counter is below any number has a bound."""
    rows = [
        {"event": "replied", "target": "running", "cond": bound},
        {"event": "replied failed", "target": "finished"},
    ]
    assert "unbounded" not in {finding.kind for finding in check(make_chart(build_loop(rows))).findings}


@pytest.mark.parametrize(
    ("bound", "calls", "formula"),
    [
        ("replies < 5000", 5000, "5000"),
        ("replies != 4", 4, "4"),
        ("replies // 2 < 3", 6, "6"),
        ("replies * 3 < 50", 17, "17"),
        ("replies % 5 != 4", 4, "4"),
        ("replies < max_repeats", Limits().max_repeats, "max_repeats"),
        ("replies < max_iterations * 2", 2 * Limits().max_iterations, "2 * max_iterations"),
    ],
)
def test_a_bound_is_a_number_and_a_formula(bound: str, calls: int, formula: str) -> None:
    """A cycle that ends by a counter has its exact number of model calls, and a formula over its limit."""
    rows = [
        {"event": "replied", "target": "asking", "cond": bound},
        {"event": "replied failed", "target": "finished"},
    ]
    document = build_loop(rows)
    del document["states"]["running"]
    report = check(make_chart(document))
    assert report.findings == ()
    assert report.worst is not None
    assert (report.worst.model_calls, report.formulas["model_calls"]) == (calls, formula)


@pytest.mark.parametrize(
    ("guard", "others", "is_possible"),
    [
        ("replies != 4", {"replies >= 4": True, "replies < 5": True}, False),
        ("replies != 4", {"replies >= 4": True}, True),
        ("replies < 5000", {"replies > 4998": True}, True),
        ("replies < 5000", {"replies > 4999": True}, False),
        ("replies // 2 < 3", {"replies >= 5": True}, True),
        ("replies // 2 < 3", {"replies >= 6": True}, False),
        ("replies % 3 == 1", {"replies % 6 == 3": True}, False),
        ("replies % 3 == 1", {"replies % 5 == 2": True, "replies > 7": True}, True),
        ("2 * replies == 2 * iteration + 1", {}, False),
        ("3 * replies == 7 * iteration + 5", {"replies > 1000": True}, True),
        ("replies > iteration", {"iteration > attempt": True, "attempt > replies": True}, False),
        ("replies < max_repeats", {"max_repeats <= 1": True, "replies >= 1": True}, False),
        ("(iteration > 1) == retryable", {"iteration > 3": True, "retryable": False}, False),
        ("retryable != has_content", {"retryable": True, "has_content": True}, False),
        ("finish_reason != 'stop'", {"finish_reason == 'stop'": True}, False),
        ("'stop' == finish_reason != 'length'", {}, True),
        ("not (1 < iteration < 3)", {"iteration == 2": True}, False),
    ],
)
def test_verdicts(guard: str, others: dict[str, bool], is_possible: bool) -> None:
    """Numbers, remainders, disequalities, truths and words are decided exactly."""
    literals = {guard: True, **others}
    assert is_satisfiable(literals) is is_possible
    assert (find_witness(literals) is not None) is is_possible


@pytest.mark.parametrize(
    ("guard", "others", "is_possible"),
    [
        ("iteration > 2.5", {"iteration <= 2": True}, False),
        ("iteration > 2.5", {"iteration <= 3": True}, True),
        ("iteration == 2.5", {}, False),
        ("iteration >= 1e15", {"iteration < 1000000000000000": True}, False),
        ("iteration / 10 == 0.1", {"iteration == 1": True}, True),
        ("iteration / 10 != 0.1", {"iteration == 1": True}, False),
        ("iteration / 3 == replies", {"iteration == 7": True}, False),
        ("repeated_calls > replies / 2", {"replies == 8": True, "repeated_calls < 5": True}, False),
        ("iteration < max_iterations * 0.8", {"iteration >= max_iterations": True}, False),
        ("iteration * 0.1 == 0.3", {"iteration == 4": True}, False),
        ("iteration // 0.25 == 4 * iteration", {}, True),
        ("iteration // 0.25 != 4 * iteration", {}, False),
        ("iteration % 2.5 == 0.5", {"iteration == 3": True}, True),
        ("iteration * replies < 0", {}, False),
        ("iteration * replies >= 6", {"iteration * replies < 6": True}, False),
        ("iteration * replies == 6", {"iteration == 2": True}, True),
    ],
)
def test_verdicts_about_fractions_and_products(
    guard: str, others: dict[str, bool], is_possible: bool
) -> None:
    """Fractions of one rounding are decided exactly; elsewhere what is plainly impossible is."""
    literals = {guard: True, **others}
    assert is_satisfiable(literals) is is_possible
    assert (find_witness(literals) is not None) is is_possible


def test_where_rounding_decides_both_answers_count_as_possible() -> None:
    """`iteration * 0.1 == 0.3` is false at 3, because Python rounds: it is called neither true nor false."""
    literals = {"iteration * 0.1 == 0.3": True, "iteration == 3": True}
    assert is_satisfiable(literals)
    assert find_witness(literals) is None
    assert find_witness({"iteration * 0.1 == 0.3": False, "iteration == 3": True}) == {"iteration": 3}


# -- facts ---------------------------------------------------------------------------------------


def test_facts_come_from_the_lookup_and_keep_their_range() -> None:
    """A dotted name is one fact, and a declared minimum and maximum hold."""
    facts = {
        "draft.count": Fact(name="draft.count", type="integer"),
        "verdict.score": Fact(name="verdict.score", type="integer", minimum=-2, maximum=10),
        "verdict.offset": Fact(name="verdict.offset", type="integer", minimum=None),
        "verdict.style": Fact(name="verdict.style", type="text", words=("plain", "rich")),
    }
    solver = GuardSolver(facts.get)
    assert not solver.is_satisfiable({"draft.count < 0": True})
    assert not solver.is_satisfiable({"verdict.score >= 11": True})
    assert not solver.is_satisfiable({"draft.count + verdict.score < -2": True})
    assert solver.find_witness({"verdict.score + 0 < -1": True}) == {"verdict.score": -2}
    assert solver.find_witness({"verdict.offset < -7": True}) == {"verdict.offset": -8}
    assert solver.find_witness({"verdict.style == 'plain'": False}) == {"verdict.style": "rich"}
    with pytest.raises(KeyError, match=r"draft\.size is no fact"):
        solver.is_satisfiable({"draft.size > 1": True})


@pytest.mark.parametrize("event", sorted({event for events, _, _ in FACT_DOMAIN for event in events}))
def test_the_rules_about_an_event_can_hold_together(event: str) -> None:
    """What the core guarantees when an event arrives contradicts neither itself nor the ranges of facts."""
    rules = {text: True for events, text, _ in FACT_DOMAIN if not events or event in events}
    assert is_satisfiable(rules, event)
    assert find_witness(rules, event) is not None


# -- work ----------------------------------------------------------------------------------------


def test_a_question_that_takes_too_long_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit of work the answer is "possible" and has no witness."""
    monkeypatch.setattr("toolchart.states.proofs.solving.solver.MAX_WORK", 1)
    solver = GuardSolver()
    literals = {"iteration > replies": True, "replies > iteration + attempt": True}
    assert solver.is_satisfiable(literals)
    assert solver.find_witness(literals) is None
