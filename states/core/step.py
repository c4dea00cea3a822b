"""`step`, the transition function of the core: the only function that moves a conversation.

    step(machine, snapshot, event) -> snapshot', effects, and the reason

Toolchart is a state machine whose work happens outside. `step` is its transition function. It takes
where the conversation stands (the snapshot) and what has happened (the event); it returns where the
conversation stands now and what has to be done next (the effects). It does none of it.

One step has three parts:

    1. reduce    `reduce_event` adds the event to the context: messages, calls, counters  (reduce.py)
    2. decide    the machine evaluates guards over the facts of the new context and answers with the
                 next configuration and the names of effects                              (machine.py)
    3. request   effects of states that were left are cancelled; each new one becomes a value with an
                 id and all that its performer needs                                   (requests.py)

An effect belongs to the state that asked for it. It is open from that step until an event closes it or its
state is left; the snapshot holds the open effects. An event that answers an effect names its id. If the
effect is not open any more, the event came too late: it is recorded, its usage is counted, and nothing else
changes.

The core is pure: no clock, no random numbers, no I/O. Times and jitter come in with events. So the
same three arguments give the same answer on every machine and in every year, and the recorded events
are enough to derive a whole conversation again. Replay does exactly that.

Some events act on the conversation as a whole: `configured` and `migrated` set chart and tools, `continued`
names another release, `forked` continues from another conversation, `turn_started` enters the initial state,
`resumed` lets a new worker go on, `erased` changes nothing. Charts cannot name them. A chart receives every
other event: rows for `replied` take it, and so do rows for the effect that it answers, `replied.call_model`.

An event that no row takes changes the context and not the configuration; the step is marked as untaken. A
turn in which no event can arrive any more is ended by the core as `stuck`, so no chart can hang.

A whole turn, driven by hand:

    >>> from toolchart.states.core.step import begin, step
    >>> from toolchart.specs.charts import load_chart
    >>> from toolchart.states.events import (
    ...     Configured, Replied, Reviewed, Settings, ToolFinished, TurnStarted, Verdict)
    >>> from toolchart.states.machine import Machine
    >>> from toolchart.states.messages import Reply, ToolCall, ToolDefinition
    >>> machine = Machine(load_chart("tool_loop"))
    >>> add = ToolDefinition(name="add", description="Add two numbers.")
    >>> snapshot = begin(Configured(format=2, conversation="c1", chart="", spec={}, tools=(add,)))
    >>> settings = Settings(service="s", provider="scripted", model="m", tools=("add",))
    >>> first = step(machine, snapshot, TurnStarted(message="1 + 2?", settings=settings))
    >>> first.target, first.effects[0].name
    ('prompting', 'call_model')
    >>> call = ToolCall(id="c", name="add", arguments={"a": 1, "b": 2})
    >>> second = step(machine, first.snapshot,
    ...            Replied(reply=Reply(finish_reason="tool_calls", tool_calls=(call,))))
    >>> second.target, second.guards
    ('awaiting_tools', {"finish_reason == 'tool_calls'": True})
    >>> third = step(machine, second.snapshot,
    ...              Reviewed(verdicts=(Verdict(call_id="c", ruling="run"),)))
    >>> third.target, third.effects[0].calls[0].name
    ('executing', 'add')
    >>> fourth = step(machine, third.snapshot, ToolFinished(
    ...     call_id="c", outcome="succeeded",
    ...     result={"success": True, "result": 3, "tool_name": "add", "execution_time_ms": 0.1}))
    >>> fourth.target, [message.role for message in fourth.effects[0].request.messages]
    ('prompting', ['user', 'assistant', 'tool'])
    >>> fifth = step(machine, fourth.snapshot, Replied(reply=Reply(content="3", finish_reason="stop")))
    >>> fifth.target, fifth.effects[0].content, fifth.snapshot.is_over
    ('finished', '3', True)
"""

