"""What may happen next in a turn: the answers that its waiting effects can get.

A chart is tried with every answer that could make a difference to it, and with few others: which
words, numbers and kinds of failure those are is read from its guards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from toolchart.states.effects import CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.events import (
    FAILURE_KINDS,
    Cancelled,
    Decided,
    Failed,
    Limits,
    MachineEvent,
    Outcome,
    Replied,
    Reviewed,
    Ruling,
    Settings,
    ToolFinished,
    TurnStarted,
    Verdict,
    Waited,
)
from toolchart.states.machine import Machine
from toolchart.states.messages import FINISH_REASONS, Reply, ToolCall, Usage
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.testing.manual_turn import TOOLS, Walk

MOST_CALLS = 12
"""Calls in one scripted reply at most."""

TOKENS_PER_REPLY = 10

_COUNTS_OF_CALLS = frozenset(
    ["tool_calls", "pending_calls", "undecided_calls", "approved_calls", "denied_calls"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What the guards of a chart ask for."""

    facts: frozenset[str]
    """Facts that some guard names."""
    numbers: dict[str, tuple[int, ...]]
    """Whole numbers that stand in one guard with a fact, by fact."""
    words: frozenset[str]
    """Words that guards compare with."""

    @property
    def largest(self) -> int:
        """The largest number that any guard names."""
        return max((n for some in self.numbers.values() for n in some), default=0)


def questions_of(machine: Machine) -> Questions:
    """What a chart's guards ask for."""
    numbers: dict[str, set[int]] = {}
    words: set[str] = set()
    for text in machine.guards:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
        values = [node.value for node in nodes if isinstance(node, ast.Constant)]
        words.update(value for value in values if isinstance(value, str))
        for node in nodes:
            if isinstance(node, ast.Name):
                found = numbers.setdefault(node.id, set())
                found.update(v for v in values if isinstance(v, int) and not isinstance(v, bool))
    return Questions(
        facts=frozenset(numbers),
        numbers={name: tuple(sorted(found)) for name, found in numbers.items()},
        words=frozenset(words),
    )


# -- how a turn begins ---------------------------------------------------------------------------


def openings(questions: Questions) -> tuple[TurnStarted, ...]:
    """First events of a turn: with low limits, with roomy ones, and where a guard asks for it with
    a budget, without tools, or with a limit near the number that it names."""
    low = Limits(max_iterations=2, max_tool_only_streak=2, max_repeats=1, max_attempts=2)
    roomy = Limits(max_iterations=4, max_tool_only_streak=2, max_repeats=1, max_attempts=3)
    limits = [low, roomy, replace(roomy, max_tool_only_streak=4), *_near(questions, roomy)]
    if "budget_spent" in questions.facts:
        limits += [
            replace(roomy, max_tokens=TOKENS_PER_REPLY),
            replace(roomy, max_tokens=2 * TOKENS_PER_REPLY),
            replace(roomy, max_tool_calls=1),
        ]
    opened = [_opening(one, with_tools=True) for one in limits]
    if questions.facts & {"tools_offered", "tools_sent"}:
        opened.append(_opening(roomy, with_tools=False))
    return tuple(opened)


def _near(questions: Questions, base: Limits) -> Iterator[Limits]:
    for name in sorted(questions.facts):
        if name.startswith("max_"):
            for number in questions.numbers[name]:
                for near in (number - 1, number, number + 1):
                    if near > 0:
                        yield replace(base, **{name: near})


def _opening(limits: Limits, *, with_tools: bool) -> TurnStarted:
    tools = tuple(tool.name for tool in TOOLS) if with_tools else ()
    settings = Settings(
        service="model", provider="scripted", model="scripted", tools=tools, limits=limits
    )
    return TurnStarted(message="What is it?", settings=settings)


# -- how it goes on ------------------------------------------------------------------------------


def answers(walk: Walk, questions: Questions) -> Iterator[MachineEvent]:
    """Every event that may come next, the plainest first; none when the turn is over."""
    if walk.snapshot.over:
        return
    for effect in walk.waiting:
        yield from _answers_to(effect, walk.snapshot, questions)
    yield from _decisions(walk.snapshot)
    yield Cancelled(reason="scripted")


