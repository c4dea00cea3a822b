"""Reduce: how each event changes the context of a conversation.

This is the first of the three parts of a step (`step.py`): a reducer in the sense of Redux or XState. It
changes the context of a `SnapshotBuilder`, the working copy of one step, by an event: a reply is appended,
a call gets its ruling or its outcome, a counter grows. The configuration (the active states) stays as it
is. In the second part the machine says what the event means under the new context.

In: the working copy and the event. Out: nothing; the working copy has changed. Next: `machine.py`, part 2.

The context is reduced *before* guards are evaluated. So in `cond: "iteration >= max_iterations"` the
iteration that has just ended is already counted.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from toolchart.states.calls import (
    assign_call_ids,
    build_open_calls,
    close_open_calls,
    reduce_decision,
    reduce_outcome,
    reduce_review,
)
from toolchart.states.content import has_words
from toolchart.states.effects import CallModel, Submission
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import (
    UNUSABLE_KINDS,
    AgentAnswering,
    AgentFailed,
    AgentFinished,
    AgentRested,
    Answered,
    CallsStarted,
    CallSubmitted,
    Cancelled,
    Configured,
    Continued,
    Counted,
    Decided,
    Elapsed,
    EventDescriptor,
    Failed,
    Forked,
    Migrated,
    Replied,
    Resumed,
    Returned,
    Reviewed,
    Settings,
    Texts,
    ToolFinished,
    TurnStarted,
    UserSaid,
)
from toolchart.states.flows.compaction import (
    measure_context,
    measure_refused_context,
    reduce_count,
    show_summary,
)
from toolchart.states.flows.results import (
    reduce_agent_answer,
    reduce_agent_rest,
    reduce_form,
    reduce_result_failure,
    reduce_result_reply,
    reduce_return,
    wake_agents,
)
from toolchart.states.message_list import MessageList, OfferedTools
from toolchart.states.messages import Message, Reply, ToolCall
from toolchart.states.snapshot import NO_CALLS, OpenCalls, Snapshot, SnapshotBuilder
from toolchart.states.vocabulary import get_effects

# -- the conversation as a whole -----------------------------------------------------------------


def configure_conversation(builder: SnapshotBuilder, event: Configured) -> None:
    """The conversation has these tools and texts from now on."""
    builder.tools = event.tools
    builder.texts = Texts(**event.texts)


def open_turn(snapshot: Snapshot, event: TurnStarted) -> SnapshotBuilder:
    """A fresh turn on top of the conversation so far. Results stay where the chart waits for the user."""
    # A new value, not a copy: every counter of the turn begins at its default.
    goes_on = snapshot.awaits_user
    builder = SnapshotBuilder(
        configuration=snapshot.configuration,
        tools=snapshot.tools,
        texts=snapshot.texts,
        messages=snapshot.messages,
        shown=snapshot.shown,
        measured_tokens=snapshot.measured_tokens,
        measured_messages=snapshot.measured_messages,
        next_effect=snapshot.next_effect,
        open_effects=snapshot.open_effects,
        inbox=snapshot.inbox,
        writes_tools_as_text=snapshot.writes_tools_as_text and _asks_same_model(snapshot, event.settings),
        system=event.system if event.system is not None else snapshot.system,
        results=snapshot.results if goes_on else {},
        user_message=event.message,
        variables={**snapshot.variables, **event.variables} if goes_on else event.variables,
        turn=snapshot.turn + 1,
        settings=event.settings,
        offered_tools=select_tools(snapshot, event.settings),
        started_at=event.at,
        now=event.at,
        warnings=event.warnings,
    )
    # The order of messages: results of calls that were left open, since hosts refuse a call without its
    # result right behind it; then what was said elsewhere, what was said meanwhile, and what is said now.
    if goes_on and snapshot.calls.length:  # calls that nobody took up before the chart began to wait
        builder.calls = snapshot.calls
        builder.closed_call_ids.update(snapshot.calls.positions)
        close_open_calls(builder, "the turn ended")
    if event.history:
        for message in event.history:
            builder.messages = builder.messages.append(message)
            if builder.shown is not None:
                builder.shown = builder.shown.append(message)
        builder.added.append("history")
    if builder.inbox:
        append_inbox(builder)
    builder.append_message(Message(role="user", content=event.message, parts=event.parts), "message")
    if goes_on:
        wake_agents(builder, event.message)
    return builder


def keep_for_next_turn(snapshot: Snapshot, messages: MessageList) -> Snapshot:
    """What `open_turn` reads of a conversation at rest, with these messages in place of equal ones.

    A chart that waits for the user goes on as it is, so all of its snapshot is kept. One that has ended has
    no open effects.
    """
    if not snapshot.has_ended:
        return replace(snapshot, messages=messages)
    return Snapshot(
        configuration=snapshot.configuration,
        tools=snapshot.tools,
        texts=snapshot.texts,
        messages=messages,
        shown=snapshot.shown,
        measured_tokens=snapshot.measured_tokens,
        measured_messages=snapshot.measured_messages,
        next_effect=snapshot.next_effect,
        inbox=snapshot.inbox,
        writes_tools_as_text=snapshot.writes_tools_as_text,
        settings=snapshot.settings,
        offered_tools=snapshot.offered_tools,
        system=snapshot.system,
        turn=snapshot.turn,
        ended_by=snapshot.ended_by,
    )


def apply_fork(builder: SnapshotBuilder, event: Forked) -> None:
    """The same conversation, with the settings and system prompt that the fork changes, if any.

    No decision of the parent counts: a call that it approved and that has not run is undecided again.
    """
    builder.calls = OpenCalls(
        [
            replace(call, ruling="needs_approval", decided_at="")
            if call.ruling == "run" and call.decided_at and call.outcome is None
            else call
            for call in builder.calls
        ]
    )
    if event.system is not None:
        builder.system = event.system
    if event.settings is not None:
        builder.writes_tools_as_text &= _asks_same_model(builder, event.settings)
        builder.settings = event.settings
        builder.offered_tools = select_tools(builder, event.settings)


def _asks_same_model(snapshot: Snapshot | SnapshotBuilder, settings: Settings) -> bool:
    """Whether these settings ask the host and the model that were asked before."""
    before = snapshot.settings
    return before is not None and (before.service, before.model) == (settings.service, settings.model)


def apply_resumption(builder: SnapshotBuilder, event: Resumed) -> None:
    """Calls that began, or were about to, and must not be repeated are answered as `interrupted` and not run
    again."""
    open_effects = []
    for effect in builder.open_effects:
        # A planted checkpoint may name anything; the driver refuses its effect when it comes to perform it.
        row = get_effects().get(effect.kind or effect.name)
        if row is not None and row.resume is not None:
            effect = row.resume(builder, effect, event.repeatable)
        open_effects.append(effect)
    builder.open_effects = tuple(open_effects)


def apply_start(builder: SnapshotBuilder, event: CallsStarted) -> None:
    """Calls begin; the effect that asked for them stays open.

    Raises:
        IllegalEvent: the effect is not open, or did not ask for these calls.
    """
    for position, effect in enumerate(builder.open_effects):
        row = get_effects().get(effect.kind or effect.name) if effect.id == event.effect else None
        if row is not None and row.start is not None:
            started = row.start(builder, effect, event.calls)
            effects = builder.open_effects
            builder.open_effects = (*effects[:position], started, *effects[position + 1 :])
            return
    condition = f"an effect {event.effect} that runs calls is open"
    raise IllegalEvent(event.TYPE, builder.state, false_conditions=(condition,))


def apply_submission(builder: SnapshotBuilder, event: CallSubmitted) -> None:
    """A model call goes to its host in a batch job; it stays open.

    Raises:
        IllegalEvent: no such model call is open.
    """
    for position, effect in enumerate(builder.open_effects):
        if effect.id == event.effect and isinstance(effect, CallModel):
            before = effect.submission
            # The second event of a job has its id: the job exists since the first one.
            is_same = before is not UNSET and before.key == event.key
            submission = Submission(
                key=event.key,
                job=event.job,
                calls=event.calls,
                at=before.at if before is not UNSET and is_same else event.at,
                jobs=(before.jobs if before is not UNSET else 0) + bool(event.job),
            )
            effects = builder.open_effects
            changed = replace(effect, submission=submission)
            builder.open_effects = (*effects[:position], changed, *effects[position + 1 :])
            return
    condition = f"a model call {event.effect} is open"
    raise IllegalEvent(event.TYPE, builder.state, false_conditions=(condition,))


def select_tools(snapshot: Snapshot | SnapshotBuilder, settings: Settings) -> OfferedTools:
    """The tools that a turn with these settings offers, in the order of the agent spec."""
    names, offered_tools = frozenset(settings.tools), []
    for tool in snapshot.tools:
        if tool.name in names:
            offered_tools.append(tool)
    # The tools of the turn before, where they are the same: their digest has been computed.
    before = snapshot.offered_tools
    return before if before == tuple(offered_tools) else OfferedTools(offered_tools)


def append_inbox(builder: SnapshotBuilder) -> None:
    """Append the user's messages that no request contains yet."""
    for item in builder.inbox:
        builder.append_message(Message(role="user", content=item) if isinstance(item, str) else item, "inbox")
    builder.inbox = ()


