"""A turn driven event by event through the real core, without an engine, a network or a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.record import FORMAT, GENESIS, encode_record
from toolchart.states.chart.loading import Chart
from toolchart.states.core.encoding import make_plain_event
from toolchart.states.core.step import Step, begin, step
from toolchart.states.effects import Effect, ReviewCalls
from toolchart.states.events import Configured, Event, Reviewed
from toolchart.states.machine import Machine
from toolchart.states.messages import ToolDefinition
from toolchart.states.snapshot import Snapshot

TOOLS = (
    ToolDefinition(name="look_up", description="Look something up."),
    ToolDefinition(name="write_down", description="Write something down."),
)
"""The tools that scripted turns offer."""

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


class ManualTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation at one moment. Immutable."""

    machine: Machine
    snapshot: Snapshot
    reviewed_effects: frozenset[int] = frozenset()
    """Ids of the `review_calls` that have their verdicts, so that decisions of people follow. The snapshot
    does not tell: where calls are reviewed again, they still have the verdicts of the former review."""

    @property
    def open_effects(self) -> tuple[Effect, ...]:
        """The effects that wait for an answer; none when the chart has ended."""
        return () if self.snapshot.has_ended else self.snapshot.open_effects

    @classmethod
    def start(cls, machine: Machine, chart: Chart) -> ManualTurn:
        """A conversation that was configured with `TOOLS` and has no turn yet."""
        return cls(machine=machine, snapshot=begin(make_configured_event(chart)))

    @classmethod
    def resume(cls, machine: Machine, snapshot: Snapshot) -> ManualTurn:
        """A conversation that another process goes on with: calls with verdicts are not reviewed again."""
        rulings = [call.ruling for call in snapshot.calls if call.outcome is None]
        reviews = {effect.id for effect in snapshot.open_effects if isinstance(effect, ReviewCalls)}
        is_reviewed = bool(rulings) and None not in rulings
        return cls(
            machine=machine, snapshot=snapshot, reviewed_effects=frozenset(reviews if is_reviewed else ())
        )

    def apply_event(self, event: Event) -> tuple[ManualTurn, Step]:
        """Return the turn after one more event, and the step that the event made.

        Raises:
            IllegalEvent: the event does not fit the conversation; this turn is unchanged.
        """
        result = step(self.machine, self.snapshot, event)
        reviewed_effects = self.reviewed_effects
        if isinstance(event, Reviewed) and not result.is_late:
            reviewed_effects |= {event.effect}
        return replace(self, snapshot=result.snapshot, reviewed_effects=reviewed_effects), result


def make_configured_event(chart: Chart) -> Configured:
    """The `configured` event with which the log of a scripted conversation begins."""
    return Configured(
        at=make_timestamp(0),
        format=FORMAT,
        conversation="scripted",
        chart=chart.to_yaml(),
        spec={},
        tools=TOOLS,
        effects=dict(chart.effects),
    )


def make_timestamp(number: int) -> str:
    """The time of event `number` in RFC 3339: events are a tenth of a second apart."""
    at = _FIRST + timedelta(milliseconds=100 * number)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(slots=True, kw_only=True)
class LogWriter:
    """Writes the record lines that the driver would have written for the same steps."""

    lines: list[bytes] = field(default_factory=list)
    _prev: str = GENESIS

    def write_record(self, event: Event, result: Step) -> bytes:
        """Append the record of a step, and return its line."""
        _, data = make_plain_event(event)
        line, self._prev = encode_record(len(self.lines), event.at, data, result, self._prev)
        self.lines.append(line)
        return line


def play_events(chart: Chart, machine: Machine, events: Sequence[Event]) -> tuple[list[Step], list[bytes]]:
    """Feed events to a new conversation; return its steps and its record lines.

    Raises:
        IllegalEvent: one of the events does not fit the conversation.
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
