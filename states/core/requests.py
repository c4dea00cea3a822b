"""Builds the effects of a step: model requests, tool runs, back-off before a retry, answers at limits.

A chart only names its effects (`enter: call_model`). This is the third of the three parts of a step
(`step.py`): it turns each name into a value built from the context alone. `CallModel` carries the complete
model request, `RunTools` carries the calls, `Wait` carries its seconds. The driver adds nothing and decides
nothing, so replay can build the same effects again from the log.

In: the working copy, and the names of the effects of the states that were entered. Out: the values, each with
an id. Next: the step is done; the driver writes its record (`engine/log/record.py`) and then performs them.

Building an effect can change the context too. A model call first closes the calls that are still open and
takes the user's messages from the inbox, and an answer appends the final assistant message. Both happen in
the step's `SnapshotBuilder`.

`EFFECT_ROWS` at the end says what charts, the core and `check` want to know about each effect of the loop;
the kinds that belong to flows have their rows in `kinds.py`. How an effect is performed stands in
`engine/runtime/performers.py`, what a record shows of it in `engine/log/record.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, takewhile
from typing import Any

from msgspec.structs import replace

from toolchart.states.calls import close_open_calls, interrupt_requested_calls, mark_started_calls
from toolchart.states.content import has_words
from toolchart.states.core.reduce import append_inbox
from toolchart.states.effects import (
    Answer,
    AskApproval,
    CallModel,
    Effect,
    EffectDescriptor,
    RefusedCall,
    ReviewCalls,
    RunTools,
    Wait,
)
from toolchart.states.events import UNUSABLE_KINDS
from toolchart.states.flows.budgets import exceeds_call_budget, find_spent_budget
from toolchart.states.flows.times import format_due
from toolchart.states.message_list import MessageList, OfferedTools, RequestMessages
from toolchart.states.messages import Message, Request
from toolchart.states.snapshot import NO_CALLS, OpenCall, SnapshotBuilder, SnapshotFields, TurnError
from toolchart.states.starts import list_call_starts, list_no_starts

# -- model calls ---------------------------------------------------------------------------------

_NO_TOOLS = OfferedTools()


def _build_model_call(builder: SnapshotBuilder, name: str, id_: int, state: str) -> CallModel:
    return _build_call(builder, name, id_, state, builder.offered_tools)


def _build_final_model_call(builder: SnapshotBuilder, name: str, id_: int, state: str) -> CallModel:
    return _build_call(builder, name, id_, state, _NO_TOOLS)


def _build_call(builder: SnapshotBuilder, name: str, id_: int, state: str, tools: OfferedTools) -> CallModel:
    # Results of calls come before the user's messages: a host refuses a call without its result behind it.
    if builder.calls.pending:
        close_open_calls(builder, "the reply was not carried out")
    builder.calls = NO_CALLS
    if builder.inbox:
        append_inbox(builder)
    settings = builder.settings
    assert settings is not None, "a turn has settings"
    builder.tools_sent = bool(tools)
    if builder.asked_host or builder.asked_model:
        note_asked_model(builder, "", "")
    options: Mapping[str, Any] = settings.options
    if builder.iteration and "tool_choice" in options:
        options = release_choice(builder, options)
    messages: MessageList = builder.messages if builder.shown is None else builder.shown
    repair = list_repair_messages(builder)
    for message in repair:
        messages = messages.append(message)
    request = Request(
        model=settings.model,
        messages=RequestMessages(builder.system or None, messages),
        tools=tools,
        options=options,
        writes_tools_as_text=builder.writes_tools_as_text,
        turn=builder.turn,
        iteration=builder.iteration,
    )
    return CallModel(id=id_, name=name, state=state, request=request, own_messages=len(repair))


def list_repair_messages(builder: SnapshotBuilder) -> list[Message]:
    """After a reply that could not be used: its text, and what was wrong with it; else none.

    They are messages of this request only. The conversation goes on with the reply that can be used.
    """
    failure = builder.failure
    if failure is None:
        return []
    reply = failure.reply
    if failure.kind in UNUSABLE_KINDS:
        # Its private data may hold the call that nobody can read, which a host would refuse.
        words = reply.content if reply is not None else None
        reason = builder.texts.unusable.format(reason=failure.message)
        rejected = [Message(role="assistant", content=words)] if words and has_words(words) else []
        return [*rejected, Message(role="user", content=reason)]
    if failure.kind != "bad_output" or reply is None or not reply.content:
        return []
    rejected = Message(
        role="assistant", content=reply.content, provider_data=reply.provider_data, parts=reply.parts
    )
    return [rejected, Message(role="user", content=builder.texts.repair.format(reason=failure.message))]


def note_asked_model(builder: SnapshotBuilder, host: str, model: str) -> None:
    """Remember whom a model call of the conversation asks; after a failure somebody else is a fallback.

    Args:
        host, model: as the effect names them; empty for those of the turn.
    """
    is_other = (host, model) != (builder.asked_host, builder.asked_model)
    if is_other and builder.failure is not None:
        builder.fallbacks += 1
    builder.asked_host, builder.asked_model = host, model


def release_choice(builder: SnapshotBuilder, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of the next request with the choice of tools that holds there.

    A forced tool choice (`required`, a name) holds until the first outcome of the turn: forced in every
    iteration, the model could never answer. What it allows still holds.
    """
    choice = options.get("tool_choice")
    if not builder.iteration or choice in (None, "auto", "none"):
        return options
    new_choice = _release_choice(choice) if isinstance(choice, Mapping) else None
    others = {name: value for name, value in options.items() if name != "tool_choice"}
    return others if new_choice is None else {**others, "tool_choice": new_choice}


