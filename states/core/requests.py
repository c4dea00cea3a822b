"""From the names of effects to their values: what the core asks the driver to do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from toolchart.states.core.reduce import say, settle
from toolchart.states.effects import (
    Answer,
    CallModel,
    Effect,
    ReviewCalls,
    RunTools,
    Wait,
)
from toolchart.states.events import Limits
from toolchart.states.facts import limits_of, spent_budget
from toolchart.states.machine import Move
from toolchart.states.messages import Message, Request
from toolchart.states.snapshot import Snapshot

AT_LIMIT = "I reached the maximum number of tool calls ({limit}) before I had a final answer."
AT_BUDGET = "I reached the limit of this turn ({budget}) before I had a final answer."
ISSUE = "I encountered an issue while answering"


def ask(context: Snapshot, move: Move) -> tuple[Snapshot, tuple[Effect, ...]]:
    """The snapshot in its new configuration, and the effects in the order of their names."""
    return ask_for(context.evolve(configuration=move.configuration), move.effects)


def ask_for(snapshot: Snapshot, names: tuple[str, ...]) -> tuple[Snapshot, tuple[Effect, ...]]:
    """The effects of these names, in this order, and the snapshot that knows of them."""
    effects: tuple[Effect, ...] = ()
    for name in names:
        snapshot, effect = _effect(snapshot, name)
        effects += (effect,)
    return snapshot, effects


def _effect(snapshot: Snapshot, name: str) -> tuple[Snapshot, Effect]:
    match name:
        case "call_model":
            return _call_model(snapshot, name, with_tools=True)
        case "call_model_without_tools":
            return _call_model(snapshot, name, with_tools=False)
        case "review_calls":
            calls = tuple(opened.call for opened in snapshot.calls)
            return snapshot, ReviewCalls(name=name, calls=calls, allowed=_allowed(snapshot))
        case "run_tools":
            return snapshot, _run_tools(snapshot, name)
        case "wait":
            return snapshot, Wait(name=name, seconds=_wait_s(snapshot))
        case "answer":
            return _answer(snapshot, name, _said(snapshot) or "")
        case "answer_at_limit":
            limit = _limit(snapshot)
            text = _limit_text(snapshot, limit)
            return _answer(snapshot.evolve(limit_reached=limit), name, text)
        case "answer_with_error":
            return _answer(snapshot, name, _error_text(snapshot))
    raise AssertionError(f"effect {name!r} is in the vocabulary and has no value")


def _call_model(snapshot: Snapshot, name: str, *, with_tools: bool) -> tuple[Snapshot, Effect]:
    snapshot = settle(snapshot, "the reply was not carried out")
    settings = snapshot.settings
    assert settings is not None, "a turn has settings"
    tools = snapshot.offered if with_tools else ()
    system = snapshot.system
    seen = f"{snapshot.setup_digest}:{len(tools)}:{snapshot.digest}"
    request = Request(
        model=settings.model,
        messages=_Prefixed(system, snapshot.messages) if system else snapshot.messages,
        tools=tools,
        options=settings.options,
        turn=snapshot.turn,
        iteration=snapshot.iteration,
        fingerprint=hashlib.sha256(seen.encode()).hexdigest()[:32],
    )
    if snapshot.tools_sent != bool(tools):
        snapshot = snapshot.evolve(tools_sent=bool(tools))
    return snapshot, CallModel(name=name, request=request)


def _allowed(snapshot: Snapshot) -> tuple[str, ...]:
    return snapshot.settings.tools if snapshot.settings else ()


def _run_tools(snapshot: Snapshot, name: str) -> RunTools:
    runnable, refused = [], []
    for opened in snapshot.calls:
        if opened.outcome is not None:
            continue
        if opened.ruling == "run":
            runnable.append(opened.call)
        else:
            outcome = "denied" if opened.ruling == "denied" else "failed"
            refused.append((opened.call, outcome, opened.reason or "not reviewed"))
    return RunTools(
        name=name, calls=tuple(runnable), refused=tuple(refused), allowed=_allowed(snapshot)
    )


def _wait_s(snapshot: Snapshot) -> float:
    """What the host asks for, else a back-off that doubles with every failure; never above the limit."""
    failure, limits = snapshot.failure, limits_of(snapshot)
    if failure is not None and failure.retry_after_s is not None:
        return min(failure.retry_after_s, limits.max_wait_s)
    jitter = failure.jitter if failure is not None else 0.0
    pause = limits.first_wait_s * 2.0 ** min(max(0, snapshot.attempt - 1), 60)
    return round(min(pause, limits.max_wait_s) * (1 - jitter / 4), 3)


# -- answers -------------------------------------------------------------------------------------


def _answer(snapshot: Snapshot, name: str, content: str) -> tuple[Snapshot, Effect]:
    """End the turn: no call stays open, and the conversation ends with what the user was told."""
    said = _said(snapshot)
    snapshot = settle(snapshot, "the turn ended")
    if snapshot.messages[-1].role != "assistant" or (said or "") != content:
        snapshot = say(snapshot, Message(role="assistant", content=content))
    return snapshot.evolve(answer=content, ended_by=name), Answer(name=name, content=content)


def _said(snapshot: Snapshot) -> str | None:
    """What the model has said in text since it last heard something: its content, else its refusal.

    Several replies in a row, as when a chart lets a cut answer go on, are one text.
    """
    reply = snapshot.reply
    if reply is None:
        return None
    parts: list[str] = []
    for place in range(len(snapshot.messages) - 1, -1, -1):
        message = snapshot.messages[place]
        if message.role != "assistant":
            break
        parts.append(message.content or "")
    text = "".join(reversed(parts)) or reply.content or ""
    return text if text.strip() else reply.refusal


def _limit(snapshot: Snapshot) -> str:
    limits = snapshot.settings.limits if snapshot.settings else Limits()
    budget = spent_budget(snapshot)
    if budget is None or snapshot.iteration >= limits.max_iterations:
        return "max_iterations"
    return budget


def _limit_text(snapshot: Snapshot, limit: str) -> str:
    limits = snapshot.settings.limits if snapshot.settings else Limits()
    if limit == "max_iterations":
        text = AT_LIMIT.format(limit=limits.max_iterations)
    else:
        text = AT_BUDGET.format(budget=limit)
    said = _said(snapshot)
    return f"{text}\n\n{said}" if said else text


def _error_text(snapshot: Snapshot) -> str:
    if snapshot.cancelled:
        return f"{ISSUE}: the turn was cancelled."
    failure = snapshot.failure
    if failure is not None:
        return f"{ISSUE}: the model call failed ({failure.kind})."
    said = _said(snapshot)
    if said:
        return said
    reason = snapshot.reply.finish_reason if snapshot.reply else "unknown"
    return f"{ISSUE}: the model stopped with {reason!r}."


class _Prefixed(Sequence[Message]):
    """The system message in front of the conversation, without copying the conversation."""

    __slots__ = ("_first", "_rest")

    def __init__(self, system: str, rest: Sequence[Message]) -> None:
        self._first = Message(role="system", content=system)
        self._rest = rest

    def __len__(self) -> int:
        return len(self._rest) + 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        return self._first if index == 0 else self._rest[index - 1]

    def __iter__(self) -> Iterator[Message]:
        yield self._first
        yield from self._rest