def _answers_to(effect: Effect, snapshot: Snapshot, questions: Questions) -> Iterator[MachineEvent]:
    match effect:
        case CallModel():
            yield from (Replied(reply=reply) for reply in _replies(snapshot, questions))
            yield from _failures(questions)
        case ReviewCalls():
            yield from _reviews(snapshot)
        case RunTools():
            yield from _outcomes(snapshot)
        case Wait():
            yield Waited(seconds=effect.seconds)


def _replies(snapshot: Snapshot, questions: Questions) -> Iterator[Reply]:
    usage = Usage(total=TOKENS_PER_REPLY)
    yield Reply(content="It is so.", finish_reason="stop", usage=usage)
    for content in (None, "Let me look."):
        for calls in _calls(snapshot, questions):
            yield Reply(content=content, tool_calls=calls, finish_reason="tool_calls", usage=usage)
    for reason in FINISH_REASONS:
        if reason not in ("stop", "tool_calls"):
            yield Reply(content="It is", finish_reason=reason, usage=usage)
            yield Reply(finish_reason=reason, usage=usage)
    yield Reply(finish_reason="stop", usage=usage)
    cut = ToolCall(name=TOOLS[0].name, raw='{"place": ', problem="it ends early")
    yield Reply(tool_calls=(cut,), finish_reason="length", usage=usage)


def _calls(snapshot: Snapshot, questions: Questions) -> Iterator[tuple[ToolCall, ...]]:
    """One call as before, one that was not made yet, and as many at once as guards ask for."""
    same = ToolCall(name=TOOLS[0].name, arguments={"place": 0})
    fresh = replace(same, arguments={"place": snapshot.replies + 1})
    yield (same,)
    yield (fresh,)
    asked = {n for name in _COUNTS_OF_CALLS for n in questions.numbers.get(name, ())}
    sizes = {2} | {n + more for n in asked for more in (0, 1) if 2 < n + more <= MOST_CALLS}
    for size in sorted(sizes):
        first = 100 * (snapshot.replies + 1)
        yield tuple(replace(same, arguments={"place": first + n}) for n in range(size))


def _failures(questions: Questions) -> Iterator[Failed]:
    kinds = [kind for kind in sorted(questions.words) if kind in _KINDS]
    for kind in ("server", *kinds):
        for retryable in (True, False):
            yield Failed(kind=kind, message="scripted", retryable=retryable)


_KINDS = frozenset(FAILURE_KINDS) - {"cancelled"}
"""Failures that a provider reports; `cancelled` comes as an event of its own."""


def _reviews(snapshot: Snapshot) -> Iterator[Reviewed]:
    calls = [opened.call for opened in snapshot.calls]
    rulings: tuple[Ruling, ...] = ("run", "needs_approval", "denied", "invalid")
    for first in rulings:
        for rest in ("run", first) if len(calls) > 1 and first != "run" else (first,):
            yield Reviewed(
                verdicts=tuple(
                    Verdict(call_id=call.id, ruling=rest if place else first, reason=None)
                    for place, call in enumerate(calls)
                )
            )


def _decisions(snapshot: Snapshot) -> Iterator[Decided]:
    waiting = [opened for opened in snapshot.calls if opened.ruling == "needs_approval"]
    for opened in waiting[:1]:
        for approved in (True, False):
            yield Decided(call_id=opened.call.id, approved=approved)


def _outcomes(snapshot: Snapshot) -> Iterator[ToolFinished]:
    pending = [opened for opened in snapshot.calls if opened.outcome is None]
    for opened in pending[:1]:
        for outcome in outcomes_of(opened):
            yield finished(opened, outcome)


def outcomes_of(opened: OpenCall) -> tuple[Outcome, ...]:
    """How a call may end that was judged like this."""
    match opened.ruling:
        case "run":
            return ("succeeded", "failed")
        case "denied":
            return ("denied",)
        case _:
            return ("failed",)


def finished(opened: OpenCall, outcome: Outcome) -> ToolFinished:
    """The event with which a call ends."""
    good = outcome == "succeeded"
    result = {
        "success": good,
        "tool_name": opened.call.name,
        "execution_time_ms": 1.0,
        **({"result": "found"} if good else {"error": f"the call ended as {outcome}"}),
    }
    return ToolFinished(call_id=opened.call.id, outcome=outcome, result=result)
