"""What each event changes in the context, before the machine is asked what it means."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, assert_never

from toolchart.states.canonical_json import canonical, canonical_text
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
from toolchart.states.persistent_list import Trail
from toolchart.states.snapshot import OpenCall, Snapshot, TrackedCall

NOT_EXECUTED = "This call was not executed: {reason}"


def configure(snapshot: Snapshot, event: Configured) -> Snapshot:
    """A conversation that has these tools from now on."""
    return snapshot.evolve(tools=event.tools, now=event.at)


def open_turn(snapshot: Snapshot, event: TurnStarted) -> Snapshot:
    """A fresh turn on top of the conversation so far."""
    grown = snapshot
    for message in event.history:
        grown = say(grown, message)
    grown = say(grown, Message(role="user", content=event.message))
    system = event.system if event.system is not None else snapshot.system
    offered = _offered(snapshot, event.settings)
    return Snapshot(
        configuration=snapshot.configuration,
        tools=snapshot.tools,
        messages=grown.messages,
        digest=grown.digest,
        system=system,
        turn=snapshot.turn + 1,
        settings=event.settings,
        offered=offered,
        setup_digest=_setup_digest(event.settings, system, offered),
        started_at=event.at,
        now=event.at,
        warnings=event.warnings,
    )


def fork(snapshot: Snapshot, event: Forked) -> Snapshot:
    """The same conversation, under other settings where they are given."""
    snapshot = snapshot.evolve(now=event.at)
    settings = event.settings or snapshot.settings
    if settings is None or (event.settings is None and event.system is None):
        return snapshot
    system = event.system if event.system is not None else snapshot.system
    offered = _offered(snapshot, settings)
    return snapshot.evolve(
        settings=settings,
        system=system,
        offered=offered,
        setup_digest=_setup_digest(settings, system, offered),
    )


def _offered(snapshot: Snapshot, settings: Settings) -> tuple[ToolDefinition, ...]:
    wanted = frozenset(settings.tools)
    return tuple(tool for tool in snapshot.tools if tool.name in wanted)


def _setup_digest(
    settings: Settings, system: str | None, offered: tuple[ToolDefinition, ...]
) -> str:
    parts = [settings.model, settings.options, system, encode(offered)]
    return hashlib.sha256(canonical(parts)).hexdigest()


def say(snapshot: Snapshot, message: Message) -> Snapshot:
    """The conversation with one more message; the cost does not depend on its length."""
    said = (
        snapshot.digest,
        message.role,
        message.content,
        message.tool_call_id,
        message.name,
        [(call.id, call.name, call.raw or call.arguments) for call in message.tool_calls],
        message.provider_data,
    )
    digest = hashlib.sha256(canonical(said)).hexdigest()
    messages = snapshot.messages.append(message, key=message.tool_call_id)
    return snapshot.evolve(messages=messages, digest=digest)


def absorb(snapshot: Snapshot, event: MachineEvent) -> Snapshot:
    """The context after the event, in the same state."""
    match event:
        case Replied():
            return _replied(snapshot, event.reply)
        case Reviewed():
            return _reviewed(snapshot, event.verdicts)
        case ToolFinished():
            return _finished(snapshot, event)
        case Failed():
            return snapshot.evolve(failure=event, attempt=snapshot.attempt + 1)
        case Decided():
            return _decided(snapshot, event)
        case Waited():
            return snapshot
        case Cancelled():
            return snapshot.evolve(cancelled=True)
    assert_never(event)


# -- a reply -------------------------------------------------------------------------------------


def _replied(snapshot: Snapshot, reply: Reply) -> Snapshot:
    reply = _content_decides(reply)
    calls = _identified(snapshot, reply.tool_calls)
    said = bool(reply.content and reply.content.strip())
    message = Message(
        role="assistant",
        content=reply.content,
        tool_calls=calls,
        provider_data=reply.provider_data,
    )
    settled = settle(snapshot, "the model was asked again before it ran")
    return say(settled, message).evolve(
        reply=reply,
        replies=snapshot.replies + 1,
        calls=_counted(snapshot, calls),
        failure=None,
        attempt=0,
        tool_only_streak=snapshot.tool_only_streak + 1 if calls and not said else 0,
        usage=snapshot.usage.plus(reply.usage or Usage()),
        warnings=snapshot.warnings + reply.warnings if reply.warnings else snapshot.warnings,
    )


def _content_decides(reply: Reply) -> Reply:
    """The reply with a finish reason that its content bears out, whatever an adapter made of it.

    Calls are calls even beside `stop`; a promise of calls without any would leave the chart waiting
    for outcomes that nothing produces.
    """
    if reply.tool_calls and reply.finish_reason in ("stop", "unknown", "paused"):
        return replace(reply, finish_reason="tool_calls")
    if not reply.tool_calls and reply.finish_reason == "tool_calls":
        return replace(reply, finish_reason="unknown")
    return reply


def _identified(snapshot: Snapshot, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls under ids that are unique in the conversation.

    A provider may give no id, or one that it has used before; then the call gets an id that follows
    from its place, and the native one is kept beside it.
    """
    used: set[str] = set()
    result = []
    for place, call in enumerate(calls):
        taken = not call.id or call.id in used or snapshot.messages.newest(call.id) is not None
        if taken:
            fresh = f"call_{snapshot.turn}_{snapshot.iteration}_{place}"
            while fresh in used or snapshot.messages.newest(fresh) is not None:
                fresh += "x"
            call = replace(call, id=fresh, native_id=call.native_id or call.id or None)
        used.add(call.id)
        result.append(call)
    return tuple(result)


