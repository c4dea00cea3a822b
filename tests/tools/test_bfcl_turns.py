"""Tests of the multi-turn questions of BFCL: loading, the messages of each turn, and judging."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from recorded_traffic import CORPORA, RECORDED, get_root, needs_recorded

from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.schemas.checks import ArgumentCheck
from toolchart.tools.validation.bfcl import iterate_accepted_arguments
from toolchart.tools.validation.bfcl_turns import (
    NEW_FUNCTIONS_MESSAGE,
    WORLDS,
    load_turns,
    parse_expected_call,
)
from toolchart.tools.validation.cases import Case
from toolchart.tools.validation.runner import MAX_STEPS, Outcome, run_case
from toolchart.tools.validation.suites import load_suite

BFCL = RECORDED / "bfcl"


UNFIT = {
    ("multi_turn_base_196:4", "resolve_ticket"),
    ("multi_turn_long_context_196:4", "resolve_ticket"),
    ("multi_turn_miss_func_196:5", "resolve_ticket"),
    ("multi_turn_miss_param_196:5", "resolve_ticket"),
}
"""Their accepted `resolution` is an empty text, which in accepted answers means "may be left out"."""


@cache
def load_all_turns(corpus: str) -> list[Case]:
    """Every turn of the multi-turn files of a corpus."""
    files = sorted((get_root(corpus) / "bfcl").glob("*multi_turn*.jsonl"))
    return [case for file in files for case in load_turns(file)]


def list_right_calls(case: Case) -> list[ToolCall]:
    """The accepted calls."""
    return [
        ToolCall(id=f"c{n}", name=expected.name, arguments=next(iter(iterate_accepted_arguments(expected))))
        for n, expected in enumerate(case.calls)
    ]


class ScriptedModel:
    """A model that makes these calls, one list per reply, and then stops."""

    name = "scripted"

    def __init__(self, replies: Sequence[Sequence[ToolCall]]) -> None:
        self._remaining_replies = list(replies)
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        calls = tuple(self._remaining_replies.pop(0)) if self._remaining_replies else ()
        return Reply(tool_calls=calls, finish_reason="tool_calls" if calls else "stop")

    async def aclose(self) -> None:
        """Do nothing: there is no connection to close."""


def judge_case(case: Case, replies: Sequence[Sequence[ToolCall]]) -> Outcome:
    """The outcome of a case with a model that gives these replies."""
    return asyncio.run(run_case(ScriptedModel(replies), "m", case, {}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus", "turn_count", "unfit"),
    [("own", 5, set()), pytest.param("recorded", 4 * 371, UNFIT, marks=needs_recorded)],
)
def test_every_turn_loads_and_its_accepted_calls_are_right(
    corpus: str, turn_count: int, unfit: set[tuple[str, str]]
) -> None:
    """S1.17: all turns with answers load; the accepted calls fit and pass, together or one per reply."""
    unfit_calls = set()
    for number, case in enumerate(load_all_turns(corpus)):
        calls = list_right_calls(case)
        for call in calls:
            tool = next(candidate for candidate in case.tools if candidate.name == call.name)
            if ArgumentCheck(tool.parameters, tool.name).describe_problem(call.arguments or {}) is not None:
                unfit_calls.add((case.id, call.name))
        assert judge_case(case, [calls]).passed, case.id
        if (corpus == "own" or number % 20 == 0) and len(calls) < MAX_STEPS:
            assert judge_case(case, [[call] for call in calls]).passed, case.id
    assert len(load_all_turns(corpus)) == turn_count
    assert unfit_calls == unfit


@pytest.mark.parametrize("corpus", CORPORA)
def test_wrong_turns_fail_with_a_reason(corpus: str) -> None:
    """S1.17: a missing call, another order or value fails with the call's name; extra calls do not."""
    for case in load_all_turns(corpus)[:200]:
        calls = list_right_calls(case)
        assert not judge_case(case, [calls[:-1]]).passed
        other_call = ToolCall(id="x", name=case.tools[0].name, arguments={})
        assert judge_case(case, [[other_call], calls, [other_call]]).passed
        wrong_calls = [ToolCall(id="w", name=calls[0].name, arguments={"no_such": 1}), *calls[1:]]
        outcome = judge_case(case, [wrong_calls])
        assert not outcome.passed
        assert outcome.reason is not None
        assert outcome.reason.startswith(f"call 1 of {len(calls)}, {calls[0].name}, does not come")
        if len(calls) == 2 and calls[0].name != calls[1].name:
            assert not judge_case(case, [calls[::-1]]).passed


