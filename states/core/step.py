"""`step`, the transition function of the core: the only function that moves a conversation.

    step(machine, snapshot, event) -> snapshot', effects, and the reason

In: the event, as the driver read it from its JSON. Out: a `Step`, from which the journal makes the record.
Next: the three parts below, each in a file of its own.

Toolchart is a state machine whose work happens outside. `step` is its transition function. It takes
where the conversation stands (the snapshot) and what has happened (the event); it returns where the
conversation stands now and what has to be done next (the effects). It does none of it.

One step has three parts:

    1. reduce    the row of the event adds it to the context: messages, calls, counters  (reduce.py)
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
`resumed` lets a new worker go on, `calls_started` says that calls begin, `call_submitted`
in which batch job a model call waits. Charts cannot name them. A chart receives every
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
from functools import cache
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from toolchart.states.calls import close_open_calls
from toolchart.states.compiler import Ask, FiredTransition, Move
from toolchart.states.core.fact_rows import FactView
from toolchart.states.core.reduce import (
    apply_fork,
    apply_resumption,
    apply_start,
    apply_submission,
    configure_conversation,
    open_turn,
    select_tools,
)
from toolchart.states.core.requests import end_turn_by_core
from toolchart.states.descriptors import require_rows
from toolchart.states.effects import Effect, EffectDescriptor
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import (
    Answering,
    CallsStarted,
    CallSubmitted,
    Cancelled,
    Configured,
    Continued,
    Event,
    EventDescriptor,
    Forked,
    Migrated,
    Resumed,
    TurnStarted,
    UserSaid,
)
from toolchart.states.machine import Machine
from toolchart.states.snapshot import MessageSource, Snapshot, SnapshotBuilder, rename_parts
from toolchart.states.vocabulary import find_effect, get_effects, get_events

SEMANTICS = 5
"""Number of the core's semantics; a log names the number that derived it. Once a release has written logs, it
grows with every change after which equal events could give other steps. Until then the log is a draft, and
`tests/golden` shows such a change."""


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
    messages: tuple[MessageSource, ...] = ()
    """Where the text of each message stands that the step has added, in order."""
    given_call_ids: tuple[str, ...] = ()
    """The ids of the reply's calls, where the core has given other ones than the provider."""
    ends_turn: bool = False
    """Whether the turn ended in this step."""
    event: Event
    before: Snapshot | None = None
    """The snapshot before the event; None for a late one, and for those that act on the conversation as a
    whole, except `turn_started`."""


def begin(configured: Configured) -> Snapshot:
    """The first snapshot of a conversation, made from its first event."""
    return _configure(None, Snapshot(), configured).snapshot


def step(machine: Machine, snapshot: Snapshot, event: Event) -> Step:
    """The next snapshot, the effects in order, and the reason.

    Raises:
        IllegalEvent: the event does not fit the conversation: it names an effect or a call that does not
            exist, or a turn is open where none may be. `snapshot` is unchanged.
    """
    row = _describe_event(type(event))
    if row.reduce is None:  # it acts on the conversation as a whole: the table at the end of this module
        return _CONVERSATION_STEPS[row.type](machine, snapshot, event)
    configuration = snapshot.configuration
    if configuration is None:
        raise IllegalEvent(event.TYPE, "(no turn yet)", legal=(TurnStarted.TYPE,))
    name, effect = event.TYPE, None
    if isinstance(event, Answering):
        effect = find_answered_effect(snapshot, event)
        if effect is None:
            return _record_late_event(row, snapshot, event)
        if not event.effect:
            event = replace(event, effect=effect.id)
    elif snapshot.has_ended:
        raise IllegalEvent(event.TYPE, snapshot.state, legal=(TurnStarted.TYPE,))
    else:
        effect = find_effect_closed_by(snapshot, event.TYPE)
    # A step changes the context several times. The builder is one copy that is changed in place, and
    # nobody else sees it; if the event is refused, it is dropped.
    builder = SnapshotBuilder.from_snapshot(snapshot)
    builder.now = event.at or snapshot.now
    builder.steps += 1
    builder.reducers = machine.reducers
    row.reduce(builder, event)
    if effect is not None:
        # After reducing: whether the answer closes the effect depends on the items that are still open.
        name = _close_answered_effect(builder, effect, name)
    # Guards read the context after the event: "the iteration that has just ended" is counted. And they read
    # it before effects are built: a row on `pending == 0` must not see what this very step asks for.
    try:
        move = machine.try_event(configuration, name, FactView(builder))
    except SpecError as error:  # transitions without an event follow each other for ever
        return _end_by_core(snapshot, builder, event, "endless", error.message)
    if type(move) is Move:
        return _complete_step(machine, snapshot, builder, event, move)
    return _complete_untaken_step(snapshot, builder, event, move.guards)


