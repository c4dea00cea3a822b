"""Reduce: how each event changes the context of a conversation.

The core handles an event in two halves. This module is the first half: a reducer in the sense of Redux
or XState. It changes the context of a `SnapshotBuilder`, the working copy of one step, by an event: a
reply is appended, a call gets its ruling or its outcome, a counter grows. The configuration (the active
states) stays as it is. The second half asks the machine what the event means under the new context.

The context is reduced *before* guards are evaluated. So in `cond: "iteration >= max_iterations"` the
iteration that has just ended is already counted.

The life of one tool call, as an `OpenCall` of the snapshot:

    replied        ->  OpenCall(call)               its id is unique; its repeats are counted
    reviewed       ->  ruling = run | denied | invalid | needs_approval
    decided        ->  ruling = run | denied        only where the ruling was needs_approval
    tool_finished  ->  outcome, result
    (the last one) ->  tool messages are appended, the calls move to `tracked_calls`, iteration + 1

Two invariants hold here, and the property tests check them:

- Every requested call gets exactly one outcome before the next model call. Calls that nobody will run
  any more are closed as `skipped`, and the model reads that they were not executed.
- An event that does not fit the open calls raises `IllegalEvent`; the builder is dropped, and the snapshot
  that it was made from has not changed.
"""

from __future__ import annotations

import hashlib
from typing import assert_never

from msgspec.structs import replace

from toolchart.states.canonical_json import encode_canonical, encode_canonical_text
from toolchart.states.core.encoding import encode
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import (
    Cancelled,
    Configured,
    Decided,
    Failed,
    Forked,
    MachineEvent,
    Replied,
    Reviewed,
    Settings,
    ToolFinished,
    TurnStarted,
    Verdict,
    Waited,
)
from toolchart.states.messages import Message, Reply, ToolCall, ToolDefinition
from toolchart.states.snapshot import OpenCall, Snapshot, SnapshotBuilder, TrackedCall

NOT_EXECUTED = "This call was not executed: {reason}"


# -- the conversation as a whole -----------------------------------------------------------------


def configure_conversation(snapshot: Snapshot, event: Configured) -> Snapshot:
    """The conversation, with these tools from now on."""
    return replace(snapshot, tools=event.tools, now=event.at)


def open_turn(snapshot: Snapshot, event: TurnStarted) -> SnapshotBuilder:
    """A fresh turn on top of the conversation so far."""
    system = event.system if event.system is not None else snapshot.system
    tools = _select_tools(snapshot, event.settings)
    # A new value, not a copy: every counter of the turn begins at its default.
    builder = SnapshotBuilder(
        configuration=snapshot.configuration,
        tools=snapshot.tools,
        messages=snapshot.messages,
        digest=snapshot.digest,
        system=system,
        turn=snapshot.turn + 1,
        settings=event.settings,
        offered_tools=tools,
        setup_digest=_digest_setup(event.settings, system, tools),
        started_at=event.at,
        now=event.at,
        warnings=event.warnings,
    )
    for message in event.history:
        append_message(builder, message)
    append_message(builder, Message(role="user", content=event.message))
    return builder


def apply_fork(snapshot: Snapshot, event: Forked) -> SnapshotBuilder:
    """The same conversation, with the settings and system prompt that the fork changes, if any."""
    builder = SnapshotBuilder.from_snapshot(snapshot)
    builder.now = event.at
    settings = event.settings or snapshot.settings
    if settings is not None and (event.settings is not None or event.system is not None):
        builder.settings = settings
        builder.system = event.system if event.system is not None else snapshot.system
        builder.offered_tools = _select_tools(snapshot, settings)
        builder.setup_digest = _digest_setup(settings, builder.system, builder.offered_tools)
    return builder


def _select_tools(snapshot: Snapshot, settings: Settings) -> tuple[ToolDefinition, ...]:
    """The tools that a turn with these settings offers, in the order of the agent spec."""
    names = frozenset(settings.tools)
    return tuple(tool for tool in snapshot.tools if tool.name in names)


def _digest_setup(settings: Settings, system: str | None, tools: tuple[ToolDefinition, ...]) -> str:
    parts = [settings.model, settings.options, system, encode(tools)]
    return hashlib.sha256(encode_canonical(parts)).hexdigest()


def append_message(builder: SnapshotBuilder, message: Message) -> None:
    """Append a message to the conversation; the cost does not depend on its length.

    The digest is a hash chain over the messages, so it too is extended and never computed anew.
    """
    digest_input = (
        builder.digest,
        message.role,
        message.content,
        message.tool_call_id,
        message.name,
        [(call.id, call.name, call.raw or call.arguments) for call in message.tool_calls],
        message.provider_data,
    )
    builder.digest = hashlib.sha256(encode_canonical(digest_input)).hexdigest()
    builder.messages = builder.messages.append(message, key=message.tool_call_id)


