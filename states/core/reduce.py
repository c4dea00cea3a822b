"""Reduce: how each event changes the context of a conversation.

The core handles an event in two halves. This module is the first half: a reducer in the sense of Redux
or XState. It takes a snapshot and an event and returns a snapshot whose context includes the event: a
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
  any more are closed as `skipped`, and the model is told that they were not executed.
- An event that does not fit the open calls raises `IllegalEvent`, and the old snapshot is untouched.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, assert_never

from toolchart.states.canonical_json import encode_canonical, encode_canonical_text
from toolchart.states.encoding import encode
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
from toolchart.states.messages import Message, Reply, ToolCall, ToolDefinition, Usage
from toolchart.states.persistent_list import PersistentList
from toolchart.states.snapshot import OpenCall, Snapshot, TrackedCall

NOT_EXECUTED = "This call was not executed: {reason}"


# -- the conversation as a whole -----------------------------------------------------------------


def configure_conversation(snapshot: Snapshot, event: Configured) -> Snapshot:
    """The conversation, with these tools from now on."""
    return snapshot.evolve(tools=event.tools, now=event.at)


def open_turn(snapshot: Snapshot, event: TurnStarted) -> Snapshot:
    """A fresh turn on top of the conversation so far."""
    conversation = snapshot
    for message in event.history:
        conversation = append_message(conversation, message)
    conversation = append_message(conversation, Message(role="user", content=event.message))
    system = event.system if event.system is not None else snapshot.system
    tools = _select_tools(snapshot, event.settings)
    # A new value, not `evolve`: every counter of the turn begins at its default.
    return Snapshot(
        configuration=snapshot.configuration,
        tools=snapshot.tools,
        messages=conversation.messages,
        digest=conversation.digest,
        system=system,
        turn=snapshot.turn + 1,
        settings=event.settings,
        offered_tools=tools,
        setup_digest=_digest_setup(event.settings, system, tools),
        started_at=event.at,
        now=event.at,
        warnings=event.warnings,
    )


def apply_fork(snapshot: Snapshot, event: Forked) -> Snapshot:
    """The same conversation, with the settings and system prompt that the fork changes, if any."""
    snapshot = snapshot.evolve(now=event.at)
    settings = event.settings or snapshot.settings
    if settings is None or (event.settings is None and event.system is None):
        return snapshot
    system = event.system if event.system is not None else snapshot.system
    tools = _select_tools(snapshot, settings)
    return snapshot.evolve(
        settings=settings,
        system=system,
        offered_tools=tools,
        setup_digest=_digest_setup(settings, system, tools),
    )


def _select_tools(snapshot: Snapshot, settings: Settings) -> tuple[ToolDefinition, ...]:
    """The tools that a turn with these settings offers, in the order of the agent spec."""
    names = frozenset(settings.tools)
    return tuple(tool for tool in snapshot.tools if tool.name in names)


def _digest_setup(settings: Settings, system: str | None, tools: tuple[ToolDefinition, ...]) -> str:
    parts = [settings.model, settings.options, system, encode(tools)]
    return hashlib.sha256(encode_canonical(parts)).hexdigest()


def append_message(snapshot: Snapshot, message: Message) -> Snapshot:
    """The conversation with one more message; the cost does not depend on its length.

    The digest is a hash chain over the messages, so it too is extended and never computed anew.
    """
    digest_input = (
        snapshot.digest,
        message.role,
        message.content,
        message.tool_call_id,
        message.name,
        [(call.id, call.name, call.raw or call.arguments) for call in message.tool_calls],
        message.provider_data,
    )
    digest = hashlib.sha256(encode_canonical(digest_input)).hexdigest()
    messages = snapshot.messages.append(message, key=message.tool_call_id)
    return snapshot.evolve(messages=messages, digest=digest)


# -- events of a turn ----------------------------------------------------------------------------


def reduce_event(snapshot: Snapshot, event: MachineEvent) -> Snapshot:
    """The context after the event, in the same configuration.

    Raises:
        IllegalEvent: the event names a call that is not open, or that is not in the right stage.
    """
    match event:
        case Replied():
            return _reduce_reply(snapshot, event.reply)
        case Reviewed():
            return _reduce_review(snapshot, event.verdicts)
        case ToolFinished():
            return _reduce_outcome(snapshot, event)
        case Failed():
            return snapshot.evolve(failure=event, attempt=snapshot.attempt + 1)
        case Decided():
            return _reduce_decision(snapshot, event)
        case Waited():
            return snapshot
        case Cancelled():
            return snapshot.evolve(cancelled=True)
    assert_never(event)


# -- a reply -------------------------------------------------------------------------------------


def _reduce_reply(snapshot: Snapshot, reply: Reply) -> Snapshot:
    reply = _correct_finish_reason(reply)
    calls = _assign_call_ids(snapshot, reply.tool_calls)
    has_text = bool(reply.content and reply.content.strip())
    message = Message(
        role="assistant",
        content=reply.content,
        tool_calls=calls,
        provider_data=reply.provider_data,
    )
    snapshot_without_calls = close_open_calls(snapshot, "the model was asked again before it ran")
    return append_message(snapshot_without_calls, message).evolve(
        reply=reply,
        replies=snapshot.replies + 1,
        calls=_build_open_calls(snapshot, calls),
        failure=None,
        attempt=0,
        tool_only_streak=snapshot.tool_only_streak + 1 if calls and not has_text else 0,
        usage=snapshot.usage.plus(reply.usage or Usage()),
        warnings=snapshot.warnings + reply.warnings if reply.warnings else snapshot.warnings,
    )


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


def _assign_call_ids(snapshot: Snapshot, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls under ids that are unique in the conversation.

    A provider may give no id, or one that it has used before. Such a call gets an id made of turn,
    iteration and index, so that replay derives the same one; the provider's id is kept in `native_id`.
    """
    used_ids: set[str] = set()
    calls_with_ids = []
    for index, call in enumerate(calls):
        needs_id = (
            not call.id or call.id in used_ids or snapshot.messages.find_newest(call.id) is not None
        )
        if needs_id:
            new_id = f"call_{snapshot.turn}_{snapshot.iteration}_{index}"
            while new_id in used_ids or snapshot.messages.find_newest(new_id) is not None:
                new_id += "x"
            call = replace(call, id=new_id, native_id=call.native_id or call.id or None)
        used_ids.add(call.id)
        calls_with_ids.append(call)
    return tuple(calls_with_ids)


