"""A conversation that a test leads event by event, with every step checked against the invariants."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from toolchart.states.chart.loading import Chart
from toolchart.states.core.step import step
from toolchart.states.effects import Effect
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import AnyEvent, MachineEvent, ToolFinished
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot
from toolchart.testing.invariants import InvariantMonitor
from toolchart.testing.manual_turn import ManualTurn, make_configured_event, make_timestamp


class Conversation:
    """A conversation of one chart; `note` is called with one line for every step."""

    def __init__(self, chart: Chart, machine: Machine, note: Callable[[str], None]) -> None:
        self._turn = ManualTurn.start(machine, chart)
        self._note = note
        self._event_count = 0
        self.monitor = InvariantMonitor()
        first = make_configured_event(chart)
        self.monitor.log.write_record(first, step(machine, Snapshot(), first))

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot after the latest event."""
        return self._turn.snapshot

    @property
    def is_over(self) -> bool:
        """Whether no turn is running, so that one may start."""
        return self.snapshot.is_over

    @property
    def open_effects(self) -> list[Effect]:
        """The open effects: asked for and not yet answered."""
        return [] if self.is_over else list(self._turn.open_effects)

    @property
    def undecided_call_ids(self) -> list[str]:
        """Ids of the calls that wait for a person to decide."""
        return [
            open_call.call.id
            for open_call in self.snapshot.calls
            if open_call.ruling == "needs_approval" and not self.is_over
        ]

    def apply_event(self, event: AnyEvent) -> None:
        """Feed an event that the chart must accept, and check the step."""
        self._event_count += 1
        event = replace(event, at=make_timestamp(self._event_count))
        before = self._turn
        self._turn, result = before.apply_event(event)
        self._note(f"{result.source or '(start)'} --{event.TYPE}--> {result.target}")
        self.monitor.check_step(before, event, self._turn, result)
        assert self.is_over or self.open_effects or self.undecided_call_ids, (
            f"the turn can never leave {result.target!r}: no effect is open, no call waits for a "
            "decision, and the state is not final"
        )

    def answer_effect(self, effect: Effect, event: MachineEvent) -> None:
        """Feed the answer to an effect; a chart without a row for it can never continue."""
        try:
            self.apply_event(event)
        except IllegalEvent as refusal:
            raise AssertionError(
                f"the chart asks for {effect.name!r} and has no row for its answer: {refusal}"
            ) from None

    def offer_event(self, event: MachineEvent) -> None:
        """Feed an event that the chart may refuse; check that a refusal changes nothing."""
        messages = list(self.snapshot.messages)
        try:
            self.apply_event(event)
        except IllegalEvent:
            assert list(self.snapshot.messages) == messages, "a refused event changed the messages"
            self._note(f"{self.snapshot.state} refuses {event.TYPE}")

    def offer_stray_outcome(self) -> None:
        """Feed the outcome of a call that does not exist, and check that it is refused."""
        stray = ToolFinished(call_id="(no such call)", outcome="succeeded", result={"success": True})
        number = self._event_count + 1
        self.offer_event(stray)
        is_refused = self._turn.snapshot.messages.find_newest("(no such call)") is None
        assert is_refused, f"event {number}: the outcome of an unknown call was accepted"