def _release_choice(choice: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The choice among several tools without its force; None for a single tool."""
    inner = choice.get("allowed_tools")
    if isinstance(inner, Mapping):
        return {**choice, "allowed_tools": {**inner, "mode": "auto"}}
    return {**choice, "mode": "auto"} if {"allowed", "tools"} & set(choice) else None


# -- tools and waits -----------------------------------------------------------------------------


def _build_review(builder: SnapshotBuilder, name: str, id_: int, state: str) -> ReviewCalls:
    calls = []
    for open_call in builder.calls:
        if open_call.outcome is None:
            calls.append(open_call.call)
    allowed = builder.settings.tools if builder.settings else ()
    return ReviewCalls(id=id_, name=name, state=state, calls=tuple(calls), allowed=allowed)


def build_approval(builder: SnapshotBuilder, name: str, id_: int, state: str) -> AskApproval:
    """The question to a person about every call that needs an approval."""
    calls = tuple(
        open_call.call
        for open_call in builder.calls
        if open_call.ruling == "needs_approval" and open_call.outcome is None
    )
    return AskApproval(id=id_, name=name, state=state, calls=calls)


def _build_tool_run(builder: SnapshotBuilder, name: str, id_: int, state: str) -> RunTools:
    """Calls that may run, and calls that may not: the executor gives an outcome to both kinds."""
    runnable, refused, idempotent_calls = [], [], []
    for open_call in builder.calls:
        if open_call.outcome is not None:
            continue
        if open_call.ruling != "run":
            refused.append(_build_refusal(builder, open_call))
            continue
        runnable.append(open_call.call)
        if open_call.idempotent:
            idempotent_calls.append(open_call)
    # An idempotent call begins without a mark: without a result it ends as interrupted.
    for open_call in idempotent_calls:
        builder.calls = builder.calls.replace_call(replace(open_call, began_under=id_))
    allowed = builder.settings.tools if builder.settings else ()
    return RunTools(
        id=id_, name=name, state=state, calls=tuple(runnable), refused=tuple(refused), allowed=allowed
    )


def _build_refusal(builder: SnapshotBuilder, open_call: OpenCall) -> RefusedCall:
    match open_call.ruling:
        case "needs_approval":
            return RefusedCall(call=open_call.call, outcome="expired", reason=builder.texts.expired)
        case "denied":
            return RefusedCall(call=open_call.call, outcome="denied", reason=open_call.reason or "denied")
        case "invalid":
            return RefusedCall(call=open_call.call, outcome="failed", reason=open_call.reason or "invalid")
    reason = builder.texts.skipped.format(reason="it was not reviewed")
    return RefusedCall(call=open_call.call, outcome="skipped", reason=reason)


def _refuse_started_calls(
    builder: SnapshotBuilder, effect: RunTools, repeatable: tuple[str, ...]
) -> RunTools:
    """The same effect; it answers for calls that may have begun and must not be repeated, and runs the
    others: a call without a start mark has not begun."""
    # A planted checkpoint may call another effect `run_tools`: the driver refuses to perform it.
    if type(effect) is not RunTools:
        return effect
    open_ids, lost_ids = set(), set()
    for open_call in builder.calls:
        if open_call.outcome is None:
            open_ids.add(open_call.call.id)
            if open_call.has_begun and open_call.call.id not in repeatable:
                lost_ids.add(open_call.call.id)
    open_calls = [call for call in effect.calls if call.id in open_ids]
    reason = builder.texts.interrupted.format(reason="the process stopped when it had begun or was about to")
    return replace(
        effect,
        calls=tuple(call for call in open_calls if call.id not in lost_ids),
        refused=(
            *(refusal for refusal in effect.refused if refusal.call.id in open_ids),
            *(
                RefusedCall(call=call, outcome="interrupted", reason=reason)
                for call in open_calls
                if call.id in lost_ids
            ),
        ),
    )


def _has_calls_without_outcome(snapshot: SnapshotFields, effect: Effect) -> bool:
    calls = snapshot.calls
    if not calls.pending:
        return False
    assert isinstance(effect, RunTools)
    # `run_tools` asks for every call that has no outcome, and a new reply brings calls with new ids. So the
    # effect has all pending calls among its own, or none, where a reply has come after it.
    for call in effect.calls:
        return call.id in calls.positions
    return any(refusal.call.id in calls.positions for refusal in effect.refused)


def has_undecided_calls(snapshot: SnapshotFields, effect: Effect) -> bool:
    """Whether a call still waits for a decision."""
    return snapshot.calls.undecided > 0


def _build_wait(builder: SnapshotBuilder, name: str, id_: int, state: str) -> Wait:
    seconds = _compute_wait_s(builder)
    return Wait(id=id_, name=name, state=state, seconds=seconds, due=format_due(builder.now, seconds))


def _compute_wait_s(builder: SnapshotBuilder) -> float:
    """Seconds to wait before the next attempt: what the host asks for, else exponential back-off.

    The back-off is `first_wait_s * 2 ** (attempt - 1)`, less up to a quarter of jitter. The jitter
    comes with the event `failed`, because the core draws no random numbers. Neither exceeds `max_wait_s`.
    """
    failure, limits = builder.failure, builder.limits
    if failure is not None and failure.retry_after_s is not None:
        return min(failure.retry_after_s, limits.max_wait_s)
    # The exponent is capped: beyond 2 ** 60 the pause is the longest one in any case, and floats end at 1024.
    jitter = failure.jitter if failure is not None else 0.0
    pause = limits.first_wait_s * 2.0 ** min(max(0, builder.attempt - 1), 60)
    return round(min(pause, limits.max_wait_s) * (1 - jitter / 4), 3)


# -- without an answer ---------------------------------------------------------------------------


def _build_text_switch(builder: SnapshotBuilder, name: str, id_: int, state: str) -> Effect:
    """From now on model calls describe the tools in the prompt."""
    builder.writes_tools_as_text = True
    return Effect(id=id_, name=name, state=state)


def _build_answer(builder: SnapshotBuilder, name: str, id_: int, state: str) -> Answer:
    """End the turn with the model's words; an empty text where it said nothing."""
    # Read the text first: closing the calls appends tool messages behind the model's last words.
    content = find_answer_text(builder) or ""
    return _end_turn(builder, name, id_, state, content, message=content)


def _build_limit_answer(builder: SnapshotBuilder, name: str, id_: int, state: str) -> Answer:
    limit = _find_reached_limit(builder)
    builder.limit_reached = limit
    content = _format_limit_answer(builder, limit)
    return _end_turn(builder, name, id_, state, content, message=content)


def _build_error_answer(builder: SnapshotBuilder, name: str, id_: int, state: str) -> Answer:
    """End the turn with what the model had said or streamed; else with a text that only the user sees."""
    error = find_turn_error(builder)
    builder.error = error
    words = builder.streamed_text if builder.streamed_text else None
    if words is None and builder.failure is None and not builder.cancelled:
        words = find_answer_text(builder)
    content = words or builder.texts.failed.format(reason=_describe_error(error))
    return _end_turn(builder, name, id_, state, content, message=words)


def _end_turn(
    builder: SnapshotBuilder, name: str, id_: int, state: str, content: str, message: str | None
) -> Answer:
    end_turn_with(builder, name, content, message)
    return Answer(id=id_, name=name, state=state, content=content)


def end_turn_with(builder: SnapshotBuilder, name: str, content: str, message: str | None) -> None:
    """End the turn with a text for the user: no call stays open.

    Args:
        name: the effect that ends it, or the core's reason.
        message: what the conversation keeps as the last words of the assistant; None keeps nothing.
    """
    answer_text = find_answer_text(builder) if message is not None else None
    if builder.calls.length:
        close_open_calls(builder, "the turn ended")
    if message is not None:
        ends_with_answer = builder.messages[-1].role == "assistant" and (answer_text or "") == message
        if not ends_with_answer:
            builder.append_message(Message(role="assistant", content=message))
    builder.answer = content
    builder.ended_by = name


def end_turn_by_core(builder: SnapshotBuilder, reason: str, message: str) -> None:
    """End a turn that the chart cannot end: `stuck` or `too_many_steps`. The configuration stays."""
    builder.error = TurnError(kind=reason, message=message)
    content = builder.texts.failed.format(reason=message)
    end_turn_with(builder, reason, content, message=None)


def find_answer_text(builder: SnapshotBuilder) -> str | None:
    """The model's text since the latest message that is not its own; without text, its refusal.

    Several replies in a row are one text. This happens where a chart lets a reply that was cut off
    (`finish_reason == 'length'`) continue.
    """
    reply = builder.reply
    if reply is None:
        return None
    if builder.answer is not None:
        # An earlier effect has answered, and its text is among the messages: joined again, it would double.
        return reply.content if has_words(reply.content) else reply.refusal
    text = ""
    for message in builder.messages.list_last("assistant"):
        text += message.content or ""
    text = text or reply.content or ""
    return text if has_words(text) else reply.refusal


def _find_reached_limit(builder: SnapshotBuilder) -> str:
    budget = find_spent_budget(builder) or ("max_tool_calls" if exceeds_call_budget(builder) else None)
    if builder.iteration >= builder.limits.max_iterations:
        return "max_iterations"
    return budget or _find_loop_limit(builder) or "max_iterations"


def find_withdrawing_limit(snapshot: SnapshotFields) -> str | None:
    """The limit for which the newest request of the turn left its tools out; None where it did not, or did
    for a failed call."""
    if snapshot.tools_sent or not snapshot.offered_tools or snapshot.reply is None:
        return None
    if snapshot.iteration >= snapshot.limits.max_iterations:
        return "max_iterations"
    return _find_loop_limit(snapshot)


def _find_loop_limit(snapshot: SnapshotFields) -> str | None:
    """The limit that a model has reached which repeats a call, or only calls tools; None where it has not."""
    limits, calls = snapshot.limits, [*snapshot.calls]
    own_messages = (message for message in reversed(snapshot.messages) if message.role == "assistant")
    replies = list(islice(own_messages, snapshot.replies))
    is_repeated = any(call.repeat > limits.max_repeats and not call.may_repeat for call in calls)
    if not snapshot.tools_sent:
        # The newest reply came after the limit: it was to be an answer. The one before it has reached the
        # limit. Calls that repeat too often are not run; where they ran, something else ended the loop.
        replies = replies[1:]
        count = len(replies[0].tool_calls) if replies else 0
        last_calls = list(snapshot.tracked_calls)[-count:] if count else []
        is_repeated = any(
            call.repeat > limits.max_repeats and call.outcome == "skipped" for call in last_calls
        )
    if is_repeated:
        return "max_repeats"
    if limits.max_tool_only_streak is None:
        return None
    streak = takewhile(lambda reply: reply.tool_calls and not has_words(reply.content), replies)
    return "max_tool_only_streak" if len(list(streak)) >= limits.max_tool_only_streak else None


def _format_limit_answer(builder: SnapshotBuilder, limit: str) -> str:
    """Name the limit, and keep whatever the model has written so far."""
    if limit == "max_iterations":
        text = builder.texts.at_limit.format(limit=builder.limits.max_iterations)
    else:
        value = getattr(builder.limits, limit)
        text = builder.texts.at_budget.format(budget=limit, limit=value)
    answer_text = find_answer_text(builder)
    if builder.failure is not None and builder.streamed_text:
        answer_text = builder.streamed_text  # of the reply that the limit has cut off
    return f"{text}\n\n{answer_text}" if answer_text else text


def find_turn_error(builder: SnapshotBuilder) -> TurnError:
    """Why the turn ends in error, from what happened last."""
    failure = builder.failure
    if builder.cancelled:
        return TurnError(kind="cancelled", message="the turn was cancelled")
    if failure is not None:
        return TurnError(kind=failure.kind, message=failure.message, status=failure.status, host=failure.host)
    if builder.settings is not None and builder.settings.strict and builder.warnings:
        return TurnError(kind="strict_policy", message="; ".join(builder.warnings))
    reason = builder.reply.finish_reason if builder.reply else "unknown"
    return TurnError(kind="finish_reason", message=f"the model stopped with {reason!r}")


def _describe_error(error: TurnError) -> str:
    if error.kind in ("cancelled", "finish_reason", "effect", "empty_reply"):
        return error.message
    if error.kind == "strict_policy":
        return f"the policy is strict, and there is a warning: {error.message}"
    return f"the model call failed ({error.kind})"


# -- the rows ------------------------------------------------------------------------------------

EFFECT_ROWS = (
    EffectDescriptor(
        name="call_model",
        meaning="call the model with the conversation and the offered tools",
        build=_build_model_call,
        closing=("replied", "failed"),
        calls_model=True,
        uses_messages=True,
        list_starts=list_call_starts,
    ),
    EffectDescriptor(
        name="call_model_without_tools",
        meaning="call the model with the conversation and no tools, so that it must answer",
        build=_build_final_model_call,
        closing=("replied", "failed"),
        calls_model=True,
        uses_messages=True,
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="review_calls",
        meaning="look at every call of the reply: known, allowed, valid, approved?",
        build=_build_review,
        closing=("reviewed", "decided"),
        progress=("reviewed", "decided"),
        has_open_items=has_undecided_calls,
        uses_calls=True,
        uses_messages=True,
        is_pure=True,
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="ask_approval",
        meaning="let a person decide every call that needs approval",
        build=build_approval,
        closing=("decided",),
        progress=("decided",),
        has_open_items=has_undecided_calls,
        uses_calls=True,
        uses_messages=True,
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="run_tools",
        meaning="run the calls that may run and answer for those that may not",
        build=_build_tool_run,
        closing=("tool_finished",),
        progress=("tool_finished",),
        has_open_items=_has_calls_without_outcome,
        cancel=interrupt_requested_calls,
        start=mark_started_calls,
        resume=_refuse_started_calls,
        uses_calls=True,
        uses_messages=True,
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="wait",
        meaning="let time pass before the next attempt",
        build=_build_wait,
        closing=("elapsed",),
        is_timer=True,
        reads_limits=("first_wait_s", "max_wait_s"),
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="describe_tools_in_text",
        meaning="from now on describe the tools in the prompt and read calls from the text of replies",
        build=_build_text_switch,
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="answer",
        meaning="end the turn with the model's answer",
        build=_build_answer,
        ends_turn=True,
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="answer_at_limit",
        meaning="end the turn at a limit, keeping what was found",
        build=_build_limit_answer,
        ends_turn=True,
        list_starts=list_no_starts,
    ),
    EffectDescriptor(
        name="answer_with_error",
        meaning="end the turn with what could be said",
        build=_build_error_answer,
        ends_turn=True,
        list_starts=list_no_starts,
    ),
)
"""The rows of effects, in the order in which messages and documents list them."""
