"""The calls of the latest reply: from the model's request to an outcome that the model hears about.

The life of one tool call, as an `OpenCall` of the snapshot:

    replied        ->  OpenCall(call)               its id is unique; its repeats are counted
    reviewed       ->  ruling = run | denied | invalid | needs_approval
    decided        ->  ruling = run | denied        only where the ruling was needs_approval
    calls_started  ->  began_under = EFFECT         an idempotent call: as soon as `run_tools` asks for it
    tool_finished  ->  outcome, result
    (the last one) ->  tool messages are appended, the calls move to `tracked_calls`, iteration + 1

Two invariants hold here, and the property tests check them:

- Every requested call gets exactly one outcome before the next model call, and the outcome is true. A call
  that never began ends as `skipped`. One that began, or was about to, and has no result ends as
  `interrupted`. The model reads exactly that.
- An event that does not fit the open calls raises `IllegalEvent`; the builder is dropped, and the snapshot
  that it was made from has not changed.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from msgspec.structs import replace

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import add_text
from toolchart.states.effects import AskApproval, RunTools
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Decided, Outcome, Reviewed, ToolFinished
from toolchart.states.messages import Message, ToolCall
from toolchart.states.snapshot import (
    NO_CALLS,
    OpenCall,
    OpenCalls,
    Snapshot,
    SnapshotBuilder,
    SnapshotFields,
    TrackedCall,
)

_get_id, _get_call_id = attrgetter("id"), attrgetter("call_id")

# -- a new reply ---------------------------------------------------------------------------------


def assign_call_ids(builder: SnapshotBuilder, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls under ids that are unique in the conversation.

    A provider may give no id, or one that it has used before. Such a call gets an id made of turn,
    iteration and index, so that replay derives the same one; the provider's id is kept in `native_id`.
    """
    used_ids: set[str] = set()
    calls_with_ids, has_new_ids = [], False
    for index, call in enumerate(calls):
        # Each call of an earlier reply has its tool message by now (the first invariant), so its id is
        # found there.
        needs_id = not call.id or call.id in used_ids or builder.messages.find_newest(call.id) is not None
        if needs_id:
            new_id = f"call_{builder.turn}_{builder.iteration}_{index}"
            while new_id in used_ids or builder.messages.find_newest(new_id) is not None:
                new_id += "x"
            call = replace(call, id=new_id, native_id=call.native_id or call.id or None)
            has_new_ids = True
        used_ids.add(call.id)
        calls_with_ids.append(call)
    if has_new_ids:
        builder.given_call_ids = tuple(map(_get_id, calls_with_ids))
    return tuple(calls_with_ids)


def build_open_calls(builder: SnapshotBuilder, calls: tuple[ToolCall, ...]) -> OpenCalls:
    """The calls with the number of replies of this turn that requested each.

    Equal calls in one reply count once: a model that wants five random numbers is in no loop.
    """
    open_calls = []
    for call in calls:
        key = build_call_key(call)
        earlier_call = builder.tracked_calls.find_newest(key)
        repeat = earlier_call.repeat + 1 if earlier_call else 1
        open_calls.append(OpenCall(call=call, key=key, repeat=repeat))
    return OpenCalls(open_calls)


def build_call_key(call: ToolCall) -> str:
    """What makes two calls the same: the tool and its canonical arguments."""
    arguments = call.raw if call.arguments is None else encode_canonical_text(call.arguments)
    return f"{call.name} {arguments}"


# -- rulings -------------------------------------------------------------------------------------


def reduce_review(builder: SnapshotBuilder, event: Reviewed) -> None:
    """Give every open call its ruling.

    Raises:
        IllegalEvent: the verdicts are not exactly those of the open calls.
    """
    verdicts_by_id = dict(zip(map(_get_call_id, event.verdicts), event.verdicts, strict=True))
    calls, denied = [], builder.denied
    settings = builder.settings
    is_strict = settings is not None and settings.strict
    most_repeats = settings.limits.max_repeats if settings is not None else 0
    for open_call in builder.calls:
        if open_call.outcome is not None:
            calls.append(open_call)
            continue
        verdict = verdicts_by_id.pop(open_call.call.id, None)
        if verdict is None:
            break
        call = open_call.call
        if verdict.arguments is not None:
            call = replace(call, arguments=verdict.arguments)
        open_call = replace(
            open_call,
            call=call,
            ruling=verdict.ruling,
            reason=verdict.reason,
            may_repeat=verdict.may_repeat,
            idempotent=verdict.idempotent,
            definition=verdict.definition,
        )
        calls.append(open_call)
        denied += verdict.ruling == "denied"
        if is_strict and verdict.is_repaired and verdict.ruling in ("run", "needs_approval"):
            # A lenient policy records the repair alone, and the call runs with what was made of it.
            builder.warnings += (f"the arguments of a call of {call.name!r} were repaired",)
        if open_call.repeat == most_repeats + 1 and not verdict.may_repeat:
            builder.warnings += (
                f"the model asked for the same call of {call.name!r} {open_call.repeat} times"
                f" (max_repeats: {most_repeats})",
            )
    if verdicts_by_id or len(calls) != builder.calls.length:
        raise IllegalEvent("reviewed", builder.state, false_conditions=("one verdict for every open call",))
    builder.calls = OpenCalls(calls)
    builder.denied = denied


