"""One conversation that somebody leads event by event: where it stands, and who watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from toolchart.states.chart.loading import Chart
from toolchart.states.core.step import step
from toolchart.states.effects import Effect
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import AnyEvent, MachineEvent, ToolFinished
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot
from toolchart.testing.invariants import Watch
from toolchart.testing.manual_turn import Walk, configured, moment


class Conversation:
    """A conversation of one chart; `note` hears of every step in one line."""

    def __init__(self, chart: Chart, machine: Machine, note: Callable[[str], None]) -> None:
        self._walk = Walk.of(machine, chart)
        self._note = note
        self._place = 0
        self.watch = Watch()
        first = configured(chart)
        self.watch.writer.note(first, step(machine, Snapshot(), first))

    @property
    def snapshot(self) -> Snapshot:
        """Where it stands."""
        return self._walk.snapshot

    @property
    def over(self) -> bool:
        """Whether a turn may start."""
        return self.snapshot.over

    @property
    def waiting(self) -> list[Effect]:
        """Effects that wait for an answer."""
        return [] if self.over else list(self._walk.waiting)

    @property
    def undecided(self) -> list[str]:
        """Calls that wait for a person."""
        return [
            opened.call.id
            for opened in self.snapshot.calls
            if opened.ruling == "needs_approval" and not self.over
        ]

    def take(self, event: AnyEvent) -> None:
        """Feed an event that must be taken, and have the step watched."""
        self._place += 1
        event = replace(event, at=moment(self._place))
        before = self._walk
        self._walk, made = before.take(event)
        self._note(f"{made.source or '(start)'} --{event.TYPE}--> {made.target}")
        self.watch.taken(before, event, self._walk, made)
        assert self.over or self.waiting or self.undecided, (
            f"the turn rests in {made.target!r} for ever: no effect is awaited there, no decision, "
            "and the state is not final"
        )

    def take_answer(self, effect: Effect, event: MachineEvent) -> None:
        """Feed the answer to an effect; a chart that has no row for it loses the turn."""
        try:
            self.take(event)
        except IllegalEvent as refusal:
            raise AssertionError(
                f"the chart asks for {effect.name!r} and then does not take its answer: {refusal}"
            ) from None

    def offer(self, event: MachineEvent) -> None:
        """Feed an event from outside, which the chart may refuse; then nothing has changed."""
        messages = list(self.snapshot.messages)
        try:
            self.take(event)
        except IllegalEvent:
            assert list(self.snapshot.messages) == messages, "a refused event left a trace"
            self._note(f"{self.snapshot.state} refuses {event.TYPE}")

    def take_stray(self) -> None:
        """An outcome of a call that nobody made is refused."""
        stray = ToolFinished(
            call_id="(no such call)", outcome="succeeded", result={"success": True}
        )
        before = self._place
        self.offer(stray)
        refused = self._walk.snapshot.messages.newest("(no such call)") is None
        assert refused, f"event {before + 1}: a call that nobody made was answered"