@cache
def _describe_event(kind: type[Event]) -> EventDescriptor:
    return get_events()[kind.TYPE]


def _record_late_event(row: EventDescriptor, snapshot: Snapshot, event: Answering) -> Step:
    """The step of an event that came too late: only what was paid for counts, else budgets would lie."""
    builder = SnapshotBuilder.from_snapshot(snapshot)
    builder.now = event.at or snapshot.now
    if row.reduce_late is not None:
        row.reduce_late(builder, event)
    label, after = snapshot.state, builder.build()
    return Step(snapshot=after, effects=(), source=label, target=label, guards={}, event=event, is_late=True)


# -- after the decision: what is cancelled and what is asked for ----------------------------------


def _complete_step(
    machine: Machine, before: Snapshot, builder: SnapshotBuilder, event: Event, move: Move
) -> Step:
    """Enter the move's configuration, cancel what its states had open, and build the new effects."""
    assert builder.settings is not None, "a turn has settings"
    builder.configuration = configuration = move.configuration
    cancels: tuple[int, ...] = ()
    # Exit, entry and termination each end what a state has open. Cancel first, then build: a state that is
    # left and entered again loses what it had open and asks anew. Which states were left is observed and not
    # computed: a difference of configurations misses such a state.
    if builder.open_effects:
        left_states, ended = move.reset_states, []
        for open_effect in builder.open_effects:
            if configuration.terminated or open_effect.state in left_states:
                ended.append(open_effect.id)
        if ended:
            cancels += cancel_effects(builder, ended)
    effects, ends_turn = build_effects(machine, builder, move.asks)
    if ends_turn and builder.open_effects:
        # An answer has closed all calls, so nobody may review, decide or run one any more.
        cancels += cancel_effects(builder, list_effects_on_calls(builder))
    if configuration.terminated:
        if builder.calls.length:
            close_open_calls(builder, "the turn ended")
    elif not builder.open_effects or builder.steps >= builder.settings.limits.max_steps:
        cancels += _end_hopeless_turn(builder)
    snapshot = builder.build()
    return Step(
        snapshot=snapshot,
        effects=effects,
        source=before.state,
        target=configuration.label,
        guards=move.guards,
        fired=move.fired,
        cancels=cancels,
        is_untaken=not move.is_taken,
        messages=tuple(builder.added),
        given_call_ids=builder.given_call_ids,
        ends_turn=snapshot.is_over and _ends_turn(before, snapshot, event),
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
    return _build_unmoved_step(before, builder, event, guards, _end_hopeless_turn(builder))


def _end_by_core(before: Snapshot, builder: SnapshotBuilder, event: Event, reason: str, message: str) -> Step:
    """The step after which the core has ended the turn; the configuration stays."""
    cancels = cancel_effects(builder, [effect.id for effect in builder.open_effects])
    end_turn_by_core(builder, reason, message)
    return _build_unmoved_step(before, builder, event, {}, cancels)


def _build_unmoved_step(
    before: Snapshot,
    builder: SnapshotBuilder,
    event: Event,
    guards: dict[str, bool],
    cancels: tuple[int, ...],
) -> Step:
    snapshot = builder.build()
    return Step(
        snapshot=snapshot,
        effects=(),
        source=before.state,
        target=before.state,
        guards=guards,
        cancels=cancels,
        is_untaken=True,
        messages=tuple(builder.added),
        given_call_ids=builder.given_call_ids,
        ends_turn=snapshot.is_over and _ends_turn(before, snapshot, event),
        before=before,
        event=event,
    )


def _ends_turn(before: Snapshot, after: Snapshot, event: Event) -> bool:
    """Whether a conversation that is over now was not before; a turn may begin and end in one step."""
    configuration = after.configuration
    has_end = configuration is not None and (configuration.terminated or bool(after.ended_by))
    return has_end and (not before.is_over or type(event) is TurnStarted)


def _end_hopeless_turn(builder: SnapshotBuilder) -> tuple[int, ...]:
    """End a turn that no event can continue, or that has taken too many steps; the ids that this cancels."""
    configuration = builder.configuration
    assert configuration is not None, "a step of a turn has a configuration"
    if configuration.terminated:
        return ()
    if not builder.open_effects:
        end_turn_by_core(builder, "stuck", f"no event can arrive in state {configuration.label!r}")
    elif builder.steps >= builder.limits.max_steps:
        cancels = cancel_effects(builder, [effect.id for effect in builder.open_effects])
        end_turn_by_core(builder, "too_many_steps", f"the turn took {builder.steps} steps")
        return cancels
    return ()


# -- open effects --------------------------------------------------------------------------------


@cache
def find_effect_row(name: str) -> EffectDescriptor:
    """The row of the effect of this name."""
    return find_effect(name)


def describe_effect(effect: Effect) -> EffectDescriptor:
    """The row of an effect; for a declared one that of its kind."""
    return find_effect_row(effect.kind or effect.name)


@cache
def _list_answers(effect: str) -> tuple[str, ...]:
    return find_effect_row(effect).answers


def find_answered_effect(snapshot: Snapshot, event: Answering) -> Effect | None:
    """The open effect that an event answers; None where it is not open any more.

    An event with the id 0 answers the newest open effect that it can answer: a decision of a person, for
    instance, names a call and no effect.

    Raises:
        IllegalEvent: the id was never given, or the effect is answered by other events.
    """
    name, id_ = event.TYPE, event.effect
    # Newest first: `review_calls` and the `ask_approval` after it both take a decision; the newer gets it.
    for effect in reversed(snapshot.open_effects):
        answers = _list_answers(effect.kind or effect.name)
        if id_ == effect.id or (not id_ and name in answers):
            if name not in answers:
                reason = f"the effect {effect.id} ({effect.name}) is answered by {', '.join(answers)}"
                raise IllegalEvent(event.TYPE, snapshot.state, false_conditions=(reason,))
            return effect
    # An id that was given once is late. One that never was is a mistake of the caller: no log may hold it.
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
    """The events that may come next."""
    if snapshot.has_ended:
        return (TurnStarted.TYPE,)
    answers = [name for effect in snapshot.open_effects for name in describe_effect(effect).answers]
    start = (TurnStarted.TYPE,) if snapshot.awaits_user else ()
    return tuple(
        dict.fromkeys((*start, *answers, *(row.name for row in get_events().values() if row.is_external)))
    )


def _close_answered_effect(builder: SnapshotBuilder, effect: Effect, event: str) -> str:
    """Close an effect, unless the event answered one item of it and others are open.

    Returns:
        The event as the chart gets it, with the name of the effect.
    """
    row = find_effect_row(effect.kind or effect.name)
    if event in row.closing and (row.has_open_items is None or not row.has_open_items(builder, effect)):
        effects = builder.open_effects
        builder.open_effects = (
            () if len(effects) == 1 else tuple([other for other in effects if other.id != effect.id])
        )
    return f"{event}.{effect.name}"


def build_effects(
    machine: Machine, builder: SnapshotBuilder, asks: Iterable[Ask]
) -> tuple[tuple[Effect, ...], bool]:
    """The effects as values under new ids; those that an event answers are open from now on.

    Returns:
        The effects, and whether one of them ends the turn.
    """
    effects, ends_turn = [], False
    for ask in asks:
        row = machine.effect_rows.get(ask.effect) or machine.vocabulary.find_effect(ask.effect)
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
    """Cancel open effects. Their calls are closed: as `interrupted` where they may have begun."""
    if not ids:
        return ()
    cancelled_effects = [effect for effect in builder.open_effects if effect.id in ids]
    builder.open_effects = tuple([effect for effect in builder.open_effects if effect.id not in ids])
    for effect in cancelled_effects:
        row = get_effects().get(effect.kind or effect.name)
        if row is not None and row.cancel is not None:
            row.cancel(builder, effect)
    return tuple(ids)


# -- the conversation as a whole -----------------------------------------------------------------


def _build_quiet_step(builder: SnapshotBuilder, before: Snapshot, event: Event) -> Step:
    """A step that asks for nothing and moves nothing."""
    builder.now = event.at or before.now
    snapshot = builder.build()
    # `migrated` may bring other names of the states that are active.
    target = snapshot.state if isinstance(event, Migrated) else before.state
    return Step(snapshot=snapshot, effects=(), source=before.state, target=target, guards={}, event=event)


def _require_turn_end(snapshot: Snapshot, event: str) -> None:
    """A turn begins, and a chart changes, only between turns."""
    if not snapshot.is_over:
        raise IllegalEvent(event, snapshot.state, legal=list_legal_events(snapshot))


def _configure(machine: Machine | None, snapshot: Snapshot, event: Configured) -> Step:
    _require_turn_end(snapshot, event.TYPE)
    builder = SnapshotBuilder.from_snapshot(snapshot)
    configure_conversation(builder, event)
    return _build_quiet_step(builder, snapshot, event)


def _migrate(machine: Machine, snapshot: Snapshot, event: Migrated) -> Step:
    """The same conversation under the chart of a machine: nothing is entered, left, asked for or cancelled.

    Raises:
        IllegalEvent: the chart does not have the states.
    """
    renamed = rename_parts(snapshot, event.renamed_states, event.renamed_effects)
    builder = SnapshotBuilder.from_snapshot(renamed)
    configure_conversation(builder, event)
    if snapshot.settings is not None:
        builder.offered_tools = select_tools(builder, snapshot.settings)
    if renamed.configuration is not None:
        try:
            builder.configuration = machine.restore_configuration(to_builtins(renamed.configuration))
        except SpecError as error:
            raise IllegalEvent(event.TYPE, snapshot.state, false_conditions=(error.message,)) from None
    return _build_quiet_step(builder, snapshot, event)


def _resume(machine: Machine, snapshot: Snapshot, event: Resumed) -> Step:
    if snapshot.has_ended:
        raise IllegalEvent(event.TYPE, snapshot.state or "(no turn yet)", legal=(TurnStarted.TYPE,))
    builder = SnapshotBuilder.from_snapshot(snapshot)
    apply_resumption(builder, event)
    # What is performed from now on is asked for again, so that the record has the digest of it.
    before = snapshot.open_effects
    changed = [effect for effect, old in zip(builder.open_effects, before, strict=True) if effect != old]
    return replace(_build_quiet_step(builder, snapshot, event), effects=tuple(changed))


def _start_calls(machine: Machine, snapshot: Snapshot, event: CallsStarted) -> Step:
    builder = SnapshotBuilder.from_snapshot(snapshot)
    apply_start(builder, event)
    return _build_quiet_step(builder, snapshot, event)


def _submit_call(machine: Machine, snapshot: Snapshot, event: CallSubmitted) -> Step:
    builder = SnapshotBuilder.from_snapshot(snapshot)
    apply_submission(builder, event)
    return _build_quiet_step(builder, snapshot, event)


def _note_event(machine: Machine, snapshot: Snapshot, event: Continued) -> Step:
    """What derives the log has changed; not the state."""
    return _build_quiet_step(SnapshotBuilder.from_snapshot(snapshot), snapshot, event)


def _start_turn(machine: Machine, snapshot: Snapshot, event: TurnStarted) -> Step:
    if not snapshot.is_over:
        raise IllegalEvent(event.TYPE, snapshot.state, legal=list_legal_events(snapshot))
    builder = open_turn(snapshot, event)
    builder.steps = 1
    # A chart that only waits for the user goes on where it stands, with its results. Any other starts anew.
    if snapshot.awaits_user:
        return _continue_chart(machine, snapshot, builder, event)
    try:
        move = machine.start(FactView(builder))
    except SpecError as error:
        return _end_by_core(snapshot, builder, event, "endless", error.message)
    return _complete_step(machine, snapshot, builder, event, move)


def _continue_chart(
    machine: Machine, snapshot: Snapshot, builder: SnapshotBuilder, event: TurnStarted
) -> Step:
    """The first step of a turn of a chart that waited for the user: the chart gets `user_said`."""
    configuration, name = snapshot.configuration, UserSaid.TYPE
    assert configuration is not None, "a chart that waits for the user is running"
    effect = find_effect_closed_by(snapshot, name)
    if effect is not None:
        name = _close_answered_effect(builder, effect, name)
    try:
        move = machine.try_event(configuration, name, FactView(builder))
    except SpecError as error:
        return _end_by_core(snapshot, builder, event, "endless", error.message)
    if type(move) is Move:
        return _complete_step(machine, snapshot, builder, event, move)
    return _complete_untaken_step(snapshot, builder, event, move.guards)


def _fork(machine: Machine, snapshot: Snapshot, event: Forked) -> Step:
    """A fork may begin in the middle of a turn. Effects that are open there are asked for again."""
    builder = SnapshotBuilder.from_snapshot(snapshot)
    builder.now = event.at or snapshot.now
    apply_fork(builder, event)
    open_effects, builder.open_effects = builder.open_effects, ()
    asks = [Ask(effect.state, effect.name) for effect in open_effects]
    effects, _ = build_effects(machine, builder, asks)
    return Step(
        snapshot=builder.build(),
        effects=effects,
        source=snapshot.state,
        target=snapshot.state,
        guards={},
        cancels=tuple(effect.id for effect in open_effects),
        event=event,
    )


_CONVERSATION_STEPS: dict[type[Event], Callable[[Any, Snapshot, Any], Step]] = {
    TurnStarted: _start_turn,
    Configured: _configure,
    Migrated: _migrate,
    Forked: _fork,
    Resumed: _resume,
    CallsStarted: _start_calls,
    CallSubmitted: _submit_call,
    Continued: _note_event,
}
"""The events that act on the conversation as a whole: those whose row has no `reduce`."""


def check_conversation_steps(steps: Iterable[type], rows: Iterable[EventDescriptor]) -> None:
    """Check that each event without a `reduce` has a step, and no other event.

    Raises:
        SpecError: one is missing, or one too many.
    """
    whole_events = [row.type for row in rows if row.reduce is None]
    require_rows("_CONVERSATION_STEPS in states/core/step.py", steps, whole_events)


check_conversation_steps(_CONVERSATION_STEPS, get_events().values())