def reduce_decision(builder: SnapshotBuilder, event: Decided) -> None:
    """Let a waiting call run, or deny it; a decision without a call says that there was none to decide.

    Raises:
        IllegalEvent: the call does not wait for a decision.
    """
    if not event.call_id:
        if builder.calls.undecided:
            raise IllegalEvent(event.TYPE, builder.state, false_conditions=("every call is decided",))
        return
    open_call = _find_waiting_call(builder.calls, event, builder.state)
    require_approver(builder, event)
    call = open_call.call
    if event.arguments is not None:
        call = replace(call, arguments=event.arguments)
    open_call = replace(
        open_call,
        call=call,
        ruling="run" if event.approved else "denied",
        reason=event.reason,
        decided_at=event.at,
        decided_by=event.by or "",
        decided_effect=event.effect,
        signature=event.signature,
        definition=event.definition if event.approved else open_call.definition,
    )
    builder.calls = builder.calls.replace_call(open_call)
    builder.approved += event.approved
    builder.denied += not event.approved


def require_waiting_call(snapshot: Snapshot, event: Decided) -> None:
    """Check that the call of a decision waits for one.

    Raises:
        IllegalEvent: there is no such call, or it does not wait, or not any more.
    """
    _find_waiting_call(NO_CALLS if snapshot.is_over else snapshot.calls, event, snapshot.state)


def _find_waiting_call(calls: OpenCalls, event: Decided, state: str) -> OpenCall:
    open_call = calls.find(event.call_id)
    if open_call is not None and open_call.ruling == "needs_approval" and open_call.outcome is None:
        return open_call
    condition = f"call {event.call_id!r} waits for a decision"
    raise IllegalEvent(event.TYPE, state or "(no turn yet)", false_conditions=(condition,))


def require_approver(snapshot: Snapshot | SnapshotBuilder, event: Decided) -> None:
    """Check that the effect which waits for a decision waits for one of this person.

    Raises:
        IllegalEvent: the effect names its approvers, and this is none of them.
    """
    for effect in reversed(snapshot.open_effects):
        if isinstance(effect, AskApproval) and event.effect in (0, effect.id):
            if effect.to and event.by not in effect.to:
                condition = f"{event.by or 'nobody'} is one of its approvers: {', '.join(effect.to)}"
                raise IllegalEvent(
                    event.TYPE, snapshot.state, false_conditions=(condition,), legal=(event.TYPE,)
                )
            return


# -- starts --------------------------------------------------------------------------------------


def mark_started_calls(builder: SnapshotBuilder, effect: RunTools, call_ids: tuple[str, ...]) -> RunTools:
    """Note that calls of an effect begin.

    Raises:
        IllegalEvent: a call is none of the effect, or has its outcome already.
    """
    asked_calls = effect.calls if type(effect) is RunTools else ()
    positions = builder.calls.positions
    for call_id in call_ids:
        open_call, place = builder.calls.find(call_id), 0
        # The calls begin in many steps. So none of them reads all: an effect asks in the order of the reply.
        if open_call is not None and len(asked_calls) > 1:
            place = bisect_left(asked_calls, positions[call_id], key=lambda call: positions.get(call.id, -1))
        is_asked = place < len(asked_calls) and asked_calls[place].id == call_id
        if open_call is None or open_call.outcome is not None or not is_asked:
            condition = f"the effect {effect.id} has an open call {call_id!r}"
            raise IllegalEvent("calls_started", builder.state, false_conditions=(condition,))
        builder.calls = builder.calls.replace_call(replace(open_call, began_under=effect.id))
    return effect


# -- outcomes ------------------------------------------------------------------------------------