def _build_open_calls(snapshot: Snapshot, calls: tuple[ToolCall, ...]) -> tuple[OpenCall, ...]:
    """The calls with the number of times that each was requested in this turn."""
    repeats: dict[str, int] = {}
    open_calls = []
    for call in calls:
        key = build_call_key(call)
        earlier_call = snapshot.tracked_calls.find_newest(key)
        repeats[key] = repeats.get(key, earlier_call.repeat if earlier_call else 0) + 1
        open_calls.append(OpenCall(call=call, key=key, repeat=repeats[key]))
    return tuple(open_calls)


def build_call_key(call: ToolCall) -> str:
    """What makes two calls the same: the tool and its canonical arguments."""
    arguments = call.raw if call.arguments is None else encode_canonical_text(call.arguments)
    return f"{call.name} {arguments}"


# -- rulings -------------------------------------------------------------------------------------


def _reduce_review(snapshot: Snapshot, verdicts: tuple[Verdict, ...]) -> Snapshot:
    verdicts_by_id = {verdict.call_id: verdict for verdict in verdicts}
    calls, denied = [], snapshot.denied
    for open_call in snapshot.calls:
        verdict = verdicts_by_id.pop(open_call.call.id, None)
        if verdict is None:
            break
        calls.append(_apply_verdict(open_call, verdict))
        denied += verdict.ruling == "denied"
    if verdicts_by_id or len(calls) != len(snapshot.calls):
        raise IllegalEvent(
            "reviewed", snapshot.state, false_conditions=("one verdict for every open call",)
        )
    return snapshot.evolve(calls=tuple(calls), denied=denied)


def _apply_verdict(open_call: OpenCall, verdict: Verdict) -> OpenCall:
    call = open_call.call
    if verdict.arguments is not None:
        call = replace(call, arguments=verdict.arguments)
    return OpenCall(
        call=call,
        key=open_call.key,
        repeat=open_call.repeat,
        ruling=verdict.ruling,
        reason=verdict.reason,
    )


