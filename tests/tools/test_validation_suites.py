"""Tests of model validation: suites of cases, scoring of calls, and runs against a model."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.validation.cases import Case, ExpectedCall
from toolchart.tools.validation.runner import Outcome, run_suite, summarize_outcomes
from toolchart.tools.validation.scoring import find_problem
from toolchart.tools.validation.suites import load_suite
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


def make_call(name: str, **arguments: Any) -> ToolCall:
    """A call that a model made."""
    return ToolCall(id="x", name=name, arguments=arguments)


def make_expected_call(name: str, **arguments: list[Any]) -> ExpectedCall:
    """A call that is right."""
    return ExpectedCall(name=name, arguments=arguments)


def make_case(*calls: ExpectedCall, **options: Any) -> Case:
    """A case of these calls."""
    return Case(id="c", category="c", messages=(), tools=TOOLS, calls=calls, **options)


@pytest.mark.parametrize(
    ("right", "arguments"),
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
def test_right_calls_pass(right: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Issue 6: accepted values, optional arguments, and texts without case and punctuation."""
    assert (
        find_problem(make_case(make_expected_call("one", **right)), [make_call("one", **arguments)]) is None
    )


@pytest.mark.parametrize(
    ("right", "arguments", "words"),
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
def test_wrong_calls_give_the_reason(right: dict[str, Any], arguments: dict[str, Any], words: str) -> None:
    """Issue 6: each rule that is broken is named with its parameter."""
    assert words in str(
        find_problem(make_case(make_expected_call("one", **right)), [make_call("one", **arguments)])
    )


def test_numbers_and_names_of_calls_count() -> None:
    """Issue 6: too few, too many, another tool, unreadable arguments and needless calls are wrong."""
    one_call = make_case(make_expected_call("one", a=[1]))
    assert "1 calls were expected, not 0" in str(find_problem(one_call, []))
    assert "not 2" in str(find_problem(one_call, [make_call("one", a=1), make_call("one", a=1)]))
    assert "instead of 'one'" in str(find_problem(one_call, [make_call("two", a=1)]))
    broken = ToolCall(name="one", problem="cut off")
    assert "cut off" in str(find_problem(one_call, [broken]))
    assert "0 calls were expected" in str(find_problem(make_case(), [make_call("one", a=1)]))
    assert find_problem(make_case(), []) is None
    anything = make_case(any_call=True)
    assert find_problem(anything, [make_call("two")]) is None
    assert "none was made" in str(find_problem(anything, []))


@given(order=st.permutations([1, 2, 3]), wrong=st.booleans())
def test_parallel_calls_count_in_any_order(order: list[int], wrong: bool) -> None:
    """Issue 6: expected and made calls are matched one to one, whatever their order."""
    right = make_case(*(make_expected_call("one", a=[n]) for n in (1, 2, 3)))
    calls = [make_call("one", a=n) for n in order]
    if wrong:
        calls[0] = make_call("one", a=order[1])
    assert (find_problem(right, calls) is None) is not wrong


def test_matching_is_not_greedy() -> None:
    """Issue 6: a call that fits two expected calls is matched so that both can be fulfilled."""
    right = make_case(make_expected_call("one", a=[1, 2]), make_expected_call("one", a=[1]))
    assert find_problem(right, [make_call("one", a=1), make_call("one", a=2)]) is None
    assert find_problem(right, [make_call("one", a=2), make_call("one", a=1)]) is None
    assert find_problem(right, [make_call("one", a=2), make_call("one", a=2)]) is not None


class FakeModel:
    """A model without a network whose calls come from a function."""

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
        """Do nothing: there is no connection to close."""


def collect_outcomes(provider: Any, cases: Sequence[Case], **options: Any) -> list[Outcome]:
    """All outcomes of a run."""

    async def all_() -> list[Outcome]:
        return [one async for one in run_suite(provider, "m", cases, **options)]

    return asyncio.run(all_())


def answer_perfectly(cases: Sequence[Case]) -> Callable[[Request], Sequence[ToolCall]]:
    """A model that knows all the answers."""
    by_words = {one.messages: one for one in cases}

    def answer(request: Request) -> Sequence[ToolCall]:
        messages = tuple((m.role, m.content) for m in request.messages if m.role in ("user", "system"))
        matching_case = by_words[messages]  # type: ignore[index]
        return [
            ToolCall(name=call.name, arguments={k: v[0] for k, v in call.arguments.items() if v[0]})
            for call in matching_case.calls
        ]

    return answer


def test_the_basic_suite_can_be_passed_and_failed(tmp_path: Path) -> None:
    """Issue 6: a model that knows the answers passes all cases; one without calls only `irrelevant`."""
    cases = load_suite("basic")
    assert len({item.id for item in cases}) == len(cases)
    tracker = Tracker(tmp_path / "models.json")
    outcomes_ = collect_outcomes(FakeModel(answer_perfectly(cases)), cases, tracker=tracker)
    assert [item.reason for item in outcomes_] == [None] * len(cases)
    summary = summarize_outcomes(collect_outcomes(FakeModel(lambda request: []), cases))
    assert (summary.passed, summary.failed) == (2, len(cases) - 2)
    assert summary.by_category["irrelevant"] == (2, 2)
    rating = tracker.list_ratings()["fake/m"]
    assert (rating.passed, rating.total, rating.is_validated) == (len(cases),) * 2 + (True,)


def test_error_recovery_takes_a_second_reply() -> None:
    """Issue 6: the first call is answered with an error, and the call after it is judged."""
    cases = [item for item in load_suite("basic") if item.category == "recovery"]
    fake = FakeModel(answer_perfectly(cases))
    assert all(item.passed for item in collect_outcomes(fake, cases))
    assert len(fake.requests) == 2 * len(cases)
    tool_messages = [message for message in fake.requests[1].messages if message.role == "tool"]
    assert "ISO codes" in str(tool_messages[0].content)
    assert tool_messages[0].tool_call_id == fake.requests[1].messages[-2].tool_calls[0].id


def test_an_unreachable_model_is_not_recorded(tmp_path: Path) -> None:
    """S2.7: a failed connection is not recorded as a result of the model."""

    class UnreachableModel(FakeModel):
        async def complete(self, request: Request) -> Reply:
            raise ProviderError(kind="connection", message="nobody there")

    tracker = Tracker(tmp_path / "models.json")
    (outcome,) = collect_outcomes(
        UnreachableModel(lambda request: []), load_suite("basic")[:1], tracker=tracker
    )
    assert outcome.error
    assert "nobody there" in str(outcome.reason)
    assert tracker.list_ratings() == {}


def test_a_user_suite_file(tmp_path: Path) -> None:
    """Issue 6: a YAML file with tools and cases is a suite; errors name file and position."""
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
        ("a: [", "not valid YAML"),
        (text.replace("message: Hello.", "message: Hello., any_call: no"), "`any_call` is true or false"),
    ):
        file.write_text(wrong)
        with pytest.raises(SpecError, match=words) as caught:
            load_suite(str(file))
        assert "mine.yaml" in str(caught.value)


def test_an_unknown_suite_is_named() -> None:
    """Issue 6: an unknown suite gives the most similar name."""
    with pytest.raises(SpecError, match="did you mean 'basic'"):
        load_suite("basci")


def test_cases_are_judged_alone() -> None:
    """Issue 6: in the basic suite the right calls of one case are wrong for every other case."""
    cases = [first for first in load_suite("basic") if first.calls]
    for first, other in itertools.permutations(cases, 2):
        calls = [
            ToolCall(name=c.name, arguments={k: v[0] for k, v in c.arguments.items() if v[0]})
            for c in first.calls
        ]
        assert find_problem(first, calls) is None
        assert find_problem(replace(other, tools=first.tools), calls) is not None
