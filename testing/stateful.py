"""A Hypothesis state machine of any chart: random turns through the real core, invariants watched.

    TestMyChart = chart_state_machine("my_chart.yaml").TestCase

Hypothesis plays everything that stands around the core: the user, the model, the review, the person
who decides, the tools, the clock. It draws what each of them might do (calls without ids, calls with
ids that were used before, arguments that could not be parsed, outcomes in any order, a cancellation
at any moment), and `toolchart.testing.invariants` watches every step. What fails is shrunk by
Hypothesis to the shortest conversation that shows it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolchart.engine.step import step
from toolchart.states.effects import Effect
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import (
    AnyEvent,
    Cancelled,
    Decided,
    Limits,
    MachineEvent,
    Settings,
    ToolFinished,
    TurnStarted,
)
from toolchart.states.machine import machine_of
from toolchart.states.snapshot import Snapshot
from toolchart.testing.invariants import Watch
from toolchart.testing.transitions import ChartLike, chart_of
from toolchart.testing.walk import TOOLS, Walk, configured, moment

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine

__all__ = ["chart_state_machine"]


def chart_state_machine(
    chart: ChartLike, *, limits: Limits | None = None
) -> type[RuleBasedStateMachine]:
    """The state machine of a chart; its `TestCase` is what a test suite takes.

    Args:
        chart: a chart, the name of a shipped one, a path, or an inline mapping.
        limits: the limits of every turn; without them each turn draws small ones.

    Raises:
        SpecError: no such chart, or one that breaks a rule.
        ImportError: Hypothesis is not installed (`pip install hypothesis`).
    """
    from hypothesis import note
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

    from toolchart.testing import drawn

    found = chart_of(chart)
    machine = machine_of(found)

    class ChartMachine(RuleBasedStateMachine):
        """Random turns through one chart."""

        @initialize()
        def configure(self) -> None:
            self.conversation = Conversation(Walk.of(machine, found), note)
            first = configured(found)
            self.conversation.watch.writer.note(first, step(machine, Snapshot(), first))

        @precondition(lambda self: self.conversation.over)
        @rule(
            limits=st.just(limits) if limits is not None else drawn.limits(),
            tools=st.sampled_from((TOOLS, TOOLS[:1], ())),
        )
        def start_turn(self, limits: Limits, tools: Any) -> None:
            settings = Settings(
                service="model", provider="scripted", model="scripted", limits=limits,
                tools=tuple(tool.name for tool in tools),
            )  # fmt: skip
            self.conversation.take(TurnStarted(message="go on", settings=settings))

        @precondition(lambda self: bool(self.conversation.waiting))
        @rule(data=st.data())
        def answer(self, data: Any) -> None:
            conversation = self.conversation
            effect = data.draw(st.sampled_from(conversation.waiting), label="answers")
            event = data.draw(drawn.answer_to(effect, conversation.snapshot), label="event")
            conversation.take_answer(effect, event)

        @precondition(lambda self: self.conversation.undecided)
        @rule(data=st.data(), approved=st.booleans())
        def decide(self, data: Any, approved: bool) -> None:
            call = data.draw(st.sampled_from(self.conversation.undecided), label="call")
            self.conversation.offer(Decided(call_id=call, approved=approved, by="a person"))

        @precondition(lambda self: not self.conversation.over)
        @rule()
        def cancel(self) -> None:
            self.conversation.offer(Cancelled(reason="stopped"))

        @precondition(lambda self: not self.conversation.over)
        @rule()
        def stray_outcome(self) -> None:
            self.conversation.take_stray()

        def teardown(self) -> None:
            if hasattr(self, "conversation"):
                self.conversation.watch.derives_again()

    ChartMachine.__name__ = ChartMachine.__qualname__ = f"Chart_{found.name}"
    return ChartMachine


class Conversation:
    """One conversation that Hypothesis leads: where it stands, and who watches."""

    def __init__(self, walk: Walk, note: Any) -> None:
        self._walk = walk
        self._note = note
        self.watch = Watch()
        self._place = 0

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
            opened.call.id for opened in self.snapshot.calls
            if opened.ruling == "needs_approval" and not self.over
        ]  # fmt: skip

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
