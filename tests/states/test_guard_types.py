"""Guards have types: what passes the rules never raises, and means what Python would say."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from effort import choose_count
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from toolchart.states.chart.guards import GuardProblem, check_guard
from toolchart.states.compiler import GuardTable
from toolchart.states.vocabulary import get_facts

STATES = frozenset({"here", "there"})


@pytest.mark.parametrize(
    ("guard", "problem"),
    [
        ("iteration % 0 == 1", "divides by 0"),
        ("iteration / 0 > 1", "divides by 0"),
        ("iteration // -0 > 1", "divides by -0"),
        ("iteration % 0.0 == 1", "divides by 0.0"),
        ("iteration % replies == 1", "divides by replies, which can be zero"),
        ("iteration / (replies + 1) > 1", "divides by replies + 1"),
        ("iteration // (1 - 1) > 1", "divides by 1 - 1"),
        ("iteration % retryable == 0", "calculates with the boolean retryable"),
        ("iteration % True == 0", "calculates with the boolean True"),
        ("finish_reason < 'stop'", "asks which is greater"),
        ("finish_reason > 3", "finish_reason is not a number"),
        ("finish_reason == 3", "finish_reason is not a number"),
        ("finish_reason == iteration", "iteration is not a text"),
        ("iteration == finish_reason", "finish_reason is not a number"),
        ("finish_reason == error_kind", "compares the texts"),
        ("finish_reason + 'x' == 'stop'", "calculates with the text finish_reason"),
        ("'a' * 1000000 == finish_reason", "calculates with the text 'a'"),
        ("-finish_reason == 1", "calculates with the text"),
        ("retryable + 1 > 1", "calculates with the boolean"),
        ("-retryable == 1", "calculates with the boolean"),
        ("retryable > has_content", "asks which is greater"),
        ("retryable == 1", "retryable is not a number"),
        ("retryable == 'True'", "retryable is not a text"),
        ("(iteration > 1) + 1 > 1", "calculates with the boolean"),
        ("0 < iteration < finish_reason", "finish_reason is not a number"),
        ("0 < iteration == retryable", "retryable is not a number"),
        ("iteration < 3 < 'x'", "not a text"),
        ("pending_calls", "takes the number pending_calls for a truth"),
        ("not pending_calls", "takes the number pending_calls for a truth"),
        ("retryable and iteration", "takes the number iteration for a truth"),
        ("finish_reason", "takes the text finish_reason for a truth"),
        ("1", "takes the number 1 for a truth"),
        ("'stop'", "takes the text 'stop' for a truth"),
        ("iteration + 1", "for a truth"),
        ("iteration > 1e999", "beyond 64 bits"),
        ("iteration > 9223372036854775809", "beyond 64 bits"),
        ("iteration > " + "9" * 900, "beyond 64 bits"),
        ("iteration > " + "9" * 5000, "more than 1000 characters"),
        ("iteration ** 9 > 1", "uses Pow"),
        ("iteration > 1j", "holds 1j"),
        ("iteration == b'x'", "holds b'x'"),
        ("iteration == None", "holds None"),
        ("iteration == ...", "holds ..."),
        ("*".join(["iteration"] * 9) + " > 1", "more than 1000 bits"),
        ("iteration << 9 > 1", "uses LShift"),
        ("iteration is 1", "uses Is"),
        ("iteration in (1, 2)", "uses In"),
        ("[iteration]", "uses List"),
        ("iteration[0] > 1", "uses Subscript"),
        ("f'{iteration}' == 'x'", "uses JoinedStr"),
        ("(lambda: 1)() == 1", "uses Lambda"),
        ("(x := 1) == 1", "uses NamedExpr"),
        ("In()", "something other than In"),
        ("In('here', state='here')", "something other than In"),
        ("In(1)", "unknown state 1"),
        ("In(None)", "unknown state None"),
        ("In(iteration)", "unknown state iteration"),
        ("In(*['here'])", "unknown state"),
        ("In(In('here'))", "unknown state"),
        ("In", "unknown fact 'In'"),
        ("in('here')", "cannot be read"),
        ("In('here') > 1", "is not a"),
        ("", "cannot be read"),
        (" ", "cannot be read"),
        ("iteration\x00 > 1", "cannot be read"),
        ("iteration > 1; 2", "cannot be read"),
        ("(" * 300 + "1" + ")" * 300, "cannot be read"),
        ("not " * 240 + "retryable", "more than 200 parts"),
        ("-" * 900 + "iteration > 1", "more than 200 parts"),
        (" and ".join(["1 < 2"] * 80), "more than 200 parts"),
    ],
)
def test_refuses_a_guard(guard: str, problem: str) -> None:
    """A guard that could raise, or that has no truth of its own, is refused with the guard and the reason."""
    with pytest.raises(GuardProblem) as caught:
        check_guard(guard, STATES)
    assert problem in caught.value.message
    assert caught.value.message.startswith("the guard ")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "guard",
    [
        "retryable",
        "not retryable and has_content",
        "True",
        "retryable == has_content",
        "(iteration > 1) == retryable",
        "0 < iteration <= max_iterations",
        "iteration % 2 == 0",
        "iteration / -3 < 0.5",
        "iteration // 0.25 > -replies * 3",
        "'stop' == finish_reason != 'length'",
        "In('here')",
        "In('here', 'there') or not In('here')",
    ],
)
def test_accepts_a_guard(guard: str) -> None:
    """Comparisons, linear arithmetic, division by constants and `In` stay allowed."""
    check_guard(guard, STATES)


# -- random guards ---------------------------------------------------------------------------------

_FACTS = {fact.name: fact for fact in get_facts().values()}
_NUMBERS = [name for name, fact in _FACTS.items() if fact.type == "integer"]
_BOOLEANS = [name for name, fact in _FACTS.items() if fact.type == "boolean"]
_TEXTS = [name for name, fact in _FACTS.items() if fact.type == "text"]
_WORDS = [repr(word) for name in _TEXTS for word in _FACTS[name].words]

constants = st.one_of(
    st.integers(-3, 10).map(str),
    st.integers(-(2**63), 2**63).map(str),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.sampled_from(["0", "0.0", "-0", "1e-300", "1e999", "True", "False", "1j", "None", "'x'"]),
)
leaves = st.one_of(
    st.sampled_from(_NUMBERS),
    st.sampled_from(_NUMBERS),
    st.sampled_from([*_BOOLEANS, *_TEXTS]),
    st.sampled_from(_WORDS),
    constants,
)
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def _extend(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def join(operators: tuple[str, ...]) -> st.SearchStrategy[str]:
        return st.tuples(parts, st.sampled_from(operators), parts).map(lambda x: f"({' '.join(x)})")

    chains = st.tuples(parts, st.sampled_from(_COMPARISONS), parts, st.sampled_from(_COMPARISONS), parts)
    return st.one_of(
        join(("+", "-", "*", "/", "//", "%")),
        join(_COMPARISONS),
        join(("and", "or")),
        chains.map(lambda x: f"({' '.join(x)})"),
        parts.map(lambda x: f"(not {x})"),
        parts.map(lambda x: f"(-{x})"),
    )


any_expressions = st.recursive(leaves, _extend, max_leaves=8)
"""Expressions that are mostly wrong."""

numbers = st.recursive(
    st.one_of(st.sampled_from(_NUMBERS), st.integers(-9, 9).map(str), st.floats(-9, 9).map(repr)),
    lambda parts: st.one_of(
        st.tuples(parts, st.sampled_from("+-*"), parts).map(lambda x: f"({' '.join(x)})"),
        st.tuples(parts, st.sampled_from(("/", "//", "%")), constants).map(lambda x: f"({' '.join(x)})"),
    ),
    max_leaves=4,
)
booleans = st.recursive(
    st.one_of(
        st.sampled_from(_BOOLEANS),
        st.tuples(numbers, st.sampled_from(_COMPARISONS), numbers).map(" ".join),
        st.tuples(st.sampled_from(_TEXTS), st.sampled_from(("==", "!=")), st.sampled_from(_WORDS)).map(
            " ".join
        ),
    ),
    lambda parts: st.one_of(
        st.tuples(parts, st.sampled_from(("and", "or", "==", "!=")), parts).map(
            lambda x: f"(({x[0]}) {x[1]} ({x[2]}))"
        ),
        parts.map(lambda x: f"(not {x})"),
    ),
    max_leaves=5,
)
"""Expressions that are mostly right."""

worlds = st.fixed_dictionaries(
    {
        name: st.booleans()
        if fact.type == "boolean"
        else st.sampled_from(fact.words)
        if fact.type == "text"
        else st.one_of(st.integers(0, 5), st.integers(0, 10**36))
        for name, fact in _FACTS.items()
    }
)


@settings(max_examples=choose_count(short=100, long=30_000), deadline=None)
@given(guard=st.one_of(any_expressions, booleans), world=worlds)
def test_a_guard_that_passes_never_raises(guard: str, world: dict[str, Any]) -> None:
    """Under any facts of the right type a guard that passes has the truth that Python gives it."""
    try:
        check_guard(guard, STATES)
    except GuardProblem:
        assume(False)
    table = GuardTable()
    truth = table.evaluators[table.add_guard(guard)](world)
    assert truth is eval(guard, {"__builtins__": {}}, world)  # noqa: S307  # the plain meaning of the guard


@settings(max_examples=choose_count(short=100, long=30_000), deadline=None)
@given(guard=st.one_of(any_expressions, st.text(max_size=40)))
def test_any_text_is_a_guard_or_a_problem(guard: str) -> None:
    """The check of a guard ends in silence or in `GuardProblem`, whatever the text."""
    with contextlib.suppress(GuardProblem):
        check_guard(guard, STATES)