# -- events of a turn ----------------------------------------------------------------------------


def reduce_event(builder: SnapshotBuilder, event: MachineEvent) -> None:
    """Change the context by the event; the configuration stays.

    Raises:
        IllegalEvent: the event names a call that is not open, or that is not in the right stage.
    """
    match event:
        case Replied():
            _reduce_reply(builder, event.reply)
        case Reviewed():
            _reduce_review(builder, event.verdicts)
        case ToolFinished():
            _reduce_outcome(builder, event)
        case Failed():
            builder.failure = event
            builder.attempt += 1
        case Decided():
            _reduce_decision(builder, event)
        case Waited():
            pass
        case Cancelled():
            builder.cancelled = True
        case _:
            assert_never(event)


# -- a reply -------------------------------------------------------------------------------------


def _reduce_reply(builder: SnapshotBuilder, reply: Reply) -> None:
    reply = _correct_finish_reason(reply)
    calls = _assign_call_ids(builder, reply.tool_calls)
    open_calls = _build_open_calls(builder, calls)
    close_open_calls(builder, "the model was asked again before it ran")
    data = reply.provider_data
    append_message(
        builder, Message(role="assistant", content=reply.content, tool_calls=calls, provider_data=data)
    )
    builder.reply = reply
    builder.replies += 1
    builder.calls = open_calls
    builder.failure = None
    builder.attempt = 0
    is_tool_only = calls and not (reply.content or "").strip()
    builder.tool_only_streak = builder.tool_only_streak + 1 if is_tool_only else 0
    builder.usage = builder.usage.plus(reply.usage)
    builder.warnings += reply.warnings


def _correct_finish_reason(reply: Reply) -> Reply:
    """The reply with a finish reason that agrees with its content, whatever the provider sent.

    A reply with calls asks for tools even if the provider says `stop`. A reply that says `tool_calls`
    and has none would leave the chart waiting for outcomes that nothing produces.
    """
    if reply.tool_calls and reply.finish_reason in ("stop", "unknown", "paused"):
        return replace(reply, finish_reason="tool_calls")
    if not reply.tool_calls and reply.finish_reason == "tool_calls":
        return replace(reply, finish_reason="unknown")
    return reply


