"""The rules by which Hypothesis leads a conversation: everything that stands around the core.

Loaded only where Hypothesis is wanted; `toolchart.testing.stateful_machine` binds these rules to a chart.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from toolchart.states.chart.loading import Chart
from toolchart.states.events import Cancelled, Decided, Limits, Settings, TurnStarted
from toolchart.states.machine import Machine
from toolchart.states.messages import ToolDefinition
from toolchart.testing.conversation import Conversation
from toolchart.testing.manual_turn import TOOLS
from toolchart.testing.strategies import answer_to


class RandomTurns(RuleBasedStateMachine):
    """Random turns through one chart, every step watched."""

    chart: ClassVar[Chart]
    machine: ClassVar[Machine]
    limits: ClassVar[st.SearchStrategy[Limits]]
    """The limits of a turn."""
    conversation: Conversation

    @initialize()
    def configure(self) -> None:
        """A fresh conversation."""
        self.conversation = Conversation(self.chart, self.machine, note)

    @precondition(lambda self: self.conversation.over)
    @rule(data=st.data(), tools=st.sampled_from((TOOLS, TOOLS[:1], ())))
    def start_turn(self, data: st.DataObject, tools: tuple[ToolDefinition, ...]) -> None:
        """The user says something."""
        settings = Settings(
            service="model",
            provider="scripted",
            model="scripted",
            limits=data.draw(self.limits, label="limits"),
            tools=tuple(tool.name for tool in tools),
        )
        self.conversation.take(TurnStarted(message="go on", settings=settings))

    @precondition(lambda self: self.conversation.waiting)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """The model, the review, a tool or the clock answers."""
        effect = data.draw(st.sampled_from(self.conversation.waiting), label="effect")
        event = data.draw(answer_to(effect, self.conversation.snapshot), label="answer")
        self.conversation.take_answer(effect, event)

    @precondition(lambda self: self.conversation.undecided)
    @rule(data=st.data(), approved=st.booleans())
    def decide(self, data: st.DataObject, approved: bool) -> None:
        """A person decides one call."""
        call = data.draw(st.sampled_from(self.conversation.undecided), label="call")
        self.conversation.offer(Decided(call_id=call, approved=approved, by="a person"))

    @precondition(lambda self: not self.conversation.over)
    @rule()
    def cancel(self) -> None:
        """Somebody stops the turn."""
        self.conversation.offer(Cancelled(reason="stopped"))

    @precondition(lambda self: not self.conversation.over)
    @rule()
    def stray_outcome(self) -> None:
        """An outcome comes of a call that nobody made."""
        self.conversation.take_stray()

    def teardown(self) -> None:
        """The log that was written derives again."""
        if hasattr(self, "conversation"):
            self.conversation.watch.derives_again()
