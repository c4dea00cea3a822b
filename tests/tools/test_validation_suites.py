"""Suites, scoring and runs: which models can call tools."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.validation.cases import Case, ExpectedCall
from toolchart.tools.validation.runner import Outcome, run_suite, summarized
from toolchart.tools.validation.scoring import problem_of
from toolchart.tools.validation.suites import basic, load_suite
from toolchart.tools.validation.tracker import Tracker

TOOLS = tuple(
    ToolDefinition(
        name=name,
        description=name,
        parameters={
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": "string"},
                "c": {"type": "array"},
                "d": {"type": "object"},
                "f": {"type": "number"},
                "t": {"type": "boolean"},
            },
            "required": ["a"],
        },
    )
    for name in ("one", "two")
)


def made(name: str, **arguments: Any) -> ToolCall:
    """A call that a model made."""
    return ToolCall(id="x", name=name, arguments=arguments)


def expected(name: str, **arguments: list[Any]) -> ExpectedCall:
    """A call that is right."""
    return ExpectedCall(name=name, arguments=arguments)


def case(*calls: ExpectedCall, **options: Any) -> Case:
    """A case of these calls."""
    return Case(id="c", category="c", messages=(), tools=TOOLS, calls=calls, **options)


@pytest.mark.parametrize(
    ("right", "call"),
    [
        ({"a": [1]}, {"a": 1}),
        ({"a": [1], "b": [""]}, {"a": 1}),
        ({"a": [1], "b": ["New York", "NYC"]}, {"a": 1, "b": "new-york"}),
        ({"a": [1], "f": [3]}, {"a": 1, "f": 3.0}),
        ({"a": [1], "c": [["x", 2]]}, {"a": 1, "c": ["X", 2]}),
        ({"a": [1], "d": [{"k": ["v", "w"], "o": [""]}]}, {"a": 1, "d": {"k": "w"}}),
        ({"a": [1], "t": [True]}, {"a": 1, "t": True}),
    ],
)
def test_right_calls_pass(right: dict[str, Any], call: dict[str, Any]) -> None:
    """Issue 6: accepted values, optional arguments, and texts without case and punctuation."""
    assert problem_of(case(expected("one", **right)), [made("one", **call)]) is None


@pytest.mark.parametrize(
    ("right", "call", "words"),
    [
        ({"a": [1]}, {}, "required parameter 'a' is missing"),
        ({"a": [1]}, {"a": 2}, "'a' is 2"),
        ({"a": [1]}, {"a": "1"}, "'a' is str, not integer"),
        ({"a": [1]}, {"a": True}, "'a' is bool, not integer"),
        ({"a": [1]}, {"a": 1, "z": 1}, "has no parameter 'z'"),
        ({"a": [1]}, {"a": 1, "b": "x"}, "'b' was not expected"),
        ({"a": [1], "b": ["x"]}, {"a": 1}, "'b' is missing"),
        ({"a": [1], "c": [[1, 2]]}, {"a": 1, "c": [2, 1]}, "'c' is [2, 1]"),
        ({"a": [1], "d": [{"k": ["v"]}]}, {"a": 1, "d": {}}, "'d' is {}"),
        ({"a": [1], "d": [{"k": ["v"]}]}, {"a": 1, "d": {"k": "v", "l": 1}}, "'d'"),
        ({"a": [1], "t": [True]}, {"a": 1, "t": 1}, "'t' is int, not boolean"),
    ],
)
def test_wrong_calls_say_why(right: dict[str, Any], call: dict[str, Any], words: str) -> None:
    """Issue 6: each rule that is broken is named with its parameter."""
    assert words in str(problem_of(case(expected("one", **right)), [made("one", **call)]))


def test_numbers_and_names_of_calls_count() -> None:
    """Issue 6: too few, too many, another tool, unreadable arguments and needless calls are wrong."""
    one = case(expected("one", a=[1]))
    assert "1 calls were expected, not 0" in str(problem_of(one, []))
    assert "not 2" in str(problem_of(one, [made("one", a=1), made("one", a=1)]))
    assert "instead of 'one'" in str(problem_of(one, [made("two", a=1)]))
    broken = ToolCall(name="one", problem="cut off")
    assert "cut off" in str(problem_of(one, [broken]))
    assert "0 calls were expected" in str(problem_of(case(), [made("one", a=1)]))
    assert problem_of(case(), []) is None
    anything = case(any_call=True)
    assert problem_of(anything, [made("two")]) is None
    assert "none was made" in str(problem_of(anything, []))


@given(order=st.permutations([1, 2, 3]), wrong=st.booleans())
def test_parallel_calls_count_in_any_order(order: list[int], wrong: bool) -> None:
    """Issue 6: expected and made calls are matched one to one, whatever their order."""
    right = case(*(expected("one", a=[n]) for n in (1, 2, 3)))
    calls = [made("one", a=n) for n in order]
    if wrong:
        calls[0] = made("one", a=order[1])
    assert (problem_of(right, calls) is None) is not wrong


def test_a_call_that_fits_twice_is_given_to_the_one_that_needs_it() -> None:
    """Issue 6: matching is not greedy: a call that fits two expectations goes where it must."""
    right = case(expected("one", a=[1, 2]), expected("one", a=[1]))
    assert problem_of(right, [made("one", a=1), made("one", a=2)]) is None
    assert problem_of(right, [made("one", a=2), made("one", a=1)]) is None
    assert problem_of(right, [made("one", a=2), made("one", a=2)]) is not None


class Fake:
    """A model that answers as a function says; it speaks no wire."""

    name = "fake"

    def __init__(self, answer: Callable[[Request], Sequence[ToolCall]]) -> None:
        self._answer = answer
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Reply:
        """The function's calls."""
        self.requests.append(request)
        calls = tuple(self._answer(request))
        return Reply(tool_calls=calls, finish_reason="tool_calls" if calls else "stop")

    async def aclose(self) -> None:
        """Nothing to give back."""


