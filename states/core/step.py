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

from collections.abc import Callable, Iterable
from functools import cache, lru_cache

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from toolchart.states.calls import close_open_calls, interrupt_requested_calls
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.compiler import Ask, FiredTransition, Move
from toolchart.states.core.fact_rows import FactView
from toolchart.states.core.reduce import (
    apply_fork,
    apply_resumption,
    configure_conversation,
    count_late_reply,
    open_turn,
    select_tools,
)
from toolchart.states.core.requests import end_turn_by_core
from toolchart.states.effects import Effect, EffectDescriptor, RunTools
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import (
    AgentAnswering,
    Answering,
    Cancelled,
    Configured,
    Continued,
    Erased,
    Event,
    EventDescriptor,
    Forked,
    Migrated,
    Replied,
    Resumed,
    TurnStarted,
    UserSaid,
)
from toolchart.states.flows.budgets import get_turn_limits
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot, SnapshotBuilder, SnapshotFields
from toolchart.states.vocabulary import EFFECTS, EVENTS

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


@cache
def _find_row(name: str) -> EffectDescriptor:
    return EFFECTS.find(name)


def describe_effect(effect: Effect) -> EffectDescriptor:
    """The row of an effect; for a declared one that of its kind."""
    return _find_row(effect.kind or effect.name)


@cache
def _list_answers_of(name: str) -> tuple[str, ...]:
    return _find_row(name).answers


def list_answers(effect: Effect) -> tuple[str, ...]:
    """The events that may answer an effect."""
    return _list_answers_of(effect.kind or effect.name)


class AnswerRule(msgspec.Struct, frozen=True, kw_only=True):
    """What one event means for one effect, whatever the conversation: made once for both names."""

    event: str
    """The event as the chart gets it, with the name of the effect."""
    may_close: bool
    has_open_items: Callable[[SnapshotFields, Effect], bool] | None
    """Whether items of the effect are open after the event; None where it has none."""


@lru_cache(maxsize=1024)  # declared effects have names of their own
def _make_answer_rule(event: str, effect: str, kind: str) -> AnswerRule:
    row = _find_row(kind or effect)
    return AnswerRule(
        event=f"{event}.{effect}", may_close=event in row.closing, has_open_items=row.has_open_items
    )


def find_answer_rule(event: str, effect: Effect) -> AnswerRule:
    """What an event means for an effect that it answers or closes."""
    return _make_answer_rule(event, effect.name, effect.kind)


def find_answered_effect(snapshot: Snapshot, event: Answering) -> Effect | None:
    """The open effect that an event answers; None where it is not open any more.

    An event with the id 0 answers the newest open effect that it can answer: a decision of a person, for
    instance, names a call and no effect.

    Raises:
        IllegalEvent: the id was never given, or the effect is answered by other events.
    """
    name, id_ = event.TYPE, event.effect
    for effect in reversed(snapshot.open_effects):
        answers = list_answers(effect)
        if id_ == effect.id or (not id_ and name in answers):
            if name not in answers:
                reason = f"the effect {effect.id} ({effect.name}) is answered by {', '.join(answers)}"
                raise IllegalEvent(event.TYPE, snapshot.state, false_conditions=(reason,))
            return effect
    if 0 < event.effect < snapshot.next_effect:
        return None
    condition = (
        f"an effect {event.effect} was asked for" if event.effect else f"an effect waits for {event.TYPE!r}"
    )
    raise IllegalEvent(
        event.TYPE,
        snapshot.state or "(no turn yet)",
        false_conditions=(condition,),
        legal=list_legal_events(snapshot),
    )


def find_effect_closed_by(snapshot: Snapshot, event: str) -> Effect | None:
    """The open effect that an event from outside closes: `await_user` waits for `user_said`."""
    for effect in snapshot.open_effects:
        if event in describe_effect(effect).closing:
            return effect
    return None


