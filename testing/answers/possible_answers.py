"""The events that may come next in a turn, and the ways in which a turn may begin.

Which words, numbers and kinds of failure can make a difference to a chart is read from its guards, so a
chart is tried with those and with few others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec.structs import replace

from toolchart.states.effects import AskApproval, CallModel, CountTokens, Effect, ReviewCalls, RunTools
from toolchart.states.events import (
    Answering,
    Cancelled,
    Counted,
    Decided,
    Event,
    Limits,
    Outcome,
    Replied,
    Reviewed,
    Ruling,
    Settings,
    ToolFinished,
    TurnStarted,
    UserSaid,
    Verdict,
)
from toolchart.states.flows.compaction import build_counted_request
from toolchart.states.messages import FINISH_REASONS, Reply, ToolCall, Usage
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.testing.answers.flow_answers import list_failures, list_flow_answers
from toolchart.testing.answers.guard_terms import GuardTerms
from toolchart.testing.manual_turn import TOOLS, ManualTurn

MAX_CALLS = 12
"""Most calls in one scripted reply."""

TOKENS_PER_REPLY = 10
"""Tokens that every scripted reply reports."""

ROOMY_CONTEXT = 1_000_000
"""A limit of tokens that no scripted turn comes near to. With a limit of one, every request is too long."""

_CALL_COUNT_FACTS = frozenset(
    ["tool_calls", "pending_calls", "undecided_calls", "approved_calls", "denied_calls"]
)


# -- how a turn begins ---------------------------------------------------------------------------


def list_turn_starts(
    terms: GuardTerms, variables: Mapping[str, Any] | None = None
) -> tuple[TurnStarted, ...]:
    """Return events that begin a turn: with low limits and with high ones, and where a guard reads
    them also with a budget, without tools, with a limit near the number that the guard names, or with
    a model that takes much or little in one request.

    Args:
        variables: of the caller, for the lists that agents work on.
    """
    low = Limits(max_iterations=2, max_tool_only_streak=2, max_repeats=1, max_attempts=2)
    roomy = Limits(max_iterations=4, max_tool_only_streak=2, max_repeats=1, max_attempts=3)
    if "long_results" in terms.facts:  # each result is long, and a call that fails has none
        low, roomy = replace(low, long_result_size=0), replace(roomy, long_result_size=0)
    limits = [low, roomy, replace(roomy, max_tool_only_streak=4), *_list_limits_near(terms, roomy)]
    if terms.facts & {"budget_spent", "calls_over_budget"}:
        limits += [
            replace(roomy, max_tokens=TOKENS_PER_REPLY),
            replace(roomy, max_tool_calls=1),
            replace(roomy, max_seconds=0.3),  # three events
        ]
    turn_starts = [_make_turn_start(limit, with_tools=True) for limit in limits]
    if terms.facts & {"tools_offered", "tools_sent"}:
        turn_starts.append(_make_turn_start(roomy, with_tools=False))
    if "strict_warnings" in terms.facts:
        turn_starts.append(_make_turn_start(roomy, with_tools=True, is_strict=True))
    if terms.facts & {"context_tokens", "context_limit"}:
        short = _limit_context(_make_turn_start(roomy, with_tools=True), 1)
        turn_starts = [*(_limit_context(start, ROOMY_CONTEXT) for start in turn_starts), short]
    return tuple(replace(turn_start, variables=dict(variables or {})) for turn_start in turn_starts)


def _limit_context(turn_start: TurnStarted, tokens: int) -> TurnStarted:
    """The start of a turn with a model that takes this many tokens in one request."""
    assert turn_start.settings is not None, "a scripted turn starts with settings"
    return replace(turn_start, settings=replace(turn_start.settings, context_limit=tokens))


def _list_limits_near(terms: GuardTerms, base: Limits) -> Iterator[Limits]:
    for name in sorted(terms.facts):
        if name.startswith("max_"):
            for number in terms.numbers[name]:
                for limit in (number - 1, number, number + 1):
                    if limit > 0:
                        yield replace(base, **{name: limit})


def _make_turn_start(limits: Limits, *, with_tools: bool, is_strict: bool = False) -> TurnStarted:
    tools = tuple(tool.name for tool in TOOLS) if with_tools else ()
    settings = Settings(
        service="model", provider="scripted", model="scripted", tools=tools, limits=limits, strict=is_strict
    )
    return TurnStarted(message="What is it?", settings=settings)


# -- events that continue a turn -----------------------------------------------------------------


def list_next_events(turn: ManualTurn, terms: GuardTerms) -> Iterator[Event]:
    """Yield every event that may come next, the simplest first; none when the chart has ended.

    Where the chart waits for the user, the next event may be the start of the next turn.
    """
    snapshot = turn.snapshot
    if snapshot.has_ended:
        return
    if snapshot.awaits_user and snapshot.settings is not None:
        yield TurnStarted(message="And what else?", settings=snapshot.settings)
    for effect in turn.open_effects:
        for answer in _list_answers(effect, turn, terms):
            yield replace(answer, effect=effect.id)
    assert snapshot.configuration is not None, "a turn that is not over has a configuration"
    legal = turn.machine.legal_events(snapshot.configuration)
    is_heard = any(name.partition(".")[0] in (UserSaid.TYPE, "*") for name in legal)
    if not snapshot.awaits_user and (is_heard or "unread_messages" in terms.facts):
        yield UserSaid(message="And one more thing.")
    if not snapshot.awaits_user or any(name in (Cancelled.TYPE, "*") for name in legal):
        yield Cancelled(reason="scripted")


def _list_answers(effect: Effect, turn: ManualTurn, terms: GuardTerms) -> Iterator[Answering]:
    snapshot = turn.snapshot
    match effect:
        case CallModel() if not effect.result:
            yield from (Replied(reply=reply) for reply in _list_replies(snapshot, terms))
            yield from list_failures(terms)
        case ReviewCalls() if effect.id not in turn.reviewed_effects:
            yield from _list_reviews(effect, snapshot)
        case ReviewCalls() | AskApproval():
            yield from _list_decisions(snapshot)
        case RunTools():
            yield from _list_outcomes(effect, snapshot)
        case CountTokens():
            yield from list_counts(snapshot)
        case _:
            yield from list_flow_answers(effect, terms)


def list_undecided_calls(snapshot: Snapshot) -> list[OpenCall]:
    """Return the calls that wait for a person's decision."""
    return [call for call in snapshot.calls if call.ruling == "needs_approval" and call.outcome is None]


