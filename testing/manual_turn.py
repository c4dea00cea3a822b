"""A turn driven event by event through the real core, without an engine, a network or a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.record import FORMAT, GENESIS, encode_plain_event, encode_record
from toolchart.states.chart.loading import Chart
from toolchart.states.core.step import Step, begin, step
from toolchart.states.effects import Answer, CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.events import AnyEvent, Configured, Failed, Replied, Reviewed, Waited
from toolchart.states.machine import Machine
from toolchart.states.messages import ToolDefinition
from toolchart.states.snapshot import Snapshot

TOOLS = (
    ToolDefinition(name="look_up", description="Look something up."),
    ToolDefinition(name="write_down", description="Write something down."),
)
"""The tools that scripted turns offer."""

_ANSWERED_EFFECT: dict[type[AnyEvent], type[Effect]] = {
    Replied: CallModel,
    Failed: CallModel,
    Reviewed: ReviewCalls,
    Waited: Wait,
}
"""Which effect an event answers; `run_tools` is answered when no call is open any more."""

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


class ManualTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation at one moment: its snapshot and its open effects. Immutable."""

    machine: Machine
    snapshot: Snapshot
    open_effects: tuple[Effect, ...] = ()

    @classmethod
    def start(cls, machine: Machine, chart: Chart) -> ManualTurn:
        """A conversation that was configured with `TOOLS` and has no turn yet."""
        return cls(machine=machine, snapshot=begin(make_configured_event(chart)))

    def apply_event(self, event: AnyEvent) -> tuple[ManualTurn, Step]:
        """Return the turn after one more event, and the step that the event made.

        Raises:
            IllegalEvent: no transition takes the event here; this turn is unchanged.
        """
        result = step(self.machine, self.snapshot, event)
        open_effects = _update_open_effects(self.open_effects, event, result)
        return replace(self, snapshot=result.snapshot, open_effects=open_effects), result


def make_configured_event(chart: Chart) -> Configured:
    """The `configured` event with which the log of a scripted conversation begins."""
    return Configured(
        at=make_timestamp(0),
        format=FORMAT,
        conversation="scripted",
        chart=chart.to_yaml(),
        spec={},
        tools=TOOLS,
    )


def make_timestamp(number: int) -> str:
    """The time of event `number` in RFC 3339: events are a tenth of a second apart."""
    at = _FIRST + timedelta(milliseconds=100 * number)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _update_open_effects(open_before: Sequence[Effect], event: AnyEvent, result: Step) -> tuple[Effect, ...]:
    if result.snapshot.is_over:
        return ()
    closes = _ANSWERED_EFFECT.get(type(event))
    still_open = [effect for effect in open_before if closes is None or not isinstance(effect, closes)]
    if not any(call.outcome is None for call in result.snapshot.calls):
        still_open = [effect for effect in still_open if not isinstance(effect, RunTools)]
    return (*still_open, *(effect for effect in result.effects if not isinstance(effect, Answer)))


@dataclass(slots=True, kw_only=True)
class LogWriter:
    """Writes the record lines that the driver would have written for the same steps."""

    lines: list[bytes] = field(default_factory=list)
    _prev: str = GENESIS

    def write_record(self, event: AnyEvent, result: Step) -> bytes:
        """Append the record of a step, and return its line."""
        _, data = encode_plain_event(event)
        line, self._prev = encode_record(len(self.lines), event.at, data, result, self._prev)
        self.lines.append(line)
        return line


def play_events(chart: Chart, machine: Machine, events: Sequence[AnyEvent]) -> tuple[list[Step], list[bytes]]:
    """Feed events to a new conversation; return its steps and its record lines.

    Raises:
        IllegalEvent: the chart has no transition for one of the events.
    """
    first = make_configured_event(chart)
    turn, log = ManualTurn.start(machine, chart), LogWriter()
    log.write_record(first, step(machine, Snapshot(), first))
    steps = []
    for event in events:
        turn, result = turn.apply_event(event)
        log.write_record(event, result)
        steps.append(result)
    return steps, log.lines
