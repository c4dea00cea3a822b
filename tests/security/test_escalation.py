"""Escalation: after a time another approver is asked. The rule is a state of the chart with a timer."""

from __future__ import annotations

from typing import Any

import pytest
from agents import make_engine, make_function_tool, reply_with_calls
from msgspec.structs import replace

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.clock import SystemClock
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import Decided

CHART: dict[str, Any] = {
    "name": "escalating",
    "extends": "approval",
    "states": {
        "awaiting_approval": {"enter": "ask_clerk", "after": {"10m": "escalated"}},
        "escalated": {
            "enter": "ask_manager",
            "after": {"24h": "executing"},
            "transitions": [
                {"event": "decided", "target": "executing", "cond": "undecided_calls == 0"},
                {"event": "decided"},
                {"event": "cancelled", "target": "error"},
                {"event": "user_said"},
            ],
        },
    },
}
EFFECTS = {
    "ask_clerk": {"ask_approval": {"to": ["clerk"]}},
    "ask_manager": {"ask_approval": {"to": ["manager", "deputy"]}},
}


class MovedClock(SystemClock):
    """A clock that a test sets."""

    def __init__(self, now: str) -> None:
        self.time = now

    def now(self) -> str:
        """The time that was set."""
        return self.time


def make_payer(store: Any, clock: MovedClock, replies: list[Any], paid: list[Any], **changes: Any) -> Engine:
    """An engine whose tool pays after an approval."""

    def pay(arguments: dict[str, Any]) -> str:
        paid.append(arguments)
        return "paid"

    tool = replace(make_function_tool("pay", {"type": "object"}, pay), requires_approval=True)
    return make_engine(
        replies, log=store, clock=clock, functions=[tool], chart=CHART, effects=EFFECTS, **changes
    )


def start(store: Any, clock: MovedClock, paid: list[Any]) -> str:
    """Run a turn to its question, in an engine that ends with it; return the call's id."""
    engine = make_payer(store, clock, [reply_with_calls(("pay", {}))], paid)
    result = engine.run("Pay.", conversation="c")
    assert (result.state, result.due) == ("awaiting_approval", "2026-01-01T12:10:00.000Z")
    (pending,) = result.pending_approvals
    assert list(pending.approvers) == ["clerk"]
    engine.close()
    return pending.id


def decide(engine: Engine, call_id: str, name: str) -> Any:
    """Approve a call in somebody's name."""
    return engine.conversation("c").resume(Decided(call_id=call_id, approved=True, by=name))


def test_another_approver_is_asked_after_a_time() -> None:
    """The timer is durable: another process fires it; from then on the second approver decides, alone."""
    store, paid = MemoryStore(), []  # type: ignore[var-annotated]
    clock = MovedClock("2026-01-01T12:00:00.000Z")
    call_id = start(store, clock, paid)
    engine = make_payer(store, clock, ["Done."], paid)
    with pytest.raises(IllegalEvent, match="approvers: clerk"):
        decide(engine, call_id, "manager")
    clock.time = "2026-01-01T12:10:00.000Z"
    escalated = engine.conversation("c").resume()
    assert (escalated.state, list(escalated.pending_approvals[0].approvers)) == (
        "escalated",
        ["manager", "deputy"],
    )
    with pytest.raises(IllegalEvent, match="approvers: manager, deputy"):
        decide(engine, call_id, "clerk")
    assert decide(engine, call_id, "deputy").content == "Done."
    assert paid == [{}]
    text = b"\n".join(store.read_lines("c"))
    assert b'"effect":"ask_manager"' in text
    assert b'"to":["manager","deputy"]' in text
    assert len(list(replay_conversation(store, "c"))) == len(list(store.read_lines("c")))


def test_the_first_approver_in_time_decides() -> None:
    """Before the time is over the first approver decides, and nobody else is asked."""
    store, paid = MemoryStore(), []  # type: ignore[var-annotated]
    clock = MovedClock("2026-01-01T12:00:00.000Z")
    call_id = start(store, clock, paid)
    clock.time = "2026-01-01T12:09:59.000Z"
    assert decide(make_payer(store, clock, ["Done."], paid), call_id, "clerk").content == "Done."
    assert b"ask_manager" not in b"\n".join(list(store.read_lines("c"))[1:])


def test_a_decision_of_the_first_approver_comes_too_late() -> None:
    """A decision that arrives after the time is late: the escalation has happened, and the call waits on."""
    store, paid = MemoryStore(), []  # type: ignore[var-annotated]
    clock = MovedClock("2026-01-01T12:00:00.000Z")
    call_id = start(store, clock, paid)
    clock.time = "2026-01-01T13:00:00.000Z"
    result = decide(make_payer(store, clock, [], paid), call_id, "clerk")
    assert (result.state, paid) == ("escalated", [])


def test_nobody_decides() -> None:
    """After the second deadline the call expires, and the model hears so."""
    store, paid = MemoryStore(), []  # type: ignore[var-annotated]
    clock = MovedClock("2026-01-01T12:00:00.000Z")
    start(store, clock, paid)
    clock.time = "2026-01-03T12:00:00.000Z"
    engine = make_payer(store, clock, ["Nobody decided."], paid)
    result = engine.conversation("c").resume()
    if not result.is_over:  # the second deadline began when the first one fired
        clock.time = "2026-01-05T12:00:00.000Z"
        result = engine.conversation("c").resume()
    assert (result.content, result.tool_calls[0].outcome, paid) == ("Nobody decided.", "expired", [])


@pytest.mark.parametrize("parameters", [{}, {"to": []}, {"to": "anna"}, {"to": [""]}, {"too": ["anna"]}])
def test_a_wrong_declaration_is_refused(parameters: dict[str, Any]) -> None:
    """The approvers are a list with at least one name."""
    effects = {**EFFECTS, "ask_clerk": {"ask_approval": parameters}}
    with pytest.raises(SpecError, match="ask_clerk"):
        make_engine(["x"], chart=CHART, effects=effects)