def _counted(snapshot: Snapshot, calls: tuple[ToolCall, ...]) -> tuple[OpenCall, ...]:
    """The calls with the number of times that each was asked for in this turn."""
    here: dict[str, int] = {}
    opened = []
    for call in calls:
        key = call_key(call)
        before = snapshot.tracked.newest(key)
        here[key] = here.get(key, before.repeat if before else 0) + 1
        opened.append(OpenCall(call=call, key=key, repeat=here[key]))
    return tuple(opened)


def call_key(call: ToolCall) -> str:
    """What makes two calls the same: the tool and its canonical arguments."""
    arguments = call.raw if call.arguments is None else canonical_text(call.arguments)
    return f"{call.name} {arguments}"


# -- calls ---------------------------------------------------------------------------------------


def _reviewed(snapshot: Snapshot, verdicts: tuple[Verdict, ...]) -> Snapshot:
    by_id = {verdict.call_id: verdict for verdict in verdicts}
    calls, denied = [], snapshot.denied
    for opened in snapshot.calls:
        verdict = by_id.pop(opened.call.id, None)
        if verdict is None:
            break
        calls.append(_ruled(opened, verdict))
        denied += verdict.ruling == "denied"
    if by_id or len(calls) != len(snapshot.calls):
        raise IllegalEvent("reviewed", snapshot.state, refused=("one verdict for every open call",))
    return snapshot.evolve(calls=tuple(calls), denied=denied)


def _ruled(opened: OpenCall, verdict: Verdict) -> OpenCall:
    call = opened.call
    if verdict.arguments is not None:
        call = replace(call, arguments=verdict.arguments)
    return OpenCall(
        call=call,
        key=opened.key,
        repeat=opened.repeat,
        ruling=verdict.ruling,
        reason=verdict.reason,
    )


def _decided(snapshot: Snapshot, event: Decided) -> Snapshot:
    opened = _open(snapshot, event.call_id, event.TYPE)
    if opened.ruling != "needs_approval":
        raise IllegalEvent(
            event.TYPE, snapshot.state, refused=(f"call {event.call_id!r} waits for a decision",)
        )
    call = opened.call
    if event.arguments is not None:
        call = replace(call, arguments=event.arguments)
    decided = replace(
        opened,
        call=call,
        ruling="run" if event.approved else "denied",
        reason=event.reason,
        decided_at=event.at,
    )
    return _with_call(snapshot, decided).evolve(
        approved=snapshot.approved + event.approved,
        denied=snapshot.denied + (not event.approved),
    )


