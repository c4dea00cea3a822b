"""A conversation that a test leads event by event, with every step checked against the invariants."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from toolchart.states.chart.loading import Chart
from toolchart.states.core.step import Step, step
from toolchart.states.effects import AwaitUser, Effect, RunAgent, Wait
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Answering, Event, ToolFinished
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot
from toolchart.testing.invariants import InvariantMonitor
from toolchart.testing.manual_turn import ManualTurn, make_configured_event, make_timestamp


class Conversation:
    """A conversation of one chart; `note` is called with one line for every step."""

    def __init__(self, chart: Chart, machine: Machine, note: Callable[[str], None]) -> None:
        self.turn = ManualTurn.start(machine, chart)
        """The conversation after the latest event."""
        self._note = note
        self._event_count = 0
        self._closed_effects: dict[int, Effect] = {}
        self.monitor = InvariantMonitor()
        first = make_configured_event(chart)
        self.monitor.log.write_record(first, step(machine, Snapshot(), first))

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot after the latest event."""
        return self.turn.snapshot

    @property
    def is_over(self) -> bool:
        """Whether no turn is running, so that one may start."""
        return self.snapshot.is_over

    @property
    def open_effects(self) -> list[Effect]:
        """The open effects that something other than the user's next message may answer."""
        return [effect for effect in self.turn.open_effects if _has_answer(effect)]

    @property
    def closed_effects(self) -> list[Effect]:
        """The effects that were answered or cancelled, of all turns."""
        open_ids = {effect.id for effect in self.snapshot.open_effects}
        effects = self._closed_effects.values()
        return [e for e in effects if e.id not in open_ids and not isinstance(e, AwaitUser)]

    def apply_event(self, event: Event) -> Step:
        """Feed an event, and check the step."""
        self._event_count += 1
        event = replace(event, at=make_timestamp(self._event_count))
        before = self.turn
        self.turn, result = before.apply_event(event)
        self._closed_effects |= {effect.id: effect for effect in self.snapshot.open_effects}
        self._note(f"{result.source or '(start)'} --{event.TYPE}--> {result.target}")
        self.monitor.check_step(before, event, self.turn, result)
        return result

    def answer_effect(self, effect: Effect, event: Answering) -> None:
        """Feed the answer to an open effect. The core survives any chart; a sound one takes it and goes on.

        Raises:
            AssertionError: the chart has no row for it, or can never continue after it.
        """
        result = self.apply_event(replace(event, effect=effect.id))
        is_open = any(other.id == effect.id for other in self.snapshot.open_effects)
        is_taken = result.fired or not result.is_untaken or (is_open and isinstance(effect, RunAgent))
        assert is_taken, (
            f"the chart asks for {effect.name!r} and has no row for its answer: no transition takes "
            f"{event.TYPE!r} in state {result.source!r}"
        )
        self._check_that_turn_goes_on(result)

    def _check_that_turn_goes_on(self, result: Step) -> None:
        assert self.snapshot.ended_by != "stuck", (
            f"the turn can never leave {result.target!r}: no effect is open, and the state is not final"
        )
        assert self.snapshot.ended_by != "endless", f"the turn never rests after {result.source!r}"

    def offer_event(self, event: Event) -> None:
        """Feed an event from outside, which the chart may leave untaken."""
        result = self.apply_event(event)
        if result.is_untaken and not result.fired:
            self._note(f"{result.source} has no row for {event.TYPE}")
        self._check_that_turn_goes_on(result)

    def offer_late_answer(self, effect: Effect, event: Answering) -> None:
        """Feed the answer to an effect that is not open any more, and check that it moves nothing."""
        before = self.snapshot
        result = self.apply_event(replace(event, effect=effect.id))
        assert result.is_late, f"an answer to {effect.name!r}, which is not open, was not late"
        assert list(self.snapshot.messages) == list(before.messages), "a late answer changed the messages"
        assert self.snapshot.open_effects == before.open_effects, "a late answer changed the open effects"

    def offer_stray_outcome(self) -> None:
        """Feed the outcome of a call that does not exist, and check that it is refused."""
        stray = ToolFinished(call_id="(no such call)", outcome="succeeded", result={"success": True})
        before = self.snapshot
        try:
            self.apply_event(stray)
        except IllegalEvent:
            self._event_count -= 1
            assert self.snapshot is before, "a refused event changed the conversation"
            return
        raise AssertionError(f"event {self._event_count}: the outcome of an unknown call was accepted")


def _has_answer(effect: Effect) -> bool:
    """Whether an event other than the user's next message may answer an effect now."""
    return isinstance(effect, Wait) or not effect.waits_for_user
