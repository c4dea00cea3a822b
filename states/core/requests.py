"""Builds the effects of a step: model requests, tool runs, back-off before a retry, answers at limits.

A chart only names its effects (`enter: call_model`). This module is the second half of the core: it
turns each name into a value built from the context alone. `CallModel` carries the complete model
request, `RunTools` carries the calls, `Wait` carries its seconds. The driver adds nothing and decides
nothing, so replay can build the same effects again from the log.

Building an effect can change the context too. A model call first closes the calls that are still open,
and an answer appends the final assistant message. Both happen in the step's `SnapshotBuilder`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from toolchart.states.core.reduce import append_message, close_open_calls
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.facts import find_spent_budget, get_turn_limits
from toolchart.states.messages import Message, Request
from toolchart.states.snapshot import SnapshotBuilder

AT_LIMIT = "I reached the maximum number of tool calls ({limit}) before I had a final answer."
AT_BUDGET = "I reached the limit of this turn ({budget}) before I had a final answer."
ISSUE = "I encountered an issue while answering"


def build_effects(builder: SnapshotBuilder, names: tuple[str, ...]) -> tuple[Effect, ...]:
    """The effects of these names, in this order; building them may change the context."""
    return tuple([_build_effect(builder, name) for name in names])


def _build_effect(builder: SnapshotBuilder, name: str) -> Effect:
    match name:
        case "call_model":
            return _build_model_call(builder, name, with_tools=True)
        case "call_model_without_tools":
            return _build_model_call(builder, name, with_tools=False)
        case "review_calls":
            calls = tuple(open_call.call for open_call in builder.calls)
            return ReviewCalls(name=name, calls=calls, allowed=_get_allowed_tools(builder))
        case "run_tools":
            return _build_tool_run(builder, name)
        case "wait":
            return Wait(name=name, seconds=_compute_wait_s(builder))
        case "answer":
            return _build_answer(builder, name, _find_answer_text(builder) or "")
        case "answer_at_limit":
            limit = _find_reached_limit(builder)
            content = _format_limit_answer(builder, limit)
            builder.limit_reached = limit
            return _build_answer(builder, name, content)
        case "answer_with_error":
            return _build_answer(builder, name, _format_error_answer(builder))
    raise AssertionError(f"effect {name!r} is in the vocabulary and has no value")


# -- model calls ---------------------------------------------------------------------------------


def _build_model_call(builder: SnapshotBuilder, name: str, *, with_tools: bool) -> CallModel:
    close_open_calls(builder, "the reply was not carried out")
    settings = builder.settings
    assert settings is not None, "a turn has settings"
    tools = builder.offered_tools if with_tools else ()
    system = builder.system
    # Both digests are kept up to date by `reduce`, so a fingerprint costs the same at any length.
    fingerprint_input = f"{builder.setup_digest}:{len(tools)}:{builder.digest}"
    request = Request(
        model=settings.model,
        messages=_SystemPrefixed(system, builder.messages) if system else builder.messages,
        tools=tools,
        options=settings.options,
        turn=builder.turn,
        iteration=builder.iteration,
        fingerprint=hashlib.sha256(fingerprint_input.encode()).hexdigest()[:32],
    )
    builder.tools_sent = bool(tools)
    return CallModel(name=name, request=request)


class _SystemPrefixed(Sequence[Message]):
    """The system message in front of the conversation, without copying the conversation."""

    __slots__ = ("_messages", "_system_message")

    def __init__(self, system: str, messages: Sequence[Message]) -> None:
        self._system_message = Message(role="system", content=system)
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages) + 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        return self._system_message if index == 0 else self._messages[index - 1]

    def __iter__(self) -> Iterator[Message]:
        yield self._system_message
        yield from self._messages


# -- tools and waits -----------------------------------------------------------------------------


def _get_allowed_tools(builder: SnapshotBuilder) -> tuple[str, ...]:
    return builder.settings.tools if builder.settings else ()


def _build_tool_run(builder: SnapshotBuilder, name: str) -> RunTools:
    """Calls that may run, and calls that may not: the executor gives an outcome to both kinds."""
    runnable, refused = [], []
    for open_call in builder.calls:
        if open_call.outcome is not None:
            continue
        if open_call.ruling == "run":
            runnable.append(open_call.call)
        else:
            outcome = "denied" if open_call.ruling == "denied" else "failed"
            refused.append((open_call.call, outcome, open_call.reason or "not reviewed"))
    return RunTools(
        name=name, calls=tuple(runnable), refused=tuple(refused), allowed=_get_allowed_tools(builder)
    )


def _compute_wait_s(builder: SnapshotBuilder) -> float:
    """Seconds to wait before the next attempt: what the host asks for, else exponential back-off.

    The back-off is `first_wait_s * 2 ** (attempt - 1)`, less up to a quarter of jitter. The jitter
    comes with the event `failed`, because the core draws no random numbers. Neither exceeds `max_wait_s`.
    """
    failure, limits = builder.failure, get_turn_limits(builder)
    if failure is not None and failure.retry_after_s is not None:
        return min(failure.retry_after_s, limits.max_wait_s)
    jitter = failure.jitter if failure is not None else 0.0
    pause = limits.first_wait_s * 2.0 ** min(max(0, builder.attempt - 1), 60)
    return round(min(pause, limits.max_wait_s) * (1 - jitter / 4), 3)


# -- answers -------------------------------------------------------------------------------------


def _build_answer(builder: SnapshotBuilder, name: str, content: str) -> Answer:
    """End the turn: no call stays open, and the last message is the text that the user receives."""
    # Read the text first: closing the calls appends tool messages behind the model's last words.
    answer_text = _find_answer_text(builder)
    close_open_calls(builder, "the turn ended")
    if builder.messages[-1].role != "assistant" or (answer_text or "") != content:
        append_message(builder, Message(role="assistant", content=content))
    builder.answer = content
    builder.ended_by = name
    return Answer(name=name, content=content)


def _find_answer_text(builder: SnapshotBuilder) -> str | None:
    """The model's text since the latest message that is not its own; without text, its refusal.

    Several replies in a row are one text. This happens where a chart lets a reply that was cut off
    (`finish_reason == 'length'`) continue.
    """
    reply = builder.reply
    if reply is None:
        return None
    parts: list[str] = []
    for index in range(len(builder.messages) - 1, -1, -1):
        message = builder.messages[index]
        if message.role != "assistant":
            break
        parts.append(message.content or "")
    text = "".join(reversed(parts)) or reply.content or ""
    return text if text.strip() else reply.refusal


def _find_reached_limit(builder: SnapshotBuilder) -> str:
    budget = find_spent_budget(builder)
    if budget is None or builder.iteration >= get_turn_limits(builder).max_iterations:
        return "max_iterations"
    return budget


def _format_limit_answer(builder: SnapshotBuilder, limit: str) -> str:
    """Name the limit, and keep whatever the model has written so far."""
    if limit == "max_iterations":
        text = AT_LIMIT.format(limit=get_turn_limits(builder).max_iterations)
    else:
        text = AT_BUDGET.format(budget=limit)
    answer_text = _find_answer_text(builder)
    return f"{text}\n\n{answer_text}" if answer_text else text


def _format_error_answer(builder: SnapshotBuilder) -> str:
    if builder.cancelled:
        return f"{ISSUE}: the turn was cancelled."
    failure = builder.failure
    if failure is not None:
        return f"{ISSUE}: the model call failed ({failure.kind})."
    answer_text = _find_answer_text(builder)
    if answer_text:
        return answer_text
    reason = builder.reply.finish_reason if builder.reply else "unknown"
    return f"{ISSUE}: the model stopped with {reason!r}."