def _list_replies(snapshot: Snapshot, terms: GuardTerms) -> Iterator[Reply]:
    usage = Usage(total=TOKENS_PER_REPLY)
    yield Reply(content="It is so.", finish_reason="stop", usage=usage)
    for content in (None, "Let me look."):
        for calls in _list_call_groups(snapshot, terms):
            yield Reply(content=content, tool_calls=calls, finish_reason="tool_calls", usage=usage)
    for reason in FINISH_REASONS:
        if reason not in ("stop", "tool_calls", "malformed_call"):  # that one is a failure
            yield Reply(content="It is", finish_reason=reason, usage=usage)
            yield Reply(finish_reason=reason, usage=usage)
    yield Reply(finish_reason="stop", usage=usage)
    if snapshot.settings is not None and snapshot.settings.strict:
        yield Reply(content="It is so.", finish_reason="stop", usage=usage, warnings=("scripted",))
    cut = ToolCall(name=TOOLS[0].name, raw='{"place": ', problem="it ends early")
    yield Reply(tool_calls=(cut,), finish_reason="length", usage=usage)


def _list_call_groups(snapshot: Snapshot, terms: GuardTerms) -> Iterator[tuple[ToolCall, ...]]:
    """Yield a repeated call, a new call, and groups of calls as large as the guards name."""
    same = ToolCall(name=TOOLS[0].name, arguments={"place": 0})
    fresh = replace(same, arguments={"place": snapshot.replies + 1})
    yield (same,)
    yield (fresh,)
    counts = {n for name in _CALL_COUNT_FACTS for n in terms.numbers.get(name, ())}
    sizes = {2} | {n + more for n in counts for more in (0, 1) if 2 < n + more <= MAX_CALLS}
    for size in sorted(sizes):
        first = 100 * (snapshot.replies + 1)
        yield tuple(replace(same, arguments={"place": first + n}) for n in range(size))