# -- events of a turn ----------------------------------------------------------------------------


def _reduce_failure(builder: SnapshotBuilder, event: Failed) -> None:
    effect = builder.find_open_effect(event.effect)
    if effect.result:
        reduce_result_failure(builder, effect, event)
        return
    builder.failure = event
    builder.attempt += 1
    builder.unusable_replies = builder.unusable_replies + 1 if event.kind in UNUSABLE_KINDS else 0
    builder.streamed_text = event.content
    if event.kind == "context_length":
        measure_refused_context(builder, effect)
    builder.usage = builder.usage.plus(event.paid_usage)


def _reduce_cancellation(builder: SnapshotBuilder, event: Cancelled) -> None:
    builder.cancelled = True
    if event.content:
        builder.streamed_text = event.content


def _reduce_user_message(builder: SnapshotBuilder, event: UserSaid) -> None:
    message = Message(role="user", content=event.message, parts=event.parts) if event.parts else event.message
    builder.inbox = (*builder.inbox, message)
    builder.user_message = event.message


def _reduce_nothing(builder: SnapshotBuilder, event: Elapsed) -> None:
    """The event changes nothing but the effect that it closes."""


def _count_late_answer(builder: SnapshotBuilder, event: Replied | Failed) -> None:
    """An answer that came too late was paid for."""
    builder.usage = builder.usage.plus(event.paid_usage)