def outcomes(provider: Any, cases: Sequence[Case], **options: Any) -> list[Outcome]:
    """All outcomes of a run."""

    async def all_() -> list[Outcome]:
        return [one async for one in run_suite(provider, "m", cases, **options)]

    return asyncio.run(all_())


def perfect(cases: Sequence[Case]) -> Callable[[Request], Sequence[ToolCall]]:
    """A model that knows all the answers."""
    by_words = {one.messages: one for one in cases}

    def answer(request: Request) -> Sequence[ToolCall]:
        said = tuple((m.role, m.content) for m in request.messages if m.role in ("user", "system"))
        known = by_words[said]  # type: ignore[index]
        return [
            ToolCall(name=call.name, arguments={k: v[0] for k, v in call.arguments.items() if v[0]})
            for call in known.calls
        ]

    return answer


def test_the_basic_suite_can_be_passed_and_failed(tmp_path: Path) -> None:
    """Issue 6: a model that knows the answers passes all; one that never calls passes the rest."""
    cases = basic()
    assert len({one.id for one in cases}) == len(cases)
    tracker = Tracker(tmp_path / "models.json")
    good = outcomes(Fake(perfect(cases)), cases, tracker=tracker)
    assert [one.reason for one in good] == [None] * len(cases)
    mute = summarized(outcomes(Fake(lambda request: []), cases))
    assert (mute.passed, mute.failed) == (2, len(cases) - 2)
    assert mute.by_category["irrelevant"] == (2, 2)
    standing = tracker.standings()["fake/m"]
    assert (standing.passed, standing.total, standing.validated) == (len(cases),) * 2 + (True,)


def test_error_recovery_takes_a_second_reply() -> None:
    """Issue 6: the first call is answered with an error, and the call after it is judged."""
    cases = [one for one in basic() if one.category == "recovery"]
    fake = Fake(perfect(cases))
    assert all(one.passed for one in outcomes(fake, cases))
    assert len(fake.requests) == 2 * len(cases)
    told = [message for message in fake.requests[1].messages if message.role == "tool"]
    assert "ISO codes" in str(told[0].content)
    assert told[0].tool_call_id == fake.requests[1].messages[-2].tool_calls[0].id


def test_a_model_that_cannot_be_asked_is_not_recorded(tmp_path: Path) -> None:
    """S2.7: a connection that fails says nothing of the model."""

    class Gone(Fake):
        async def complete(self, request: Request) -> Reply:
            raise ProviderError(kind="connection", message="nobody there")

    tracker = Tracker(tmp_path / "models.json")
    (one,) = outcomes(Gone(lambda request: []), basic()[:1], tracker=tracker)
    assert one.error
    assert "nobody there" in str(one.reason)
    assert tracker.standings() == {}


def test_a_suite_of_ones_own(tmp_path: Path) -> None:
    """Issue 6: a YAML file with tools and cases is a suite; mistakes are named with their place."""
    file = tmp_path / "mine.yaml"
    text = """
tools:
  - name: book
    description: Book a room.
    parameters: {type: object, properties: {room: {type: string}, days: {type: integer}}}
cases:
  - id: first
    category: rooms
    message: Book the red room for two days.
    calls: [{name: book, arguments: {room: {any_of: [red, the red room]}, days: 2}}]
  - {id: none, message: Hello.}
"""
    file.write_text(text)
    first, second = load_suite(str(file))
    assert first.calls[0].arguments == {"room": ["red", "the red room"], "days": [2]}
    assert (first.category, second.calls) == ("rooms", ())
    for wrong, words in (
        (text.replace("name: book, arg", "name: bok, arg"), "did you mean 'book'"),
        (text.replace("category: rooms", "categry: rooms"), "did you mean 'category'"),
        ("just text", "`tools` and `cases`"),
        ("a: [", "cannot be read"),
    ):
        file.write_text(wrong)
        with pytest.raises(SpecError, match=words) as caught:
            load_suite(str(file))
        assert "mine.yaml" in str(caught.value)


def test_an_unknown_suite_is_named() -> None:
    """Issue 6: a suite that there is not gives the nearest; BFCL without its files says so."""
    with pytest.raises(SpecError, match="did you mean 'basic'"):
        load_suite("basci")
    with pytest.raises(SpecError, match="question files"):
        load_suite("bfcl")


def test_cases_are_judged_alone() -> None:
    """Issue 6: the basic suite's cases are right for themselves and wrong for one another."""
    cases = [one for one in basic() if one.calls]
    for one, other in itertools.permutations(cases, 2):
        calls = [
            ToolCall(name=c.name, arguments={k: v[0] for k, v in c.arguments.items() if v[0]})
            for c in one.calls
        ]
        assert problem_of(one, calls) is None
        assert problem_of(replace(other, tools=one.tools), calls) is not None