def list_legal_events(snapshot: Snapshot) -> tuple[str, ...]:
    """The events that may come next, those of other packages only where they answer an effect."""
    if snapshot.has_ended:
        return (TurnStarted.TYPE,)
    answers = [name for effect in snapshot.open_effects for name in list_answers(effect)]
    start = (TurnStarted.TYPE,) if snapshot.awaits_user else ()
    return tuple(
        dict.fromkeys((*start, *answers, *(row.name for row in EVENTS.builtin_rows if row.is_external)))
    )


def close_answered_effect(builder: SnapshotBuilder, effect: Effect, rule: AnswerRule) -> None:
    """Close the effect, unless the event answered one item of it and others are open."""
    has_open_items = rule.has_open_items
    if not rule.may_close or (has_open_items is not None and has_open_items(builder, effect)):
        return
    effects = builder.open_effects
    is_only_one = len(effects) == 1
    builder.open_effects = () if is_only_one else tuple([other for other in effects if other.id != effect.id])


def build_effects(
    vocabulary: Vocabulary, builder: SnapshotBuilder, asks: Iterable[Ask]
) -> tuple[tuple[Effect, ...], bool]:
    """The effects as values under new ids; those that an event answers are open from now on.

    Returns:
        The effects, and whether one of them ends the turn.
    """
    effects, ends_turn = [], False
    for ask in asks:
        row = vocabulary.find_effect(ask.effect)
        assert row.build is not None, "a row without it is refused"
        effect = row.build(builder, ask.effect, builder.next_effect, ask.state)
        builder.next_effect += 1
        if row.closing:
            builder.open_effects = (*builder.open_effects, effect)
        ends_turn = ends_turn or row.ends_turn
        effects.append(effect)
    return tuple(effects), ends_turn


def list_effects_on_calls(builder: SnapshotBuilder) -> list[int]:
    """Ids of the open effects that are answered call by call."""
    effects = builder.open_effects
    return [effect.id for effect in effects if describe_effect(effect).uses_calls]


def cancel_effects(builder: SnapshotBuilder, ids: list[int]) -> tuple[int, ...]:
    """Cancel open effects. Calls that may have begun are closed as `interrupted`."""
    if not ids:
        return ()
    cancelled_effects = [effect for effect in builder.open_effects if effect.id in ids]
    builder.open_effects = tuple([effect for effect in builder.open_effects if effect.id not in ids])
    for effect in cancelled_effects:
        if isinstance(effect, RunTools):
            interrupt_requested_calls(builder, effect)
    return tuple(ids)


def end_hopeless_turn(builder: SnapshotBuilder) -> tuple[int, ...]:
    """End a turn that no event can continue, or that has taken too many steps; the ids that this cancels."""
    configuration = builder.configuration
    assert configuration is not None, "a step of a turn has a configuration"
    if configuration.terminated:
        return ()
    if not builder.open_effects:
        end_turn_by_core(builder, "stuck", f"no event can arrive in state {configuration.label!r}")
    elif builder.steps >= get_turn_limits(builder).max_steps:
        cancels = cancel_effects(builder, [effect.id for effect in builder.open_effects])
        end_turn_by_core(builder, "too_many_steps", f"the turn took {builder.steps} steps")
        return cancels
    return ()


def migrate_snapshot(machine: Machine, snapshot: Snapshot, event: Migrated) -> Snapshot:
    """The same conversation under the chart of a machine: nothing is entered, left, asked for or cancelled.

    Raises:
        IllegalEvent: the chart does not have the states.
    """
    builder = SnapshotBuilder.from_snapshot(snapshot)
    configure_conversation(builder, event)
    builder.now = event.at or snapshot.now
    if snapshot.settings is not None:
        builder.offered_tools = select_tools(builder, snapshot.settings)
    if snapshot.configuration is not None:
        try:
            builder.configuration = machine.restore_configuration(to_builtins(snapshot.configuration))
        except SpecError as error:
            raise IllegalEvent(event.TYPE, snapshot.state, false_conditions=(error.message,)) from None
    return builder.build()