def _count_late_agent(builder: SnapshotBuilder, event: AgentAnswering) -> None:
    """So was a child whose answer came too late."""
    builder.usage = builder.usage.plus(event.usage)


# -- a reply -------------------------------------------------------------------------------------


def _reduce_reply(builder: SnapshotBuilder, event: Replied) -> None:
    effect = builder.find_open_effect(event.effect)
    if effect.result:
        reduce_result_reply(builder, effect, event)
        show_summary(builder, effect, event)
        return
    # The new calls get their ids and repeats before the old ones are closed: closing tracks the old ones, and
    # a call of this reply must not count as a repeat of one that never ran.
    reply, open_calls = event.reply, NO_CALLS
    calls: tuple[ToolCall, ...] = ()
    if reply.tool_calls:
        calls = assign_call_ids(builder, reply.tool_calls)
        open_calls = build_open_calls(builder, calls)
    if bool(calls) != (reply.finish_reason == "tool_calls"):
        reply = _correct_finish_reason(reply)
    if builder.calls.length:
        close_open_calls(builder, "the model was asked again before it ran")
    data = reply.provider_data
    builder.append_message(
        Message(
            role="assistant", content=reply.content, tool_calls=calls, provider_data=data, parts=reply.parts
        ),
        "reply",
    )
    builder.reply = reply
    builder.replies += 1
    builder.calls = open_calls
    builder.failure = None
    builder.streamed_text = None
    # Else the next failure would count as a further one, and wait too long or give up.
    builder.attempt = builder.unusable_replies = 0
    is_tool_only = calls and not has_words(reply.content)
    builder.tool_only_streak = builder.tool_only_streak + 1 if is_tool_only else 0
    builder.usage = builder.usage.plus(reply.usage)
    builder.warnings += reply.warnings
    measure_context(builder, effect, reply.usage)


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


