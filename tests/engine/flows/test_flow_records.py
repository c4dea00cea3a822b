"""What records say about flows: replies that are results are no messages of the conversation."""

from __future__ import annotations

from typing import Any

from toolchart.engine.log.record import list_message_references
from toolchart.states.chart.loading import make_chart
from toolchart.states.core.step import Step
from toolchart.states.events import Replied, Settings, TurnStarted
from toolchart.states.machine import Machine
from toolchart.states.messages import Reply, ToolCall
from toolchart.testing.manual_turn import ManualTurn

JUDGE: dict[str, Any] = {
    "states": {
        "judging": {
            "initial": True,
            "enter": "judge",
            "transitions": [{"event": "replied", "target": "told"}, {"event": "failed", "target": "told"}],
        },
        "told": {"final": True, "enter": "publish"},
    },
    "effects": {
        "judge": {"call_model": {"prompt": "Judge.", "as": "verdict"}},
        "publish": {"answer": {"content": "It is published."}},
    },
}


def apply_reply(reply: Reply) -> Step:
    """The step of a reply to the judge."""
    chart = make_chart(JUDGE)
    turn = ManualTurn.start(Machine(chart), chart)
    settings = Settings(service="model", provider="scripted", model="m")
    turn, _ = turn.apply_event(TurnStarted(message="Go.", settings=settings))
    _, step = turn.apply_event(Replied(reply=reply))
    return step


def test_an_answer_after_a_result_is_not_recorded_as_the_reply() -> None:
    """The message that an answer adds stands in the record itself: the reply is a result."""
    (reference,) = list_message_references(apply_reply(Reply(content="Bad.", finish_reason="stop")))
    assert reference["content"] == "It is published."


def test_calls_in_a_result_are_no_calls_of_the_conversation() -> None:
    """A host may send tool calls where none were offered; those of a result are nobody's."""
    call = ToolCall(id="c", name="look_up", arguments={})
    step = apply_reply(Reply(content="It is published.", finish_reason="tool_calls", tool_calls=(call,)))
    assert step.given_call_ids == ()
    (reference,) = list_message_references(step)
    assert "tool_calls" not in reference
