"""The benchmark's multi-turn questions: loaded, told turn by turn, and judged by their calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from recorded import RECORDED, needs_recorded

from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition
from toolchart.tools.execution.arguments import ArgumentCheck
from toolchart.tools.validation.bfcl import accepted_arguments
from toolchart.tools.validation.bfcl_turns import ANNOUNCED, WORLDS, expected_call, load_turns
from toolchart.tools.validation.cases import Case
from toolchart.tools.validation.runner import MOST_STEPS, Outcome, run_case
from toolchart.tools.validation.suites import load_suite

BFCL = RECORDED / "bfcl"


UNFIT = {
    ("multi_turn_base_196:4", "resolve_ticket"),
    ("multi_turn_long_context_196:4", "resolve_ticket"),
    ("multi_turn_miss_func_196:5", "resolve_ticket"),
    ("multi_turn_miss_param_196:5", "resolve_ticket"),
}
"""Their accepted `resolution` is an empty text, which in accepted answers says "may be left out"."""


@cache
def turns() -> list[Case]:
    """Every turn of the four files."""
    return [case for file in sorted(BFCL.glob("*multi_turn*.jsonl")) for case in load_turns(file)]


def right(case: Case) -> list[ToolCall]:
    """The accepted calls."""
    return [
        ToolCall(id=f"c{n}", name=one.name, arguments=next(iter(accepted_arguments(one))))
        for n, one in enumerate(case.calls)
    ]


class Scripted:
    """A model that makes these calls, one list a reply, and then is content."""

    name = "scripted"

    def __init__(self, replies: Sequence[Sequence[ToolCall]]) -> None:
        self._left = list(replies)
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        calls = tuple(self._left.pop(0)) if self._left else ()
        return Reply(tool_calls=calls, finish_reason="tool_calls" if calls else "stop")

    async def aclose(self) -> None:
        """Nothing to give back."""


def judged(case: Case, replies: Sequence[Sequence[ToolCall]]) -> Outcome:
    """What comes of a case with a model that replies so."""
    return asyncio.run(run_case(Scripted(replies), "m", case, {}))


@needs_recorded
def test_every_turn_loads_and_its_accepted_calls_are_right() -> None:
    """S1.17: all turns with answers load; the accepted calls fit their schemas and pass, in any bundling."""
    unfit = set()
    for number, case in enumerate(turns()):
        calls = right(case)
        for call in calls:
            tool = next(one for one in case.tools if one.name == call.name)
            if ArgumentCheck(tool.parameters, tool.name).problem(call.arguments or {}) is not None:
                unfit.add((case.id, call.name))
        assert judged(case, [calls]).passed, case.id
        if number % 20 == 0 and len(calls) < MOST_STEPS:
            assert judged(case, [[call] for call in calls]).passed, case.id
    assert len(turns()) == 4 * 371
    assert unfit == UNFIT


@needs_recorded
def test_wrong_turns_are_told() -> None:
    """S1.17: a missing call, another order, another value fail and say which; looking around does not."""
    for case in turns()[:200]:
        calls = right(case)
        assert not judged(case, [calls[:-1]]).passed
        around = ToolCall(id="x", name=case.tools[0].name, arguments={})
        assert judged(case, [[around], calls, [around]]).passed
        wrong = [ToolCall(id="w", name=calls[0].name, arguments={"no_such": 1}), *calls[1:]]
        outcome = judged(case, [wrong])
        assert not outcome.passed
        assert outcome.reason is not None
        assert outcome.reason.startswith(f"call 1 of {len(calls)}, {calls[0].name}, does not come")
        if len(calls) == 2 and calls[0].name != calls[1].name:
            assert not judged(case, [calls[::-1]]).passed


@needs_recorded
def test_a_turn_is_told_what_went_before() -> None:
    """S1.17: earlier turns are there with their accepted calls, each answered; none is dangling."""
    case = next(one for one in turns() if one.id == "multi_turn_base_0:2")
    model = Scripted([right(case)])
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
    asked = [call.id for m in second.messages for call in m.tool_calls]
    answered = [m.tool_call_id for m in second.messages if m.role == "tool"]
    assert sorted(asked) == sorted(map(str, answered))
    assert "cp" not in {tool.name for tool in case.tools}


@needs_recorded
def test_held_out_functions_become_known() -> None:
    """S1.17: a function that is held out is not offered before its turn, which announces it."""
    by_id = {case.id: case for case in turns()}
    early, late = by_id["multi_turn_miss_func_0:1"], by_id["multi_turn_miss_func_0:3"]
    assert "sort" not in {tool.name for tool in early.tools}
    assert "sort" in {tool.name for tool in late.tools}
    assert late.messages == (("user", ANNOUNCED),)
    assert "multi_turn_miss_func_0:2" not in by_id


@needs_recorded
def test_the_suite_holds_the_turns_too() -> None:
    """S1.17: `bfcl` has single turns and these; one file may be named alone."""
    assert {one.category for one in load_suite("bfcl", bfcl=BFCL)} >= {
        "multi_turn_base",
        "multiple",
    }
    assert len(load_suite(str(BFCL / "BFCL_v4_multi_turn_miss_param.jsonl"))) == 371


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
def test_an_answer_is_read_and_never_run(text: str) -> None:
    """DESIGN 11: only a call of a known name with literals is read; anything else is an error."""
    tool = ToolDefinition(
        name="f", description="", parameters={"type": "object", "properties": {"x": {}}}
    )
    with pytest.raises((ValueError, KeyError)):
        expected_call(text, [tool])


def test_a_file_that_is_none_of_theirs_is_named(tmp_path: Path) -> None:
    """S1.17: a broken file is one readable error."""
    file = tmp_path / "BFCL_multi_turn_x.jsonl"
    file.write_text(json.dumps({"id": "x_0", "question": []}))
    with pytest.raises(SpecError, match="possible_answer"):
        load_turns(file)
    (tmp_path / "possible_answer").mkdir()
    answer: dict[str, Any] = {"id": "x_0", "ground_truth": []}
    (tmp_path / "possible_answer" / file.name).write_text(json.dumps(answer))
    with pytest.raises(SpecError, match="no file of multi-turn questions"):
        load_turns(file)
    assert len(WORLDS) == 8