def reduce_outcome(builder: SnapshotBuilder, event: ToolFinished) -> None:
    """Give a call its outcome; the last one of a reply appends the tool messages and counts the iteration.

    An outcome without a call says that there was nothing to run.

    Raises:
        IllegalEvent: the call is not open, or has its outcome already.
    """
    if not event.call_id:
        if builder.calls.pending:
            raise IllegalEvent(event.TYPE, builder.state, false_conditions=("every call has an outcome",))
        # There was nothing to run. The round counts all the same, so that a chart's bound holds.
        builder.calls = NO_CALLS
        builder.iteration += 1
        return
    calls = builder.calls
    open_call = calls.find(event.call_id)
    if open_call is None:
        raise IllegalEvent(event.TYPE, builder.state, false_conditions=(f"a call {event.call_id!r} is open",))
    if open_call.outcome is not None:
        raise IllegalEvent(
            event.TYPE, builder.state, false_conditions=(f"call {event.call_id!r} has no outcome yet",)
        )
    call_with_outcome = replace(
        open_call, outcome=event.outcome, result=event.result, shown=event.shown, parts=event.parts
    )
    builder.calls = calls = calls.replace_call(call_with_outcome)
    if event.usage is not None:
        builder.usage = builder.usage.plus(event.usage)
    if event.raised and builder.settings is not None and builder.settings.strict:
        # A lenient policy records the failure alone: the model reads it, and the turn goes on.
        builder.warnings += (f"the tool {open_call.call.name!r} raised {event.result.get('error')}",)
    if not calls.pending:  # the last one: tell the model, track the calls, count the iteration
        _append_results(builder)
        builder.iteration += 1


def _append_results(builder: SnapshotBuilder) -> None:
    """Append one tool message per call and track the calls. Every open call must have its outcome."""
    # In the order of the reply, not in that in which the tools finished: the next request must not depend
    # on timing.
    for open_call in builder.calls:
        id_ = open_call.call.id
        # A record refers to a result that an event brought. What the core writes in this step is in no event.
        source = None if id_ in builder.closed_call_ids else {"result": id_}
        builder.append_message(build_result_message(open_call), source)
        tracked_call = build_tracked_call(builder, open_call)
        builder.tracked_calls = builder.tracked_calls.append(tracked_call, key=open_call.key)


def build_result_message(open_call: OpenCall) -> Message:
    """The tool message that tells the model the result of a call which has its outcome."""
    text, call = open_call.shown, open_call.call
    if text is None:
        text = encode_canonical_text(open_call.result or {})
    return Message(
        role="tool",
        content=text,
        tool_call_id=call.id,
        name=call.name,
        arguments=call.arguments if call.problem is not None else None,
        parts=add_text(text, open_call.parts) if open_call.parts else (),
    )


def build_tracked_call(snapshot: SnapshotFields, open_call: OpenCall) -> TrackedCall:
    """A call of the latest reply that has its outcome, as the turn keeps it."""
    result = open_call.result or {}
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


def interrupt_requested_calls(builder: SnapshotBuilder, effect: RunTools) -> None:
    """Close the calls of a cancelled `run_tools` that have no result: those that began are `interrupted`."""
    if type(effect) is not RunTools:  # a planted checkpoint may say so of another effect
        return
    requested_ids = {call.id for call in effect.calls}
    # Those too that a resumed process only had to answer for: they had begun before it.
    requested_ids |= {refusal.call.id for refusal in effect.refused if refusal.outcome == "interrupted"}
    closes_any = False
    open_calls = []
    for open_call in builder.calls:
        if open_call.outcome is None and open_call.call.id in requested_ids:
            place = "while it may have been running" if open_call.has_begun else "before it began"
            open_call = _close_call(builder, open_call, f"the state was left {place}")
            closes_any = True
        open_calls.append(open_call)
    if closes_any:
        builder.calls = OpenCalls(open_calls)
        if not builder.calls.pending:
            _append_results(builder)
            builder.iteration += 1


def close_open_calls(builder: SnapshotBuilder, reason: str) -> None:
    """Give every call without an outcome a true one, and leave no call open.

    A reply that was cut off, or a turn that ended, leaves calls that nobody will run any more. Model
    APIs reject a request in which a call has no tool message, so the next request needs one for each.
    """
    if builder.calls.pending:
        builder.calls = OpenCalls(
            [
                open_call if open_call.outcome is not None else _close_call(builder, open_call, reason)
                for open_call in builder.calls
            ]
        )
        _append_results(builder)
    builder.calls = NO_CALLS


def _close_call(builder: SnapshotBuilder, open_call: OpenCall, reason: str) -> OpenCall:
    builder.closed_call_ids.add(open_call.call.id)
    outcome: Outcome = "interrupted" if open_call.has_begun else "skipped"
    text = builder.texts.interrupted if open_call.has_begun else builder.texts.skipped
    result = {
        "success": False,
        "error": text.format(reason=reason),
        "tool_name": open_call.call.name,
        "execution_time_ms": 0.0,
    }
    return replace(open_call, outcome=outcome, result=result)
