"""A conversation in which a timer asks the model, while the chart waits for its user."""

from __future__ import annotations

from typing import Any

from agents import make_engine

from toolchart.engine import Engine
from toolchart.testing import TurnableClock

REMINDING: dict[str, Any] = {
    "chart": {
        "name": "reminding",
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask",
                "transitions": [
                    {"event": "replied", "target": "listening"},
                    {"event": "failed", "target": "error"},
                ],
            },
            "listening": {
                "enter": "listen",
                "after": {"7d": "reminding"},
                "transitions": [{"event": "user_said", "target": "asking"}],
            },
            "reminding": {
                "enter": "remind",
                "transitions": [
                    {"event": "replied", "target": "listening"},
                    {"event": "failed", "target": "error"},
                ],
            },
            "error": {"final": True, "enter": "answer_with_error"},
        },
    },
    "effects": {
        "ask": {"call_model": {"prompt": "Ask", "as": "question"}},
        "remind": {"call_model": {"prompt": "Remind", "as": "question"}},
        "listen": {"await_user": "{{question}}"},
    },
}
"""A chart that reminds a user who says nothing for a week."""


def reply(text: str) -> dict[str, Any]:
    """A reply of three tokens."""
    return {"content": text, "usage": {"input": 2, "output": 1, "total": 3, "cost": 0.5}}


def run_reminder(store: Any) -> Engine:
    """A turn that a timer has reminded of its user, and the turn after it."""
    clock = TurnableClock()
    engine = make_engine(map(reply, ("Name?", "Still there?", "Age?")), log=store, clock=clock, **REMINDING)
    conversation = engine.conversation("c")
    conversation.send("hello")
    assert conversation.read_turn().usage.total == 3
    clock.advance("8d")
    assert conversation.resume().usage.total == 6
    return engine