def _reduce_decision(snapshot: Snapshot, event: Decided) -> Snapshot:
    open_call = _find_open_call(snapshot, event.call_id, event.TYPE)
    if open_call.ruling != "needs_approval":
        raise IllegalEvent(
            event.TYPE,
            snapshot.state,
            false_conditions=(f"call {event.call_id!r} waits for a decision",),
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
    return _replace_open_call(snapshot, open_call).evolve(
        approved=snapshot.approved + event.approved,
        denied=snapshot.denied + (not event.approved),
    )


# -- outcomes ------------------------------------------------------------------------------------


def _reduce_outcome(snapshot: Snapshot, event: ToolFinished) -> Snapshot:
    open_call = _find_open_call(snapshot, event.call_id, event.TYPE)
    if open_call.outcome is not None:
        raise IllegalEvent(
            event.TYPE,
            snapshot.state,
            false_conditions=(f"call {event.call_id!r} has no outcome yet",),
        )
    # Every field written out: `replace` costs three times as much, and this runs for every call.
    call_with_outcome = OpenCall(
        call=open_call.call,
        key=open_call.key,
        repeat=open_call.repeat,
        ruling=open_call.ruling,
        reason=open_call.reason,
        decided_at=open_call.decided_at,
        outcome=event.outcome,
        result=event.result,
        shown=event.shown,
    )
    snapshot = _replace_open_call(snapshot, call_with_outcome)
    if not _have_all_outcomes(snapshot.calls):
        return snapshot
    return _append_results(snapshot, iteration=snapshot.iteration + 1)


def _find_open_call(snapshot: Snapshot, call_id: str, event: str) -> OpenCall:
    for open_call in snapshot.calls:
        if open_call.call.id == call_id:
            return open_call
    raise IllegalEvent(event, snapshot.state, false_conditions=(f"a call {call_id!r} is open",))


def _replace_open_call(snapshot: Snapshot, new_call: OpenCall) -> Snapshot:
    if len(snapshot.calls) == 1:
        return snapshot.evolve(calls=(new_call,))
    calls = tuple(
        new_call if open_call.call.id == new_call.call.id else open_call
        for open_call in snapshot.calls
    )
    return snapshot.evolve(calls=calls)


def _have_all_outcomes(calls: tuple[OpenCall, ...]) -> bool:
    return None not in [open_call.outcome for open_call in calls]


def _append_results(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """Append one tool message per call and track the calls. Every open call must have its outcome.

    The messages stand in the order of the reply, not in the order in which the tools finished, so
    that the next request does not depend on timing.
    """
    tracked_calls: PersistentList[TrackedCall] = snapshot.tracked_calls
    for open_call in snapshot.calls:
        result = open_call.result or {}
        content = open_call.shown if open_call.shown is not None else encode_canonical_text(result)
        message = Message(
            role="tool",
            content=content,
            tool_call_id=open_call.call.id,
            name=open_call.call.name,
        )
        snapshot = append_message(snapshot, message)
        tracked_call = _build_tracked_call(snapshot, open_call, result)
        tracked_calls = tracked_calls.append(tracked_call, key=open_call.key)
    return snapshot.evolve(tracked_calls=tracked_calls, **changes)


def _build_tracked_call(
    snapshot: Snapshot, open_call: OpenCall, result: dict[str, object]
) -> TrackedCall:
    duration_ms = result.get("execution_time_ms", 0.0)
    return TrackedCall(
        tool=open_call.call.name,
        params=open_call.call.arguments,
        result=result,
        iteration=snapshot.iteration,
        execution_time_ms=float(duration_ms) if isinstance(duration_ms, (int, float)) else 0.0,
        outcome=open_call.outcome or "skipped",
        repeat=open_call.repeat,
    )


def close_open_calls(snapshot: Snapshot, reason: str) -> Snapshot:
    """Give every call without an outcome the outcome `skipped`, and leave no call open.

    A reply that was cut off, or a turn that ended, leaves calls that nobody will run any more. Model
    APIs reject a request in which a call has no tool message, so the next request needs one for each;
    and the model must read that the call was not executed.
    """
    if not snapshot.calls:
        return snapshot
    if _have_all_outcomes(snapshot.calls):
        return snapshot.evolve(calls=())
    calls = tuple(
        open_call if open_call.outcome is not None else _skip_call(open_call, reason)
        for open_call in snapshot.calls
    )
    return _append_results(snapshot.evolve(calls=calls), calls=())


def _skip_call(open_call: OpenCall, reason: str) -> OpenCall:
    result = {
        "success": False,
        "error": NOT_EXECUTED.format(reason=reason),
        "tool_name": open_call.call.name,
        "execution_time_ms": 0.0,
    }
    return replace(open_call, outcome="skipped", result=result)