def _finished(snapshot: Snapshot, event: ToolFinished) -> Snapshot:
    opened = _open(snapshot, event.call_id, event.TYPE)
    if opened.outcome is not None:
        raise IllegalEvent(
            event.TYPE, snapshot.state, refused=(f"call {event.call_id!r} has no outcome yet",)
        )
    ended = OpenCall(  # spelt out: `replace` costs three times as much, and this is every call
        call=opened.call,
        key=opened.key,
        repeat=opened.repeat,
        ruling=opened.ruling,
        reason=opened.reason,
        decided_at=opened.decided_at,
        outcome=event.outcome,
        result=event.result,
        shown=event.shown,
    )
    snapshot = _with_call(snapshot, ended)
    if not _all_ended(snapshot.calls):
        return snapshot
    return _answered(snapshot, iteration=snapshot.iteration + 1)


def _open(snapshot: Snapshot, call_id: str, event: str) -> OpenCall:
    for opened in snapshot.calls:
        if opened.call.id == call_id:
            return opened
    raise IllegalEvent(event, snapshot.state, refused=(f"a call {call_id!r} is open",))


def _with_call(snapshot: Snapshot, changed: OpenCall) -> Snapshot:
    if len(snapshot.calls) == 1:
        return snapshot.evolve(calls=(changed,))
    calls = tuple(
        changed if opened.call.id == changed.call.id else opened for opened in snapshot.calls
    )
    return snapshot.evolve(calls=calls)


def _all_ended(calls: tuple[OpenCall, ...]) -> bool:
    return None not in [opened.outcome for opened in calls]


def _answered(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """Every open call has its outcome: say the results, in the reply's order, and track them."""
    tracked: Trail[TrackedCall] = snapshot.tracked
    for opened in snapshot.calls:
        result = opened.result or {}
        content = opened.shown if opened.shown is not None else canonical_text(result)
        snapshot = say(
            snapshot,
            Message(
                role="tool", content=content, tool_call_id=opened.call.id, name=opened.call.name
            ),
        )
        tracked = tracked.append(_track(snapshot, opened, result), key=opened.key)
    return snapshot.evolve(tracked=tracked, **changes)


def _track(snapshot: Snapshot, opened: OpenCall, result: dict[str, object]) -> TrackedCall:
    spent = result.get("execution_time_ms", 0.0)
    return TrackedCall(
        tool=opened.call.name,
        params=opened.call.arguments,
        result=result,
        iteration=snapshot.iteration,
        execution_time_ms=float(spent) if isinstance(spent, (int, float)) else 0.0,
        outcome=opened.outcome or "skipped",
        repeat=opened.repeat,
    )


def settle(snapshot: Snapshot, reason: str) -> Snapshot:
    """Answer the calls that nobody will run any more, so that no request carries a dangling one.

    A reply that was cut off, or a turn that ended, leaves calls without an outcome; the next request
    must answer them all the same, and the model must hear that they did not happen.
    """
    if not snapshot.calls:
        return snapshot
    if _all_ended(snapshot.calls):
        return snapshot.evolve(calls=())
    calls = tuple(
        opened if opened.outcome is not None else _skipped(opened, reason)
        for opened in snapshot.calls
    )
    return _answered(snapshot.evolve(calls=calls), calls=())


def _skipped(opened: OpenCall, reason: str) -> OpenCall:
    result = {
        "success": False,
        "error": NOT_EXECUTED.format(reason=reason),
        "tool_name": opened.call.name,
        "execution_time_ms": 0.0,
    }
    return replace(opened, outcome="skipped", result=result)
