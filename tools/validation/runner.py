"""Running a suite against a model, and recording each result as it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from toolchart.states.canonical_json import canonical_text
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolCall
from toolchart.states.ports import Provider
from toolchart.tools.validation.bfcl_turns import done
from toolchart.tools.validation.cases import Case
from toolchart.tools.validation.scoring import problem_of
from toolchart.tools.validation.tracker import Entry, Tracker

MOST_REPLIES = 3
"""Replies of one case; error recovery takes two."""
MOST_STEPS = 20
"""Replies of one case in steps. Source: the benchmark's own limit of steps in a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one case."""

    case: Case
    passed: bool
    reason: str | None = None
    """Why it did not pass."""
    calls: tuple[ToolCall, ...] = ()
    """The calls that were judged."""
    error: bool = False
    """Whether the model could not be asked: that says nothing of it and is not recorded."""


def now() -> str:
    """The present moment, RFC 3339, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def run_suite(
    provider: Provider,
    model: str,
    cases: Sequence[Case],
    *,
    suite: str = "basic",
    tracker: Tracker | None = None,
    options: Mapping[str, Any] | None = None,
    clock: Callable[[], str] = now,
) -> AsyncGenerator[Outcome, None]:
    """Each case's outcome as it comes; it is in the tracker before it is given out.

    A case that could not be asked (no connection, no such model) is given out with `error` and not
    recorded.

    Raises:
        TrackerUnavailable: a result cannot be written.
    """
    for case in cases:
        outcome = await run_case(provider, model, case, options or {})
        if tracker is not None and not outcome.error:
            entry = Entry(
                at=clock(),
                suite=suite,
                case=case.id,
                category=case.category,
                passed=outcome.passed,
                reason=outcome.reason,
            )
            tracker.record(f"{provider.name}/{model}", entry)
        yield outcome


async def run_case(
    provider: Provider, model: str, case: Case, options: Mapping[str, Any]
) -> Outcome:
    """Ask once; for error recovery answer the first calls with errors and ask again; for a case in
    steps answer each with "done" until there are no more."""
    messages = [*case.before, *(Message(role=role, content=said) for role, said in case.messages)]  # type: ignore[arg-type]
    calls: tuple[ToolCall, ...] = ()
    for asked in range(MOST_STEPS if case.in_steps else MOST_REPLIES):
        request = Request(model=model, messages=tuple(messages), tools=case.tools, options=options)
        try:
            reply = await provider.complete(request)
        except ProviderError as error:
            return Outcome(case=case, passed=False, reason=str(error), error=True)
        calls = (*calls, *reply.tool_calls) if case.in_steps else reply.tool_calls
        if not reply.tool_calls or not (case.in_steps or (case.failing and asked == 0)):
            break
        messages += _answered(reply, case, asked)
    reason = problem_of(case, calls)
    return Outcome(case=case, passed=reason is None, reason=reason, calls=calls)


def _answered(reply: Reply, case: Case, asked: int) -> list[Message]:
    """The reply and the answers to its calls: the error that the case has for each."""
    calls = tuple(
        call
        if call.id
        else ToolCall(
            id=f"call_{asked}_{place}", name=call.name, arguments=call.arguments, raw=call.raw
        )
        for place, call in enumerate(reply.tool_calls)
    )
    said = Message(
        role="assistant", content=reply.content, tool_calls=calls, provider_data=reply.provider_data
    )
    return [said, *(done(call) if case.in_steps else _result(call, case) for call in calls)]


def _result(call: ToolCall, case: Case) -> Message:
    result = {
        "success": False,
        "error": case.failing.get(call.name, "not found"),
        "tool_name": call.name,
        "execution_time_ms": 1.0,
    }
    return Message(
        role="tool", content=canonical_text(result), tool_call_id=call.id, name=call.name
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How a suite went."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    by_category: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Passed and total of each category."""


def summarized(outcomes: Sequence[Outcome]) -> Summary:
    """The counts of some outcomes."""
    asked = [one for one in outcomes if not one.error]
    by_category: dict[str, tuple[int, int]] = {}
    for one in asked:
        passed, total = by_category.get(one.case.category, (0, 0))
        by_category[one.case.category] = (passed + one.passed, total + 1)
    passed = sum(one.passed for one in asked)
    return Summary(
        passed=passed,
        failed=len(asked) - passed,
        errors=len(outcomes) - len(asked),
        by_category=by_category,
    )
