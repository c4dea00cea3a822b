"""A turn driven by hand: the real core, and what its effects still wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from toolchart.engine.log.record import FORMAT, GENESIS, plain_event, write
from toolchart.states.chart.loading import Chart
from toolchart.states.core.step import Step, begin, step
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.events import (
    AnyEvent,
    Configured,
    Failed,
    Replied,
    Reviewed,
    Waited,
)
from toolchart.states.machine import Machine
from toolchart.states.messages import ToolDefinition
from toolchart.states.snapshot import Snapshot

TOOLS = (
    ToolDefinition(name="look_up", description="Look something up."),
    ToolDefinition(name="write_down", description="Write something down."),
)
"""The tools that scripted turns offer."""

_ANSWERED_BY: dict[type[AnyEvent], type[Effect]] = {
    Replied: CallModel,
    Failed: CallModel,
    Reviewed: ReviewCalls,
    Waited: Wait,
}
"""Which effect an event answers; a run of tools is answered when no call is open any more."""

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """A conversation at one moment, and the effects that nothing has answered yet."""

    machine: Machine
    snapshot: Snapshot
    waiting: tuple[Effect, ...] = ()

    @classmethod
    def of(cls, machine: Machine, chart: Chart) -> Walk:
        """A conversation that has just been configured with `TOOLS`."""
        return cls(machine=machine, snapshot=begin(configured(chart)))

    def take(self, event: AnyEvent) -> tuple[Walk, Step]:
        """The walk after one more event, and what the event did.

        Raises:
            IllegalEvent: nothing takes it here; this walk is as it was.
        """
        taken = step(self.machine, self.snapshot, event)
        waiting = _still_waiting(self.waiting, event, taken)
        return replace(self, snapshot=taken.snapshot, waiting=waiting), taken


def configured(chart: Chart) -> Configured:
    """Record 0 of a scripted conversation."""
    return Configured(
        at=moment(0),
        format=FORMAT,
        conversation="scripted",
        chart=chart.text(),
        spec={},
        tools=TOOLS,
    )


def moment(place: int) -> str:
    """The time of the event at this place: a tenth of a second each, RFC 3339."""
    at = _FIRST + timedelta(milliseconds=100 * place)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _still_waiting(before: Sequence[Effect], event: AnyEvent, taken: Step) -> tuple[Effect, ...]:
    if taken.snapshot.over:
        return ()
    answered = _ANSWERED_BY.get(type(event))
    left = [effect for effect in before if answered is None or not isinstance(effect, answered)]
    if not any(opened.outcome is None for opened in taken.snapshot.calls):
        left = [effect for effect in left if not isinstance(effect, RunTools)]
    return (*left, *(effect for effect in taken.effects if not isinstance(effect, Answer)))


@dataclass(slots=True, kw_only=True)
class Writer:
    """Writes the log that a driver would have written, line by line."""

    lines: list[bytes] = field(default_factory=list)
    _prev: str = GENESIS

    def note(self, event: AnyEvent, taken: Step) -> bytes:
        """The record of a step."""
        _, data = plain_event(event)
        line, self._prev = write(len(self.lines), event.at, data, taken, self._prev)
        self.lines.append(line)
        return line


def play(
    chart: Chart, machine: Machine, events: Sequence[AnyEvent]
) -> tuple[list[Step], list[bytes]]:
    """The steps that events make from record 0 on, and the log that they leave.

    Raises:
        IllegalEvent: the chart does not take one of them.
    """
    first = configured(chart)
    walk, writer = Walk.of(machine, chart), Writer()
    writer.note(first, step(machine, Snapshot(), first))
    steps = []
    for event in events:
        walk, taken = walk.take(event)
        writer.note(event, taken)
        steps.append(taken)
    return steps, writer.lines