# -- the rows ------------------------------------------------------------------------------------

EVENT_ROWS = (
    EventDescriptor(name="configured", meaning="chart, spec and tools were set", type=Configured),
    EventDescriptor(
        name="migrated", meaning="an open conversation went on with another chart", type=Migrated
    ),
    EventDescriptor(name="continued", meaning="another release or other tools go on", type=Continued),
    EventDescriptor(name="forked", meaning="the conversation branched off another one", type=Forked),
    EventDescriptor(name="turn_started", meaning="a user message opened a turn", type=TurnStarted),
    EventDescriptor(name="resumed", meaning="a worker went on with an open turn", type=Resumed),
    EventDescriptor(name="calls_started", meaning="calls that are not idempotent begin", type=CallsStarted),
    EventDescriptor(
        name="call_submitted", meaning="a model call went to its host in a batch job", type=CallSubmitted
    ),
    EventDescriptor(
        name="replied",
        meaning="the model answered",
        type=Replied,
        reduce=_reduce_reply,
        reduce_late=_count_late_answer,
    ),
    EventDescriptor(
        name="failed",
        meaning="the model call failed, or the work of an added effect",
        type=Failed,
        reduce=_reduce_failure,
        reduce_late=_count_late_answer,
    ),
    EventDescriptor(name="reviewed", meaning="every call has a verdict", type=Reviewed, reduce=reduce_review),
    EventDescriptor(
        name="decided", meaning="a call was approved or rejected", type=Decided, reduce=reduce_decision
    ),
    EventDescriptor(
        name="tool_finished", meaning="a call has its outcome", type=ToolFinished, reduce=reduce_outcome
    ),
    EventDescriptor(name="returned", meaning="a function returned", type=Returned, reduce=reduce_return),
    EventDescriptor(name="answered", meaning="a person answered", type=Answered, reduce=reduce_form),
    EventDescriptor(
        name="agent_finished",
        meaning="the turn of a child conversation ended with an answer",
        type=AgentFinished,
        reduce=reduce_agent_answer,
        reduce_late=_count_late_agent,
    ),
    EventDescriptor(
        name="agent_failed",
        meaning="the turn of a child conversation ended in error",
        type=AgentFailed,
        reduce=reduce_agent_answer,
        reduce_late=_count_late_agent,
    ),
    EventDescriptor(
        name="agent_rested",
        meaning="a child conversation waits for the user",
        type=AgentRested,
        reduce=reduce_agent_rest,
        reduce_late=_count_late_agent,
    ),
    EventDescriptor(
        name="counted",
        meaning="the tokens of the conversation were counted",
        type=Counted,
        reduce=reduce_count,
    ),
    EventDescriptor(name="elapsed", meaning="a timer ran out", type=Elapsed, reduce=_reduce_nothing),
    EventDescriptor(
        name="cancelled",
        meaning="somebody stopped the turn",
        type=Cancelled,
        reduce=_reduce_cancellation,
        is_external=True,
    ),
    EventDescriptor(
        name="user_said",
        meaning="the user sent a message during the turn",
        type=UserSaid,
        reduce=_reduce_user_message,
        is_external=True,
    ),
)
"""The rows of events, in the order in which messages and documents list them."""