def _list_reviews(effect: ReviewCalls, snapshot: Snapshot) -> Iterator[Reviewed]:
    rulings: tuple[Ruling, ...] = ("run", "needs_approval", "denied", "invalid")
    for first in rulings if effect.calls else rulings[:1]:
        for rest in ("run", first) if len(effect.calls) > 1 and first != "run" else (first,):
            yield Reviewed(
                verdicts=tuple(
                    Verdict(call_id=call.id, ruling=rest if place else first, reason=None)
                    for place, call in enumerate(effect.calls)
                )
            )
    if effect.calls and snapshot.settings is not None and snapshot.settings.strict:
        repaired = (Verdict(call_id=call.id, ruling="run", is_repaired=True) for call in effect.calls)
        yield Reviewed(verdicts=tuple(repaired))


def _list_decisions(snapshot: Snapshot) -> Iterator[Decided]:
    undecided_calls = list_undecided_calls(snapshot)
    if not undecided_calls:
        yield Decided(call_id="", approved=False)
    for open_call in undecided_calls[:1]:
        for approved in (True, False):
            yield Decided(call_id=open_call.call.id, approved=approved)


def _list_outcomes(effect: RunTools, snapshot: Snapshot) -> Iterator[ToolFinished]:
    pending_calls = list_pending_calls(effect, snapshot)
    if not pending_calls:
        yield make_empty_outcome()
    refused_ids = {refusal.call.id for refusal in effect.refused}
    # One that may run and one that may not: either may end first.
    by_kind = {call.call.id in refused_ids: call for call in reversed(pending_calls)}
    for open_call in by_kind.values():
        for outcome in list_outcomes(effect, open_call):
            yield make_tool_finished(open_call, outcome)
            is_strict = snapshot.settings is not None and snapshot.settings.strict
            if outcome == "failed" and is_strict:
                yield replace(make_tool_finished(open_call, outcome), raised=True)


def list_pending_calls(effect: RunTools, snapshot: Snapshot) -> list[OpenCall]:
    """Return the calls of a `run_tools` that have no outcome yet."""
    ids = {call.id for call in effect.calls} | {refusal.call.id for refusal in effect.refused}
    return [call for call in snapshot.calls if call.outcome is None and call.call.id in ids]


def make_empty_outcome() -> ToolFinished:
    """Make the `tool_finished` event of a `run_tools` that has no call to answer."""
    return ToolFinished(call_id="", outcome="skipped", result={})


def list_counts(snapshot: Snapshot) -> tuple[Counted, ...]:
    """Return the answers to a count of tokens: a short conversation, and one that no model takes."""
    _, messages = build_counted_request(snapshot)
    sizes = (TOKENS_PER_REPLY, 2 * ROOMY_CONTEXT)
    return tuple(Counted(tokens=tokens, messages=messages, source="estimate") for tokens in sizes)


def list_outcomes(effect: RunTools, open_call: OpenCall) -> tuple[Outcome, ...]:
    """Return the outcomes that a call of a `run_tools` can have; a refused one has only that of its refusal.

    A process that was resumed refuses calls that may have begun, so the ruling of the call does not say it.
    """
    for refusal in effect.refused:
        if refusal.call.id == open_call.call.id:
            return (cast(Outcome, refusal.outcome),)
    return ("succeeded", "failed")


def make_tool_finished(open_call: OpenCall, outcome: Outcome) -> ToolFinished:
    """Make the `tool_finished` event of a call."""
    is_success = outcome == "succeeded"
    result = {
        "success": is_success,
        "tool_name": open_call.call.name,
        "execution_time_ms": 1.0,
        **({"result": "found"} if is_success else {"error": f"the call ended as {outcome}"}),
    }
    return ToolFinished(call_id=open_call.call.id, outcome=outcome, result=result)