from __future__ import annotations

from functools import cache

import msgspec
from msgspec.structs import replace

from toolchart.states.compiler import Ask, FiredTransition, Move
from toolchart.states.core.answers import (
    close_answered_effect,
    find_answer_rule,
    find_answered_effect,
    find_effect_closed_by,
    list_legal_events,
)
from toolchart.states.core.calls import close_open_calls
from toolchart.states.core.configurations import Erased, Migrated
from toolchart.states.core.migration import migrate_snapshot
from toolchart.states.core.open_effects import (
    build_effects,
    cancel_effects,
    end_hopeless_turn,
    list_effects_on_calls,
)
from toolchart.states.core.reduce import (
    apply_fork,
    apply_resumption,
    configure_conversation,
    count_late_reply,
    open_turn,
)
from toolchart.states.core.requests import end_turn_by_core
from toolchart.states.core.vocabulary import EVENTS
from toolchart.states.effects import Effect
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import (
    Answering,
    Cancelled,
    Configured,
    Continued,
    Event,
    EventDescriptor,
    Forked,
    Replied,
    Resumed,
    TurnStarted,
    UserSaid,
)
from toolchart.states.facts import FactView
from toolchart.states.flows.events import AgentAnswering
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot, SnapshotBuilder

SEMANTICS = 5
"""Number of the core's semantics. It grows with every change after which equal events could give other steps;
a log names the number that derived it."""


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one event did."""

    snapshot: Snapshot
    effects: tuple[Effect, ...]
    """The effects that were asked for, in order. Those that an event answers are open in the snapshot."""
    source: str
    """Label of the state before the event."""
    target: str
    """Label of the state after it."""
    guards: dict[str, bool]
    """Every guard that was evaluated, with its truth: the reason for the step."""
    fired: tuple[FiredTransition, ...] = ()
    """The transitions that fired."""
    cancels: tuple[int, ...] = ()
    """Ids of the effects that were cancelled, because their state was left or the turn ended."""
    is_late: bool = False
    """Whether the event answers an effect that was not open any more."""
    is_untaken: bool = False
    """Whether no transition fired on the event."""
    before: Snapshot | None = None
    """The snapshot before the event; None where the step added no message and ended no turn."""
    event: Event | None = None
    """The event; None where `before` is."""


def begin(configured: Configured) -> Snapshot:
    """The first snapshot of a conversation, made from its first event."""
    return _apply_configuration(Snapshot(), configured)


def step(machine: Machine, snapshot: Snapshot, event: Event) -> Step:
    """The next snapshot, the effects in order, and the reason.

    Raises:
        IllegalEvent: the event does not fit the conversation: it names an effect or a call that does not
            exist, or a turn is open where none may be. `snapshot` is unchanged.
    """
    row = _describe_event(type(event))
    if row.reduce is None:
        return _step_conversation(machine, snapshot, event)
    configuration = snapshot.configuration
    if configuration is None:
        raise IllegalEvent(event.TYPE, "(no turn yet)", legal=(TurnStarted.TYPE,))
    name, rule, effect = event.TYPE, None, None
    if isinstance(event, Answering):
        effect = find_answered_effect(snapshot, event)
        if effect is None:
            return _record_late_event(snapshot, event)
        if not event.effect:
            event = replace(event, effect=effect.id)
    elif snapshot.has_ended:
        raise IllegalEvent(event.TYPE, snapshot.state, legal=(TurnStarted.TYPE,))
    else:
        effect = find_effect_closed_by(snapshot, event.TYPE)
    if effect is not None:
        rule = find_answer_rule(name, effect)
    # A step changes the context several times. The builder is one copy that is changed in place, and
    # nobody else sees it; if the event is refused, it is dropped.
    builder = SnapshotBuilder.from_snapshot(snapshot)
    builder.now = event.at or snapshot.now
    builder.steps += 1
    row.reduce(builder, event)
    if effect is not None and rule is not None:
        name = rule.event
        close_answered_effect(builder, effect, rule)
    # Guards read the context after the event: "the iteration that has just ended" is counted.
    try:
        move = machine.try_event(configuration, name, FactView(builder))
    except SpecError as error:  # transitions without an event follow each other for ever
        return _end_by_core(snapshot, builder, event, "endless", error.message)
    if type(move) is Move:
        return _complete_step(machine, snapshot, builder, event, move)
    return _complete_untaken_step(snapshot, builder, event, move.guards)


@cache
def _describe_event(kind: type[Event]) -> EventDescriptor:
    return EVENTS.find(kind.TYPE)


def _record_late_event(snapshot: Snapshot, event: Answering) -> Step:
    """The step of an event that came too late: only the usage of a reply or of a child counts."""
    builder = SnapshotBuilder.from_snapshot(snapshot)
    builder.now = event.at or snapshot.now
    if isinstance(event, Replied):
        count_late_reply(builder, event.reply.usage)
    elif isinstance(event, AgentAnswering):
        count_late_reply(builder, event.usage)
    label = snapshot.state
    return Step(snapshot=builder.build(), effects=(), source=label, target=label, guards={}, is_late=True)


# -- the conversation as a whole -----------------------------------------------------------------


def _step_conversation(machine: Machine, snapshot: Snapshot, event: Event) -> Step:
    """The events that act on the conversation as a whole."""
    label, builder = snapshot.state, SnapshotBuilder.from_snapshot(snapshot)
    match event:
        case TurnStarted():
            _require_turn_end(snapshot, event.TYPE)
            return _start_turn(machine, snapshot, event)
        case Migrated():
            return _build_quiet_step(migrate_snapshot(machine, snapshot, event), label)
        case Configured():
            _require_turn_end(snapshot, event.TYPE)
            return _build_quiet_step(_apply_configuration(snapshot, event), label)
        case Forked():
            return _fork_conversation(machine, snapshot, event)
        case Resumed():
            if snapshot.has_ended:
                raise IllegalEvent(event.TYPE, label or "(no turn yet)", legal=(TurnStarted.TYPE,))
            apply_resumption(builder, event)
        case Continued() | Erased():
            pass  # what derives the log has changed, or records have; not the state
        case _:
            raise AssertionError(f"no chart may name {event.TYPE!r}, and the core does not handle it")
    builder.now = event.at or snapshot.now
    return _build_quiet_step(builder.build(), label)


def _build_quiet_step(snapshot: Snapshot, label: str) -> Step:
    """A step that asks for nothing and moves nothing."""
    return Step(snapshot=snapshot, effects=(), source=label, target=label, guards={})


def _require_turn_end(snapshot: Snapshot, event: str) -> None:
    """A turn begins, and a chart changes, only between turns."""
    if not snapshot.is_over:
        raise IllegalEvent(event, snapshot.state, legal=list_legal_events(snapshot))


def _apply_configuration(snapshot: Snapshot, event: Configured) -> Snapshot:
    builder = SnapshotBuilder.from_snapshot(snapshot)
    configure_conversation(builder, event)
    builder.now = event.at or snapshot.now
    return builder.build()


def _start_turn(machine: Machine, snapshot: Snapshot, event: TurnStarted) -> Step:
    builder = open_turn(snapshot, event)
    builder.steps = 1
    if snapshot.awaits_user:
        return _continue_chart(machine, snapshot, builder, event)
    try:
        move = machine.start(FactView(builder))
    except SpecError as error:
        return _end_by_core(snapshot, builder, event, "endless", error.message)
    cancels = cancel_effects(builder, [effect.id for effect in builder.open_effects])
    return _complete_step(machine, snapshot, builder, event, move, cancels)


def _continue_chart(
    machine: Machine, snapshot: Snapshot, builder: SnapshotBuilder, event: TurnStarted
) -> Step:
    """The first step of a turn of a chart that waited for the user: the chart gets `user_said`."""
    configuration, name = snapshot.configuration, UserSaid.TYPE
    assert configuration is not None, "a chart that waits for the user is running"
    effect = find_effect_closed_by(snapshot, name)
    if effect is not None:
        rule = find_answer_rule(name, effect)
        name = rule.event
        close_answered_effect(builder, effect, rule)
    try:
        move = machine.try_event(configuration, name, FactView(builder))
    except SpecError as error:
        return _end_by_core(snapshot, builder, event, "endless", error.message)
    if type(move) is Move:
        return _complete_step(machine, snapshot, builder, event, move)
    return _complete_untaken_step(snapshot, builder, event, move.guards)


def _fork_conversation(machine: Machine, snapshot: Snapshot, event: Forked) -> Step:
    """A fork may begin in the middle of a turn. Effects that are open there are asked for again."""
    builder = SnapshotBuilder.from_snapshot(snapshot)
    builder.now = event.at or snapshot.now
    apply_fork(builder, event)
    open_effects, builder.open_effects = builder.open_effects, ()
    asks = [Ask(effect.state, effect.name) for effect in open_effects]
    effects, _ = build_effects(machine.vocabulary, builder, asks)
    return Step(
        snapshot=builder.build(),
        effects=effects,
        source=snapshot.state,
        target=snapshot.state,
        guards={},
        cancels=tuple(effect.id for effect in open_effects),
    )


# -- the second half of a step -------------------------------------------------------------------


def _complete_step(
    machine: Machine,
    before: Snapshot,
    builder: SnapshotBuilder,
    event: Event,
    move: Move,
    cancels: tuple[int, ...] = (),
) -> Step:
    """Enter the move's configuration, cancel what its states had open, and build the new effects."""
    builder.configuration = configuration = move.configuration
    if builder.open_effects:
        left = move.reset_states
        ended = [e.id for e in builder.open_effects if configuration.terminated or e.state in left]
        cancels += cancel_effects(builder, ended)
    effects, ends_turn = build_effects(machine.vocabulary, builder, move.asks)
    if ends_turn and builder.open_effects:
        # An answer has closed all calls, so nobody may review, decide or run one any more.
        cancels += cancel_effects(builder, list_effects_on_calls(builder))
    if configuration.terminated:
        close_open_calls(builder, "the turn ended")
    cancels += end_hopeless_turn(builder)
    return Step(
        snapshot=builder.build(),
        effects=effects,
        source=before.state,
        target=configuration.label,
        guards=move.guards,
        fired=move.fired,
        cancels=cancels,
        is_untaken=not move.is_taken,
        before=before,
        event=event,
    )


def _complete_untaken_step(
    before: Snapshot, builder: SnapshotBuilder, event: Event, guards: dict[str, bool]
) -> Step:
    """The step of an event that no row takes: the configuration stays."""
    if isinstance(event, Cancelled):
        # The turn is suspended and not ended: whoever resumes it continues as if nobody had stopped it.
        builder.cancelled, builder.streamed_text = before.cancelled, before.streamed_text
    cancels = end_hopeless_turn(builder)
    label = before.state
    return Step(
        snapshot=builder.build(),
        effects=(),
        source=label,
        target=label,
        guards=guards,
        cancels=cancels,
        is_untaken=True,
        before=before,
        event=event,
    )


def _end_by_core(before: Snapshot, builder: SnapshotBuilder, event: Event, reason: str, message: str) -> Step:
    """The step after which the core has ended the turn; the configuration stays."""
    cancels = cancel_effects(builder, [effect.id for effect in builder.open_effects])
    end_turn_by_core(builder, reason, message)
    return Step(
        snapshot=builder.build(),
        effects=(),
        source=before.state,
        target=before.state,
        guards={},
        cancels=cancels,
        is_untaken=True,
        before=before,
        event=event,
    )
