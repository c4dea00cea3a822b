"""Runs the cases of a suite against a model and records each result at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolCall
from toolchart.states.ports import Provider
from toolchart.tools.validation.cases import Case
from toolchart.tools.validation.scoring import find_problem
from toolchart.tools.validation.tracker import Entry, Tracker

MAX_REPLIES = 3
"""Largest number of replies of one case; error recovery takes two."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one case."""

    case: Case
    passed: bool
    reason: str | None = None
    """Why it did not pass; None if it did."""
    calls: tuple[ToolCall, ...] = ()
    """The calls that were judged."""
    error: bool = False
    """Whether the model could not be reached; such a result is not recorded."""


def format_current_time() -> str:
    """The current time in RFC 3339, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def run_suite(
    provider: Provider,
    model: str,
    cases: Sequence[Case],
    *,
    suite: str = "basic",
    tracker: Tracker | None = None,
    options: Mapping[str, Any] | None = None,
    clock: Callable[[], str] = format_current_time,
) -> AsyncGenerator[Outcome, None]:
    """Run the cases one after the other and yield each outcome once the tracker has recorded it.

    If the model cannot be reached (no connection, no such model), the outcome has `error` set and is not
    recorded.

    Args:
        suite: name of the suite, for the record.
        options: model options of every request.
        clock: returns the current time for the record.

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


async def run_case(provider: Provider, model: str, case: Case, options: Mapping[str, Any]) -> Outcome:
    """Run one case and judge its calls.

    A case with `failing` tools gets errors as the results of its first calls, and the calls of the next
    reply are judged.
    """
    messages = [Message(role=role, content=text) for role, text in case.messages]  # type: ignore[arg-type]
    calls: tuple[ToolCall, ...] = ()
    for step in range(MAX_REPLIES):
        request = Request(model=model, messages=tuple(messages), tools=case.tools, options=options)
        try:
            reply = await provider.complete(request)
        except ProviderError as error:
            return Outcome(case=case, passed=False, reason=str(error), error=True)
        calls = reply.tool_calls
        if not calls or not (case.failing and step == 0):
            break
        messages += _answer_calls(reply, case, step)
    reason = find_problem(case, calls)
    return Outcome(case=case, passed=reason is None, reason=reason, calls=calls)


def _answer_calls(reply: Reply, case: Case, step: int) -> list[Message]:
    """The messages that follow a reply: the reply itself and the result of each of its calls."""
    calls = tuple(
        call
        if call.id
        else ToolCall(id=f"call_{step}_{position}", name=call.name, arguments=call.arguments, raw=call.raw)
        for position, call in enumerate(reply.tool_calls)
    )
    reply_message = Message(
        role="assistant", content=reply.content, tool_calls=calls, provider_data=reply.provider_data
    )
    return [reply_message, *(_make_error_message(call, case) for call in calls)]


def _make_error_message(call: ToolCall, case: Case) -> Message:
    result = {
        "success": False,
        "error": case.failing.get(call.name, "not found"),
        "tool_name": call.name,
        "execution_time_ms": 1.0,
    }
    return Message(role="tool", content=encode_canonical_text(result), tool_call_id=call.id, name=call.name)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a run of a suite."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    by_category: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Passed and total of each category."""


def summarize_outcomes(outcomes: Sequence[Outcome]) -> Summary:
    """Count the outcomes; those with `error` count as errors only."""
    judged_outcomes = [outcome for outcome in outcomes if not outcome.error]
    by_category: dict[str, tuple[int, int]] = {}
    for outcome in judged_outcomes:
        passed, total = by_category.get(outcome.case.category, (0, 0))
        by_category[outcome.case.category] = (passed + outcome.passed, total + 1)
    passed = sum(outcome.passed for outcome in judged_outcomes)
    return Summary(
        passed=passed,
        failed=len(judged_outcomes) - passed,
        errors=len(outcomes) - len(judged_outcomes),
        by_category=by_category,
    )
