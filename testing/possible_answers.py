"""The events that may come next in a turn, and the ways in which a turn may begin.

Which words, numbers and kinds of failure can make a difference to a chart is read from its guards, so a
chart is tried with those and with few others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from toolchart.states.effects import AskApproval, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.events import (
    FAILURE_KINDS,
    Answering,
    Cancelled,
    Decided,
    Elapsed,
    Event,
    Failed,
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
from toolchart.states.machine import Machine
from toolchart.states.messages import FINISH_REASONS, Reply, ToolCall, Usage
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.testing.manual_turn import TOOLS, ManualTurn

MAX_CALLS = 12
"""Most calls in one scripted reply."""

TOKENS_PER_REPLY = 10
"""Tokens that every scripted reply reports."""

_CALL_COUNT_FACTS = frozenset(
    ["tool_calls", "pending_calls", "undecided_calls", "approved_calls", "denied_calls"]
)


class GuardTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The facts, numbers and words that the guards of a chart name."""

    facts: frozenset[str]
    """Facts that at least one guard names."""
    numbers: dict[str, tuple[int, ...]]
    """By fact: the whole numbers in the guards that name it."""
    words: frozenset[str]
    """Texts that guards compare with."""

    @property
    def largest(self) -> int:
        """The largest number that any guard names."""
        return max((n for group in self.numbers.values() for n in group), default=0)


def collect_guard_terms(machine: Machine) -> GuardTerms:
    """Collect the facts, numbers and words that a chart's guards name."""
    numbers: dict[str, set[int]] = {}
    words: set[str] = set()
    for text in machine.guards:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
        values = [node.value for node in nodes if isinstance(node, ast.Constant)]
        words.update(value for value in values if isinstance(value, str))
        for node in nodes:
            if isinstance(node, ast.Name):
                of_fact = numbers.setdefault(node.id, set())
                of_fact.update(v for v in values if isinstance(v, int) and not isinstance(v, bool))
    return GuardTerms(
        facts=frozenset(numbers),
        numbers={name: tuple(sorted(group)) for name, group in numbers.items()},
        words=frozenset(words),
    )


# -- how a turn begins ---------------------------------------------------------------------------


def list_turn_starts(terms: GuardTerms) -> tuple[TurnStarted, ...]:
    """Return events that begin a turn: with low limits and with high ones, and where a guard reads
    them also with a budget, without tools, or with a limit near the number that the guard names."""
    low = Limits(max_iterations=2, max_tool_only_streak=2, max_repeats=1, max_attempts=2)
    roomy = Limits(max_iterations=4, max_tool_only_streak=2, max_repeats=1, max_attempts=3)
    limits = [low, roomy, replace(roomy, max_tool_only_streak=4), *_list_limits_near(terms, roomy)]
    if terms.facts & {"budget_spent", "calls_over_budget"}:
        limits += [
            replace(roomy, max_tokens=TOKENS_PER_REPLY),
            replace(roomy, max_tokens=2 * TOKENS_PER_REPLY),
            replace(roomy, max_tool_calls=1),
        ]
    turn_starts = [_make_turn_start(limit, with_tools=True) for limit in limits]
    if terms.facts & {"tools_offered", "tools_sent"}:
        turn_starts.append(_make_turn_start(roomy, with_tools=False))
    if "strict_warnings" in terms.facts:
        turn_starts.append(_make_turn_start(roomy, with_tools=True, is_strict=True))
    return tuple(turn_starts)


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
    """Yield every event that may come next, the simplest first; none when the turn is over."""
    snapshot = turn.snapshot
    if snapshot.is_over:
        return
    for effect in turn.open_effects:
        for answer in _list_answers(effect, snapshot, terms):
            yield replace(answer, effect=effect.id)
    assert snapshot.configuration is not None, "a turn that is not over has a configuration"
    legal = turn.machine.legal_events(snapshot.configuration)
    if UserSaid.TYPE in legal or "*" in legal:
        yield UserSaid(message="And one more thing.")
    yield Cancelled(reason="scripted")


def _list_answers(effect: Effect, snapshot: Snapshot, terms: GuardTerms) -> Iterator[Answering]:
    match effect:
        case CallModel():
            yield from (Replied(reply=reply) for reply in _list_replies(snapshot, terms))
            yield from _list_failures(terms)
        case ReviewCalls() if list_undecided_calls(snapshot):
            yield from _list_decisions(snapshot)
        case ReviewCalls():
            yield from _list_reviews(effect)
        case AskApproval():
            yield from _list_decisions(snapshot)
        case RunTools():
            yield from _list_outcomes(effect, snapshot)
        case Wait():
            yield Elapsed()


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
        if reason not in ("stop", "tool_calls"):
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


def _list_failures(terms: GuardTerms) -> Iterator[Failed]:
    kinds = [kind for kind in sorted(terms.words) if kind in _PROVIDER_FAILURES]
    for kind in ("server", *kinds):
        for retryable in (True, False):
            yield Failed(kind=kind, message="scripted", retryable=retryable)


_PROVIDER_FAILURES = frozenset(FAILURE_KINDS) - {"cancelled"}
"""Failures that a provider reports; `cancelled` is an event of its own."""


def _list_reviews(effect: ReviewCalls) -> Iterator[Reviewed]:
    rulings: tuple[Ruling, ...] = ("run", "needs_approval", "denied", "invalid")
    for first in rulings if effect.calls else rulings[:1]:
        for rest in ("run", first) if len(effect.calls) > 1 and first != "run" else (first,):
            yield Reviewed(
                verdicts=tuple(
                    Verdict(call_id=call.id, ruling=rest if place else first, reason=None)
                    for place, call in enumerate(effect.calls)
                )
            )


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
    for open_call in pending_calls[:1]:
        for outcome in list_outcomes(open_call):
            yield make_tool_finished(open_call, outcome)


def list_pending_calls(effect: RunTools, snapshot: Snapshot) -> list[OpenCall]:
    """Return the calls of a `run_tools` that have no outcome yet."""
    ids = {call.id for call in effect.calls} | {refusal.call.id for refusal in effect.refused}
    return [call for call in snapshot.calls if call.outcome is None and call.call.id in ids]


def make_empty_outcome() -> ToolFinished:
    """Make the `tool_finished` event of a `run_tools` that has no call to answer."""
    return ToolFinished(call_id="", outcome="skipped", result={})


def list_outcomes(open_call: OpenCall) -> tuple[Outcome, ...]:
    """Return the outcomes that a call with this ruling can have."""
    match open_call.ruling:
        case "run":
            return ("succeeded", "failed")
        case "denied":
            return ("denied",)
        case "needs_approval":
            return ("expired",)
        case "invalid":
            return ("failed",)
        case _:
            return ("skipped",)


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
