"""Runs parallel payments in a forked process that is killed, and checks what its log says of them.

Each payment appends a line to a ledger when it begins, with its idempotency key. So the ledger says which
payments began, and the log must agree: a payment that the resumed turn calls `interrupted` has a start mark,
one without a mark is made then, and none is made twice.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from killed_process import append_mark, die, die_at_commit, read_acknowledged_lines, run_forked
from postgres_database import await_end_of_sessions

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.tools.sources.effect_functions import effect
from toolchart.tools.sources.python import tool
from toolchart.tools.tool_context import ToolContext

ROUNDS = 2
PAYMENTS = 3
"""Payments in each round; an idempotent call stands beside them."""

BOOKING: dict[str, Any] = {
    "name": "booking",
    "states": {
        "booking": {
            "initial": True,
            "enter": "book",
            "transitions": [
                {"event": "returned", "target": "booking", "cond": "receipt.count < 3"},
                {"event": "returned", "target": "finished"},
                {"event": "failed", "target": "booking", "cond": "receipt.failures < 3"},
                {"event": "failed", "target": "finished"},
            ],
        },
        "finished": {"final": True, "enter": "tell"},
    },
}
"""Pays by `call_function`, three times."""

BOOKING_EFFECTS = {
    "book": {"call_function": {"function": "pay_bill", "arguments": {"bill": "b"}, "as": "receipt"}},
    "tell": {"answer": "all done"},
}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the process kills itself."""

    commit: int = -1
    """Before the commit with this number, where it is even; after it, where it is odd. -1 for none."""
    payment: str = ""
    """In the payment of this id, when it is in the ledger."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """How the payments are made."""

    name: str
    isolation: str = "thread"
    parallel: int = 4
    """Calls that run at the same time."""


THREADS = Flow(name="threads")

FLOWS = (
    THREADS,
    Flow(name="inline", isolation="inline"),
    Flow(name="two at once", parallel=2),
    Flow(name="function"),
)


def make_engine(flow: Flow, log: str, ledger: Path, place: Place | None = None, **options: Any) -> Engine:
    """The engine, with the same settings in the child, in the parent and after the kill."""

    def note_payment(id_: str, key: str) -> None:
        append_mark(ledger, f"{id_} {key}")
        if place is not None and place.payment == id_:
            die()

    @tool(isolation=flow.isolation, **options)  # type: ignore[arg-type]
    def pay(id: str, context: ToolContext[Any]) -> str:
        """Pay."""
        note_payment(id, context.idempotency_key)
        return "paid"

    @tool(isolation=flow.isolation, idempotent=True)  # type: ignore[arg-type]
    def look(id: str, context: ToolContext[Any]) -> str:
        """Look something up."""
        note_payment(id, context.idempotency_key)
        return "seen"

    @effect
    def pay_bill(bill: str, context: ToolContext[Any]) -> str:
        """Pay a bill."""
        note_payment(f"bill{context.idempotency_key[:6]}", context.idempotency_key)
        return "paid"

    spec: dict[str, Any] = {
        "chart": BOOKING if flow.name == "function" else "tool_loop",
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "tools": {"parallel": flow.parallel},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
    }
    if flow.name == "function":
        spec["effects"] = BOOKING_EFFECTS
    engine = Engine(
        spec,
        log=log,
        functions=[pay_bill] if flow.name == "function" else [pay, look],
        providers={"model": ScriptedProvider([_make_reply] * (ROUNDS * 4))},
    )
    if place is not None and place.commit >= 0:
        die_at_commit(engine, place.commit)
    return engine


def _make_reply(request: Request) -> Reply:
    """Payments and one look, in each round."""
    if request.iteration >= ROUNDS:
        return Reply(content="all done", finish_reason="stop")
    names = ["pay"] * PAYMENTS + ["look"]
    calls = [
        ToolCall(id=f"{name}{request.iteration}{number}", name=name, arguments={"id": f"{name}{number}"})
        for number, name in enumerate(names)
    ]
    calls = [msgspec.structs.replace(call, arguments={"id": call.id}) for call in calls]
    return Reply(tool_calls=tuple(calls), finish_reason="tool_calls")


def run_and_die(
    flow: Flow, log: str, ledger: Path, place: Place | None, delay_s: float | None = None
) -> bool:
    """Run the conversation in a forked process that is killed at a place or after a time; whether it was."""
    return run_forked(lambda: make_engine(flow, log, ledger, place).run("go", conversation="c"), delay_s)


def check_resume(flow: Flow, log: str, ledger: Path) -> Counter[str]:
    """Resume the killed conversation, and check log and ledger.

    Returns:
        How many calls had each outcome, and `not begun`: the interrupted ones that were killed between mark
        and start.
    """
    await_end_of_sessions(log)
    began_before = read_ledger(ledger)
    engine = make_engine(flow, log, ledger)
    acknowledged_lines = read_acknowledged_lines(engine)
    if len(acknowledged_lines) > 1:
        result = engine.conversation("c").resume()
    else:  # killed before the turn was acknowledged
        assert not began_before, began_before
        result = engine.run("go", conversation="c")
    lines = list(engine.store.read_lines("c"))
    engine.close()
    assert (result.is_over, result.content) == (True, "all done"), result
    return check_log(flow, acknowledged_lines, lines, began_before, read_ledger(ledger))


def check_log(
    flow: Flow,
    before: list[bytes],
    lines: list[bytes],
    began_before: dict[str, list[str]],
    began: dict[str, list[str]],
) -> Counter[str]:
    """Check the log of a resumed conversation against the payments that began; see `check_resume`.

    Args:
        before: the records that the killed process left, and `began_before` what had begun then.
    """
    assert lines[: len(before)] == before
    *_, last = replay(lines, "c")
    assert last.step.snapshot.answer == "all done"
    marked = set(_iterate_marks(before))
    if flow.name == "function":
        return _check_functions(lines, marked, began_before, began)
    # The host may have given no ids: then the core has, and the arguments name the payment.
    payments = {
        open_call.call.id: open_call.call.arguments["id"]
        for entry in replay(lines, "c")
        for open_call in entry.step.snapshot.calls
        if open_call.call.arguments
    }
    marked_payments = {payments[call_id] for call_id in marked}
    outcomes = {call.params["id"]: call.outcome for call in last.step.snapshot.tracked_calls if call.params}
    assert len(outcomes) == ROUNDS * (PAYMENTS + 1), outcomes
    return _check_calls(outcomes, marked_payments, began_before, began)


def _check_calls(
    outcomes: dict[str, str],
    marked: set[str],
    began_before: dict[str, list[str]],
    began: dict[str, list[str]],
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for id_, outcome in outcomes.items():
        counts[outcome] += 1
        keys = began.get(id_, [])
        assert len(set(keys)) <= 1, f"{id_} ran under two keys"
        assert outcome in ("succeeded", "interrupted"), (id_, outcome)
        if id_.startswith("look"):
            assert outcome == "succeeded"
            continue
        assert len(keys) <= 1, f"{id_} ran twice"
        assert id_ not in began_before or id_ in marked, f"{id_} began without a mark"
        if outcome == "succeeded":
            assert len(keys) == 1, f"{id_} is said to have run"
        else:
            assert id_ in marked, f"{id_} has no mark and is interrupted"
            counts["not begun"] += not keys
    return counts


def _check_functions(
    lines: list[bytes], marked: set[str], began_before: dict[str, list[str]], began: dict[str, list[str]]
) -> Counter[str]:
    events = [json.loads(line)["event"] for line in lines]
    ends = {e["effect"]: e for e in events if e["type"] in ("returned", "failed")}
    counts: Counter[str] = Counter()
    counts["succeeded"] = sum(end["type"] == "returned" for end in ends.values())
    for effect_id, end in ends.items():
        if end["type"] == "failed":
            assert end["kind"] == "interrupted"
            assert f"effect {effect_id}" in marked, f"effect {effect_id} has no mark and is interrupted"
            counts["interrupted"] += 1
    assert all(len(keys) == 1 for keys in began.values()), began
    assert counts["succeeded"] <= len(began) <= len(ends)
    assert len(began_before) <= len(marked)
    counts["not begun"] = len(ends) - len(began)
    return counts


def _iterate_marks(lines: list[bytes]) -> Iterator[str]:
    """The calls with a start mark, and the effects that call functions."""
    for line in lines:
        event = json.loads(line)["event"]
        if event["type"] == "calls_started":
            yield from event.get("calls") or [f"effect {event['effect']}"]


def read_ledger(ledger: Path) -> dict[str, list[str]]:
    """The keys of each payment that began."""
    keys: dict[str, list[str]] = defaultdict(list)
    for line in ledger.read_text().splitlines() if ledger.exists() else ():
        id_, _, key = line.partition(" ")
        keys[id_].append(key)
    return dict(keys)