def _assign_call_ids(builder: SnapshotBuilder, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls under ids that are unique in the conversation.

    A provider may give no id, or one that it has used before. Such a call gets an id made of turn,
    iteration and index, so that replay derives the same one; the provider's id is kept in `native_id`.
    """
    used_ids: set[str] = set()
    calls_with_ids = []
    for index, call in enumerate(calls):
        needs_id = not call.id or call.id in used_ids or builder.messages.find_newest(call.id) is not None
        if needs_id:
            new_id = f"call_{builder.turn}_{builder.iteration}_{index}"
            while new_id in used_ids or builder.messages.find_newest(new_id) is not None:
                new_id += "x"
            call = replace(call, id=new_id, native_id=call.native_id or call.id or None)
        used_ids.add(call.id)
        calls_with_ids.append(call)
    return tuple(calls_with_ids)


def _build_open_calls(builder: SnapshotBuilder, calls: tuple[ToolCall, ...]) -> tuple[OpenCall, ...]:
    """The calls with the number of times that each was requested in this turn."""
    repeats: dict[str, int] = {}
    open_calls = []
    for call in calls:
        key = build_call_key(call)
        earlier_call = builder.tracked_calls.find_newest(key)
        repeats[key] = repeats.get(key, earlier_call.repeat if earlier_call else 0) + 1
        open_calls.append(OpenCall(call=call, key=key, repeat=repeats[key]))
    return tuple(open_calls)


def build_call_key(call: ToolCall) -> str:
    """What makes two calls the same: the tool and its canonical arguments."""
    arguments = call.raw if call.arguments is None else encode_canonical_text(call.arguments)
    return f"{call.name} {arguments}"


# -- rulings -------------------------------------------------------------------------------------


def _reduce_review(builder: SnapshotBuilder, verdicts: tuple[Verdict, ...]) -> None:
    verdicts_by_id = {verdict.call_id: verdict for verdict in verdicts}
    calls, denied = [], builder.denied
    for open_call in builder.calls:
        verdict = verdicts_by_id.pop(open_call.call.id, None)
        if verdict is None:
            break
        calls.append(_apply_verdict(open_call, verdict))
        denied += verdict.ruling == "denied"
    if verdicts_by_id or len(calls) != len(builder.calls):
        raise IllegalEvent("reviewed", builder.state, false_conditions=("one verdict for every open call",))
    builder.calls = tuple(calls)
    builder.denied = denied


def _apply_verdict(open_call: OpenCall, verdict: Verdict) -> OpenCall:
    call = open_call.call
    if verdict.arguments is not None:
        call = replace(call, arguments=verdict.arguments)
    return replace(open_call, call=call, ruling=verdict.ruling, reason=verdict.reason)


def _reduce_decision(builder: SnapshotBuilder, event: Decided) -> None:
    open_call = _find_open_call(builder, event.call_id, event.TYPE)
    if open_call.ruling != "needs_approval":
        raise IllegalEvent(
            event.TYPE, builder.state, false_conditions=(f"call {event.call_id!r} waits for a decision",)
        )
    call = open_call.call
    if event.arguments is not None:
        call = replace(call, arguments=event.arguments)
    open_call = replace(
        open_call,
        call=call,
        ruling="run" if event.approved else "denied",
        reason=event.reason,
        decided_at=event.at,
    )
    _replace_open_call(builder, open_call)
    builder.approved += event.approved
    builder.denied += not event.approved


# -- outcomes ------------------------------------------------------------------------------------


def _reduce_outcome(builder: SnapshotBuilder, event: ToolFinished) -> None:
    open_call = _find_open_call(builder, event.call_id, event.TYPE)
    if open_call.outcome is not None:
        raise IllegalEvent(
            event.TYPE, builder.state, false_conditions=(f"call {event.call_id!r} has no outcome yet",)
        )
    call_with_outcome = replace(open_call, outcome=event.outcome, result=event.result, shown=event.shown)
    _replace_open_call(builder, call_with_outcome)
    if _have_all_outcomes(builder.calls):
        _append_results(builder)
        builder.iteration += 1


def _find_open_call(builder: SnapshotBuilder, call_id: str, event: str) -> OpenCall:
    for open_call in builder.calls:
        if open_call.call.id == call_id:
            return open_call
    raise IllegalEvent(event, builder.state, false_conditions=(f"a call {call_id!r} is open",))


def _replace_open_call(builder: SnapshotBuilder, new_call: OpenCall) -> None:
    builder.calls = tuple(
        [new_call if open_call.call.id == new_call.call.id else open_call for open_call in builder.calls]
    )


def _have_all_outcomes(calls: tuple[OpenCall, ...]) -> bool:
    return None not in [open_call.outcome for open_call in calls]


def _append_results(builder: SnapshotBuilder) -> None:
    """Append one tool message per call and track the calls. Every open call must have its outcome.

    The messages stand in the order of the reply, not in the order in which the tools finished, so
    that the next request does not depend on timing.
    """
    for open_call in builder.calls:
        append_message(builder, build_result_message(open_call))
        tracked_call = _build_tracked_call(builder, open_call)
        builder.tracked_calls = builder.tracked_calls.append(tracked_call, key=open_call.key)


def build_result_message(open_call: OpenCall) -> Message:
    """The tool message that tells the model the result of a call which has its outcome."""
    text = open_call.shown
    return Message(
        role="tool",
        content=text if text is not None else encode_canonical_text(open_call.result or {}),
        tool_call_id=open_call.call.id,
        name=open_call.call.name,
    )


def _build_tracked_call(builder: SnapshotBuilder, open_call: OpenCall) -> TrackedCall:
    result = open_call.result or {}
    duration_ms = result.get("execution_time_ms", 0.0)
    return TrackedCall(
        tool=open_call.call.name,
        params=open_call.call.arguments,
        result=result,
        iteration=builder.iteration,
        execution_time_ms=float(duration_ms) if isinstance(duration_ms, (int, float)) else 0.0,
        outcome=open_call.outcome or "skipped",
        repeat=open_call.repeat,
    )


def close_open_calls(builder: SnapshotBuilder, reason: str) -> None:
    """Give every call without an outcome the outcome `skipped`, and leave no call open.

    A reply that was cut off, or a turn that ended, leaves calls that nobody will run any more. Model
    APIs reject a request in which a call has no tool message, so the next request needs one for each;
    and the model must read that the call was not executed.
    """
    if not _have_all_outcomes(builder.calls):
        builder.calls = tuple(
            open_call if open_call.outcome is not None else _skip_call(open_call, reason)
            for open_call in builder.calls
        )
        _append_results(builder)
    builder.calls = ()


def _skip_call(open_call: OpenCall, reason: str) -> OpenCall:
    result = {
        "success": False,
        "error": NOT_EXECUTED.format(reason=reason),
        "tool_name": open_call.call.name,
        "execution_time_ms": 0.0,
    }
    return replace(open_call, outcome="skipped", result=result)