@needs_recorded
def test_a_turn_includes_the_turns_before_it() -> None:
    """S1.17: the messages include earlier turns, and every call in them has a result."""
    case = next(
        candidate for candidate in load_all_turns("recorded") if candidate.id == "multi_turn_base_0:2"
    )
    model = ScriptedModel([list_right_calls(case)])
    asyncio.run(run_case(model, "m", case, {}))
    first, second = model.requests
    assert [m.role for m in first.messages[:7]] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "assistant",
        "user",
    ]
    call_ids = [call.id for m in second.messages for call in m.tool_calls]
    result_ids = [m.tool_call_id for m in second.messages if m.role == "tool"]
    assert sorted(call_ids) == sorted(map(str, result_ids))
    assert "cp" not in {tool.name for tool in case.tools}


@needs_recorded
def test_held_out_functions_become_known() -> None:
    """S1.17: a withheld function is offered from its turn on, and that turn announces it."""
    by_id = {case.id: case for case in load_all_turns("recorded")}
    early, late = by_id["multi_turn_miss_func_0:1"], by_id["multi_turn_miss_func_0:3"]
    assert "sort" not in {tool.name for tool in early.tools}
    assert "sort" in {tool.name for tool in late.tools}
    assert late.messages == (("user", NEW_FUNCTIONS_MESSAGE),)
    assert "multi_turn_miss_func_0:2" not in by_id


@needs_recorded
def test_the_suite_holds_the_turns_too() -> None:
    """S1.17: the suite `bfcl` has single-turn and multi-turn cases; a single file is a suite too."""
    assert {case.category for case in load_suite("bfcl", bfcl=BFCL)} >= {"multi_turn_base", "multiple"}
    assert len(load_suite(str(BFCL / "BFCL_v4_multi_turn_miss_param.jsonl"))) == 371


def test_our_turns_include_the_turns_before_them() -> None:
    """S1.17: the messages of a turn include the earlier turns, with a result for every call, and a turn
    without accepted calls is part of them but no case."""
    by_id = {case.id: case for case in load_all_turns("own")}
    assert set(by_id) == {
        *("multi_turn_base_901:0", "multi_turn_base_901:1", "multi_turn_base_901:3"),
        *("multi_turn_miss_func_901:0", "multi_turn_miss_func_901:2"),
    }
    case = by_id["multi_turn_base_901:3"]
    model = ScriptedModel([list_right_calls(case)])
    asyncio.run(run_case(model, "m", case, {}))
    assert [message.role for message in model.requests[0].messages] == [
        *("user", "assistant", "tool", "tool", "assistant"),
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant"),
        "user",
    ]
    call_ids = [call.id for m in model.requests[1].messages for call in m.tool_calls]
    result_ids = [m.tool_call_id for m in model.requests[1].messages if m.role == "tool"]
    assert sorted(call_ids) == sorted(map(str, result_ids))


def test_our_held_out_function_becomes_known() -> None:
    """S1.17: a withheld function of our own questions is offered from its turn on, and announced there; an
    excluded one is never offered."""
    by_id = {case.id: case for case in load_all_turns("own")}
    early, late = by_id["multi_turn_miss_func_901:0"], by_id["multi_turn_miss_func_901:2"]
    assert {tool.name for tool in early.tools} == {"open_repair"}
    assert {tool.name for tool in late.tools} == {"open_repair", "close_repair"}
    assert late.messages == (("user", NEW_FUNCTIONS_MESSAGE),)


def test_our_suite_has_single_and_multi_turn_cases() -> None:
    """S1.17: the suite `bfcl` over our own questions has every category; a single file is a suite too."""
    folder = get_root("own") / "bfcl"
    assert {case.category for case in load_suite("bfcl", bfcl=folder)} == {
        *("simple", "multiple", "parallel", "parallel_multiple", "irrelevance", "live_relevance"),
        *("multi_turn_base", "multi_turn_miss_func"),
    }
    assert len(load_suite(str(folder / "BFCL_own_multi_turn_base.jsonl"))) == 3


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "f",
        "f(g())",
        "f(x=[1 for _ in 'ab'])",
        "f(**{'x': 1})",
        "f(1, 2)",
        "(lambda: 1)()",
    ],
)
def test_an_answer_is_never_executed(text: str) -> None:
    """DESIGN 11: only a call of a known tool with literals is accepted; anything else is an error."""
    tool = ToolDefinition(name="f", description="", parameters={"type": "object", "properties": {"x": {}}})
    with pytest.raises((ValueError, KeyError)):
        parse_expected_call(text, [tool])


def test_a_foreign_file_is_an_error(tmp_path: Path) -> None:
    """S1.17: a broken file is one readable error."""
    file = tmp_path / "BFCL_multi_turn_x.jsonl"
    file.write_text(json.dumps({"id": "x_0", "question": []}))
    with pytest.raises(SpecError, match="possible_answer"):
        load_turns(file)
    (tmp_path / "possible_answer").mkdir()
    answer: dict[str, Any] = {"id": "x_0", "ground_truth": []}
    (tmp_path / "possible_answer" / file.name).write_text(json.dumps(answer))
    with pytest.raises(SpecError, match="not a file of multi-turn questions"):
        load_turns(file)
    assert len(WORLDS) == 8
