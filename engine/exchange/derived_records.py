"""Derives the records of a conversation from events that happened elsewhere, one by one."""

from __future__ import annotations

from msgspec.structs import replace

from toolchart.engine.log import record as records
from toolchart.states.chart.document import Chart
from toolchart.states.core.encoding import make_plain_event
from toolchart.states.core.step import Step, find_answered_effect, step
from toolchart.states.events import Answering, Event
from toolchart.states.machine import get_machine
from toolchart.states.snapshot import Snapshot


class DerivedRecords:
    """The records of one conversation from its first event on."""

    def __init__(self, chart: Chart) -> None:
        self.snapshot = Snapshot()
        """After the newest record."""
        self.head = records.GENESIS
        """Hash of the newest record."""
        self.count = 0
        self._machine = get_machine(chart)

    def add(self, event: Event, at: str) -> bytes:
        """The line of the next record. An event that answers an effect gets the id of the open one.

        Args:
            at: RFC 3339, UTC.

        Raises:
            IllegalEvent: it does not fit; the conversation stays as it is.
        """
        if isinstance(event, Answering):
            effect = find_answered_effect(self.snapshot, event)
            event = event if effect is None else replace(event, effect=effect.id)
        event, data = make_plain_event(event)
        new_step: Step = step(self._machine, self.snapshot, event)
        line, self.head = records.encode_record(self.count, at, data, new_step, self.head)
        self.snapshot = new_step.snapshot
        self.count += 1
        return line
