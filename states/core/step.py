"""The pure core: the only place where a conversation moves.

    step(machine, snapshot, event) -> snapshot', effects, and why

An event comes in and is absorbed into the context (a reply is noted, a call gets its outcome). The
machine is asked what that event means in the present state under the facts of the new context. It
answers with a next state and the names of effects; each name becomes a value that carries all that a
driver needs. No clock, no ids, no I/O, no randomness: the same three arguments give the same answer
on every machine and in every year, which is what makes a log enough to run a conversation again.

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
    >>> one = step(machine, snapshot, TurnStarted(message="1 + 2?", settings=settings))
    >>> one.target, one.effects[0].name
    ('prompting', 'call_model')
    >>> call = ToolCall(id="c", name="add", arguments={"a": 1, "b": 2})
    >>> two = step(machine, one.snapshot,
    ...            Replied(reply=Reply(finish_reason="tool_calls", tool_calls=(call,))))
    >>> two.target, two.guards
    ('awaiting_tools', {"finish_reason == 'tool_calls'": True})
    >>> three = step(machine, two.snapshot,
    ...              Reviewed(verdicts=(Verdict(call_id="c", ruling="run"),)))
    >>> three.target, three.effects[0].calls[0].name
    ('executing', 'add')
    >>> four = step(machine, three.snapshot, ToolFinished(
    ...     call_id="c", outcome="succeeded",
    ...     result={"success": True, "result": 3, "tool_name": "add", "execution_time_ms": 0.1}))
    >>> four.target, [message.role for message in four.effects[0].request.messages]
    ('prompting', ['user', 'assistant', 'tool'])
    >>> five = step(machine, four.snapshot, Replied(reply=Reply(content="3", finish_reason="stop")))
    >>> five.target, five.effects[0].content, five.snapshot.over
    ('finished', '3', True)
"""

from __future__ import annotations

from dataclasses import dataclass

from toolchart.states.compiler import Taken
from toolchart.states.core.reduce import absorb, configure, fork, open_turn
from toolchart.states.core.requests import ask, ask_for
from toolchart.states.effects import Effect
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import AnyEvent, Configured, Forked, TurnStarted
from toolchart.states.facts import FactView
from toolchart.states.machine import Machine, Move
from toolchart.states.quick import quick
from toolchart.states.snapshot import Draft, Snapshot


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one event did."""

    snapshot: Snapshot
    effects: tuple[Effect, ...]
    """What the driver has to do now, in order."""
    source: str
    target: str
    guards: dict[str, bool]
    """Every guard that was asked, with its truth: the reason for the step."""
    taken: tuple[Taken, ...] = ()
    """The transitions that fired."""


def begin(configured: Configured) -> Snapshot:
    """The snapshot of a conversation that has just been configured."""
    return configure(Snapshot(), configured)


def step(machine: Machine, snapshot: Snapshot, event: AnyEvent) -> Step:
    """The next snapshot, the effects in order, and what happened.

    Raises:
        IllegalEvent: nothing takes this event here; the snapshot is as it was.
    """
    if isinstance(event, (Configured, Forked, TurnStarted)):
        return _between(machine, snapshot, event)
    if snapshot.configuration is None:
        raise IllegalEvent(event.TYPE, "(no turn yet)", legal=(TurnStarted.TYPE,))
    context = absorb(snapshot.draft(event.at), event)
    move = machine.advance(snapshot.configuration, event.TYPE, FactView(context))
    return _arrive(snapshot, context, move)


def _between(
    machine: Machine, snapshot: Snapshot, event: Configured | Forked | TurnStarted
) -> Step:
    """What happens to a conversation as a whole: it is configured, forked, given a turn."""
    label = snapshot.state
    if isinstance(event, Forked):
        snapshot, effects = ask_for(fork(snapshot, event), event.asks)
        return Step(snapshot=snapshot, effects=effects, source=label, target=label, guards={})
    _demand_rest(snapshot, event.TYPE)
    if isinstance(event, Configured):
        snapshot = configure(snapshot, event)
        return Step(snapshot=snapshot, effects=(), source=label, target=label, guards={})
    context = open_turn(snapshot, event)
    return _arrive(snapshot, context, machine.start(FactView(context)))


def _demand_rest(snapshot: Snapshot, event: str) -> None:
    """A turn begins, and a chart changes, only between turns."""
    if not snapshot.over:
        raise IllegalEvent(event, snapshot.state, legal=("the events of the open turn",))


def _arrive(before: Snapshot, context: Snapshot, move: Move) -> Step:
    snapshot, effects = ask(context, move)
    if type(snapshot) is Draft:
        snapshot = snapshot.done()
    return Step(
        snapshot=snapshot,
        effects=effects,
        source=before.state,
        target=move.configuration.label,
        guards=move.guards,
        taken=move.taken,
    )
