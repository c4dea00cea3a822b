"""Judges: decide whether a rerun is good enough. Each compares what was recorded with what the rerun did.

A judge is an async function of the recorded run and the rerun. `parse_judge` makes one from a text:
`state`, `calls`, `answer`, `contains=TEXT`, `schema=FILE`, `python=MODULE:FUNCTION`, `agent=SPEC`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from toolchart.engine.rerun.comparison import FirstDifference
from toolchart.engine.runtime.engine import Engine
from toolchart.specs.document_files import read_document
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.descriptors import load_reference
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import Usage
from toolchart.tools.schemas.output import parse_output
from toolchart.workers.error_text import describe_error

_SCHEMA_ENDINGS = (".json", ".yaml", ".yml")


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call of a run."""

    tool: str
    arguments: dict[str, Any] | None = None
    outcome: str = ""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a conversation, as judges see it."""

    conversation: str
    messages: tuple[str, ...]
    """What the user said, turn by turn."""
    answers: tuple[str, ...]
    """How the turns were answered; empty for a turn that is open."""
    states: tuple[str, ...]
    """The newest state of each turn."""
    calls: tuple[CallView, ...]
    usage: Usage
    seconds: float
    """Time of the model calls."""

    @property
    def answer(self) -> str:
        """The answer of the newest turn."""
        return self.answers[-1] if self.answers else ""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What one judge says about one conversation."""

    judge: str
    passed: bool
    reason: str = ""


Judge = Callable[[RunView, RunView, FirstDifference | None], Awaitable[Judgement]]
"""Judges a recorded run, its rerun, and the first difference between them."""


async def judge_same(recorded: RunView, rerun: RunView, first: FirstDifference | None) -> Judgement:
    """Pass where nothing differs."""
    return Judgement(
        judge="same", passed=first is None, reason="" if first is None else f"differs at {first.pointer}"
    )


async def judge_state(recorded: RunView, rerun: RunView, first: FirstDifference | None) -> Judgement:
    """Pass where every turn ends in the recorded state."""
    reason = "" if recorded.states == rerun.states else f"{list(recorded.states)} became {list(rerun.states)}"
    return Judgement(judge="state", passed=not reason, reason=reason)


async def judge_calls(recorded: RunView, rerun: RunView, first: FirstDifference | None) -> Judgement:
    """Pass where the same tools are called with the same arguments, in the same order."""
    recorded_calls, new_calls = ([_describe_call(call) for call in run.calls] for run in (recorded, rerun))
    reason = "" if recorded_calls == new_calls else f"{recorded_calls} became {new_calls}"
    return Judgement(judge="calls", passed=not reason, reason=reason)


async def judge_answer(recorded: RunView, rerun: RunView, first: FirstDifference | None) -> Judgement:
    """Pass where every turn is answered with the recorded words."""
    is_same = recorded.answers == rerun.answers
    return Judgement(judge="answer", passed=is_same, reason="" if is_same else "the answer has other words")


def _describe_call(call: CallView) -> str:
    return f"{call.tool}({encode_canonical_text(call.arguments)})"


def parse_judge(text: str) -> Judge:
    """The judge of a text such as `state` or `contains=42`.

    Raises:
        SpecError: there is no such judge, or its file, schema or function cannot be used.
    """
    word, equals, value = text.partition("=")
    if word in _PLAIN_JUDGES and not equals:
        return _PLAIN_JUDGES[word]
    if word in _JUDGE_MAKERS and value:
        return _JUDGE_MAKERS[word](value)
    names = [*_PLAIN_JUDGES, *(f"{name}=..." for name in _JUDGE_MAKERS)]
    raise SpecError(f"there is no judge {text!r}", hint=suggest_name(text, names))


def _make_contains_judge(text: str) -> Judge:
    async def judge(recorded: RunView, rerun: RunView, first: FirstDifference | None) -> Judgement:
        passed = text.lower() in rerun.answer.lower()
        reason = "" if passed else f"the answer does not contain {text!r}"
        return Judgement(judge="contains", passed=passed, reason=reason)

    return judge


def _make_schema_judge(path: str) -> Judge:
    schema = _read_schema(path)

    async def judge(recorded: RunView, rerun: RunView, first: FirstDifference | None) -> Judgement:
        output, problem = parse_output(rerun.answer, schema)
        return Judgement(judge="schema", passed=output is not None, reason=problem)

    return judge


def _read_schema(path: str) -> Any:
    if not path.endswith(_SCHEMA_ENDINGS):
        raise SpecError("a schema is a file that ends in .json or .yaml", file=path)
    return read_document(Path(path), expected_keys="a JSON Schema").data


def _make_function_judge(reference: str) -> Judge:
    try:
        function = load_reference(reference)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(
            f"the judge {reference!r} cannot be imported: {error}", hint="write python=MODULE:FUNCTION"
        ) from None
    return make_function_judge(function)


def make_function_judge(function: Callable[..., Any]) -> Judge:
    """The judge of a function of the recorded run and the rerun.

    It returns whether the rerun is good enough, or that and a reason; it may be async. Where it raises, the
    rerun does not pass.
    """
    name = getattr(function, "__name__", "python")

    async def judge(recorded: RunView, rerun: RunView, first: FirstDifference | None) -> Judgement:
        try:
            answer = function(recorded, rerun)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:  # the author's code may fail in any way
            return Judgement(judge=name, passed=False, reason=f"it raised {describe_error(error)}")
        passed, reason = answer if isinstance(answer, tuple) else (answer, "")
        return Judgement(judge=name, passed=bool(passed), reason=str(reason))

    return judge


def _make_agent_judge(spec: str) -> Judge:
    engine = Engine(spec, log="memory")

    async def judge(recorded: RunView, rerun: RunView, first: FirstDifference | None) -> Judgement:
        values = {"recorded_answer": recorded.answer, "new_answer": rerun.answer}
        message = recorded.messages[-1] if recorded.messages else ""
        result = await engine.arun(message, variables=values)
        verdict = result.results.get("verdict")
        if not isinstance(verdict, dict) or not isinstance(verdict.get("passed"), bool):
            reason = result.error.message if result.error else "it gave no result `verdict` with `passed`"
            return Judgement(judge=spec, passed=False, reason=reason)
        return Judgement(judge=spec, passed=verdict["passed"], reason=str(verdict.get("reason", "")))

    return judge


_PLAIN_JUDGES: dict[str, Judge] = {
    "same": judge_same,
    "state": judge_state,
    "calls": judge_calls,
    "answer": judge_answer,
}
_JUDGE_MAKERS: dict[str, Callable[[str], Judge]] = {
    "contains": _make_contains_judge,
    "schema": _make_schema_judge,
    "python": _make_function_judge,
    "agent": _make_agent_judge,
}
