"""`step`, the transition function of the core: the only function that moves a conversation.

    step(machine, snapshot, event) -> snapshot', effects, and the reason

Toolchart is a state machine whose work happens outside. `step` is its transition function. It takes
where the conversation stands (the snapshot) and what has happened (the event); it returns where the
conversation stands now and what has to be done next (the effects). It does none of it.

One step has three parts:

    1. reduce    `reduce_event` adds the event to the context: messages, calls, counters  (reduce.py)
    2. decide    the machine evaluates guards over the facts of the new context and answers with the
                 next configuration and the names of effects                              (machine.py)
    3. request   `build_effects` turns each name into a value with all that its performer needs
                                                                                        (requests.py)

The core is pure: no clock, no random numbers, no I/O. Times and jitter come in with events. So the
same three arguments give the same answer on every machine and in every year, and the recorded events
are enough to derive a whole conversation again. Replay does exactly that.

Three events act on the conversation as a whole and not on the chart: `configured` sets the tools,
`forked` continues from another conversation, `turn_started` enters the chart's initial state. Charts
cannot name them. A chart receives every other event (`MachineEvent`).

A whole turn, driven by hand:

    >>> from toolchart.states.core.step import begin, step
    >>> from toolchart.specs.charts import load_chart
    >>> from toolchart.states.events import (
    ...     Configured, Replied, Reviewed, Settings, ToolFinished, TurnStarted, Verdict)
    >>> from toolchart.states.machine import Machine
    >>> from toolchart.states.messages import Reply, ToolCall, ToolDefinition
    >>> machine = Machine(load_chart("tool_loop"))
    >>> add = ToolDefinition(name="add", description="Add two numbers.")
    >>> snapshot = begin(Configured(format=1, conversation="c1", chart="", spec={}, tools=(add,)))
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

import msgspec

from toolchart.states.compiler import FiredTransition
from toolchart.states.core.reduce import apply_fork, configure_conversation, open_turn, reduce_event
from toolchart.states.core.requests import build_effects
from toolchart.states.effects import Effect
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import AnyEvent, Configured, Forked, TurnStarted
from toolchart.states.facts import FactView
from toolchart.states.machine import Machine, Move
from toolchart.states.snapshot import Snapshot, SnapshotBuilder


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one event did."""

    snapshot: Snapshot
    effects: tuple[Effect, ...]
    """What the driver has to perform now, in order."""
    source: str
    """Label of the state before the event."""
    target: str
    """Label of the state after it."""
    guards: dict[str, bool]
    """Every guard that was evaluated, with its truth: the reason for the step."""
    fired: tuple[FiredTransition, ...] = ()
    """The transitions that fired."""


def begin(configured: Configured) -> Snapshot:
    """The first snapshot of a conversation, made from its first event."""
    return configure_conversation(Snapshot(), configured)


def step(machine: Machine, snapshot: Snapshot, event: AnyEvent) -> Step:
    """The next snapshot, the effects in order, and the reason.

    Raises:
        IllegalEvent: the present state has no transition for this event; `snapshot` is unchanged.
    """
    if isinstance(event, (Configured, Forked, TurnStarted)):
        return _step_conversation(machine, snapshot, event)
    if snapshot.configuration is None:
        raise IllegalEvent(event.TYPE, "(no turn yet)", legal=(TurnStarted.TYPE,))
    # A step changes the context several times. The builder is one copy that is changed in place, and
    # nobody else sees it; if the machine refuses the event, it is dropped.
    builder = SnapshotBuilder.from_snapshot(snapshot)
    if event.at:
        builder.now = event.at
    reduce_event(builder, event)
    # Guards read the context after the event: "the iteration that has just ended" is counted.
    move = machine.advance(snapshot.configuration, event.TYPE, FactView(builder))
    return _complete_step(snapshot, builder, move)


def _step_conversation(
    machine: Machine, snapshot: Snapshot, event: Configured | Forked | TurnStarted
) -> Step:
    """The events that act on the conversation as a whole."""
    label = snapshot.state
    if isinstance(event, Forked):
        # A fork may begin in the middle of a turn. Effects that were open there are requested again.
        builder = apply_fork(snapshot, event)
        effects = build_effects(builder, event.asks)
        fork = builder.build()
        return Step(snapshot=fork, effects=effects, source=label, target=label, guards={})
    _require_turn_end(snapshot, event.TYPE)
    if isinstance(event, Configured):
        snapshot = configure_conversation(snapshot, event)
        return Step(snapshot=snapshot, effects=(), source=label, target=label, guards={})
    builder = open_turn(snapshot, event)
    return _complete_step(snapshot, builder, machine.start(FactView(builder)))


def _require_turn_end(snapshot: Snapshot, event: str) -> None:
    """A turn begins, and a chart changes, only between turns."""
    if not snapshot.is_over:
        raise IllegalEvent(event, snapshot.state, legal=("the events of the open turn",))


def _complete_step(before: Snapshot, builder: SnapshotBuilder, move: Move) -> Step:
    """Enter the move's configuration and build its effects."""
    builder.configuration = move.configuration
    effects = build_effects(builder, move.effects)
    return Step(
        snapshot=builder.build(),
        effects=effects,
        source=before.state,
        target=move.configuration.label,
        guards=move.guards,
        fired=move.fired,
    )
