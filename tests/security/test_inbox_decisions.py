"""Whoever can write to the store can leave a decision in an inbox: it is checked as one of any other door."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, make_function_tool, reply_with_calls
from msgspec.structs import replace
from paying_agent import wait_until
from turning_store import TurningStore

from toolchart.engine import Engine
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.turns.items import Item, decode_entry, encode_item
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.tools.approvers import DecisionSubject, Signer
from toolchart.tools.signing_keys import create_key_file, read_private_key

STRICT = {"require_signatures": True, "default": "ask"}

LONGEST_S = 60.0
"""Seconds after which a case that hangs fails."""


class Payment:
    """A conversation `c` whose call of `pay` waits, and a decision on it that anna has signed elsewhere."""

    def __init__(self, folder: Path, key: dict[str, Any]) -> None:
        self.paid, self.store = list[Any](), TurningStore()
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.anna = create_key_file(folder / "anna.pem")
        self.signer = Signer(name="anna", key=read_private_key(folder / "anna.pem"))
        create_key_file(folder / "mallory.pem")
        self.mallory = Signer(name="anna", key=read_private_key(folder / "mallory.pem"))
        self._key = key

    def pay(self, arguments: dict[str, Any]) -> str:
        self.paid.append(arguments["amount"])
        return "paid"

    async def ask(self, call: ToolCall) -> Decided | None:
        """An approver who thinks for a long time, and then has no answer."""
        self.is_asked.set()
        await self.may_answer.wait()
        return None

    def open_engine(self, store: MemoryStore, *replies: Any, **changes: Any) -> Engine:
        """An engine of the agent that pays."""
        tool = make_function_tool("pay", {"type": "object", "properties": {"amount": {}}}, self.pay)
        options = {"approvers": {"anna": [{"key": self.anna, **self._key}]}, **changes}
        return make_engine(
            list(replies),
            log=store,
            functions=[replace(tool, requires_approval=True)],
            approval=STRICT,
            chart="approval",
            **options,
        )

    async def sign_elsewhere(self) -> Decided:
        """What anna signs of the call that waits, as another process has it."""
        copied = MemoryStore()
        copied.append("c", 0, list(self.store.read_lines("c")))
        async with self.open_engine(copied, signer=self.signer, approvers={"anna": self.anna}) as engine:
            call_id = engine.conversation("c").read_turn().pending_approvals[0].id
            await engine.conversation("c").apost(Decided(call_id=call_id, approved=True))
        (entry,) = copied.read_inbox(["c"])
        event = decode_entry(entry).event
        assert isinstance(event, Decided)
        return event

    def sign_again(self, decision: Decided, signer: Signer | None = None, **changes: Any) -> Decided:
        """The decision, signed for something else, or by somebody else."""
        loaded = load_conversation(self.store, "c")
        assert loaded is not None
        assert decision.signature is not None
        call = replace(loaded.snapshot.calls[0].call, **changes.pop("call", {}))
        subject = DecisionSubject(
            conversation="c", asked=decision.signature.asked, effect=decision.effect, call=call
        )
        unsigned = replace(decision, signature=None, shown_digest=changes.pop("shown", decision.shown_digest))
        return (signer or self.signer).sign_decision(
            unsigned, replace(subject, **changes), "2026-01-01T00:00:00.000Z"
        )

    def leave(self, decision: Decided) -> None:
        """Put a decision into the inbox of the store, as any process can that has it."""
        self.store.post("c", "decided/9/x", encode_item(Item(conversation="c", event=decision)))


def keep(payment: Payment, decision: Decided) -> Decided:
    return decision


Forge = Callable[[Payment, Decided], Decided]

FORGERIES: dict[str, tuple[dict[str, Any], Forge]] = {
    "unsigned": ({}, lambda payment, decision: replace(decision, signature=None)),
    "key of somebody else": ({}, lambda payment, decision: payment.sign_again(decision, payment.mallory)),
    "name of nobody": ({}, lambda payment, decision: replace(decision, by="mallory")),
    "key has expired": ({"valid_until": "2020-01-01"}, keep),
    "key is revoked": ({"revoked_at": "2020-01-01"}, keep),
    "denial made an approval": (
        {},
        lambda payment, decision: replace(
            payment.sign_again(replace(decision, approved=False)), approved=True
        ),
    ),
    "other arguments run": ({}, lambda payment, decision: replace(decision, arguments={"amount": 9000})),
    "other arguments signed": (
        {},
        lambda payment, decision: payment.sign_again(decision, call={"arguments": {"amount": 1}}),
    ),
    "other text shown": ({}, lambda payment, decision: payment.sign_again(decision, shown="0" * 64)),
    "other conversation": ({}, lambda payment, decision: payment.sign_again(decision, conversation="d")),
    "other question": ({}, lambda payment, decision: payment.sign_again(decision, asked="0" * 64)),
}
"""What may be wrong with a decision: how the key of the spec is limited, and how the decision is changed."""


Door = Callable[[Payment, Forge], Awaitable[None]]


async def leave_for_a_turn_that_runs(payment: Payment, forge: Forge) -> None:
    """The turn asks the approver of its program when the entry comes."""
    async with payment.open_engine(payment.store, PAY, "Done.", approver=payment.ask) as engine:
        turn = asyncio.create_task(engine.arun("Pay.", conversation="c"))
        await payment.is_asked.wait()
        payment.leave(forge(payment, await payment.sign_elsewhere()))
        await wait_until(lambda: not payment.store.read_inbox(["c"]))
        payment.may_answer.set()
        await turn


async def leave_for_a_holder_that_gives_back(payment: Payment, forge: Forge) -> None:
    """The turn rests, and its holder looks into the inbox before it gives the conversation back."""
    async with payment.open_engine(payment.store, PAY) as engine:
        await engine.arun("Pay.", conversation="c")
    decision = forge(payment, await payment.sign_elsewhere())
    payment.store.before_release = lambda: payment.leave(decision)
    async with payment.open_engine(payment.store, "Done.") as engine:
        await engine.conversation("c").asay("Hurry.")


async def leave_at_rest(payment: Payment, forge: Forge) -> None:
    """Nobody holds the conversation; a worker that looks for work finds the entry."""
    async with payment.open_engine(payment.store, PAY) as engine:
        await engine.arun("Pay.", conversation="c")
    payment.leave(forge(payment, await payment.sign_elsewhere()))
    async with payment.open_engine(payment.store, "Done.") as engine:
        await engine.arecover()


async def leave_for_who_resumes(payment: Payment, forge: Forge) -> None:
    """Nobody holds the conversation; one that says something else takes the entry, too."""
    async with payment.open_engine(payment.store, PAY) as engine:
        await engine.arun("Pay.", conversation="c")
    payment.leave(forge(payment, await payment.sign_elsewhere()))
    async with payment.open_engine(payment.store, "Done.") as engine:
        await engine.arun("Hurry.", conversation="c")


PAY = reply_with_calls(("pay", {"amount": 20}))

DOORS: dict[str, Door] = {
    "running": leave_for_a_turn_that_runs,
    "given back": leave_for_a_holder_that_gives_back,
    "recover": leave_at_rest,
    "taken with a message": leave_for_who_resumes,
}
"""Who finds the entry."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_decision_in_an_inbox_is_refused(forgery: str, door: str, tmp_path: Path) -> None:
    """Whoever finds the entry checks key, name, time, arguments, shown text, conversation and question:
    nothing is written of a forged one and nothing runs, the call still waits, and the entry is gone."""
    key, forge = FORGERIES[forgery]
    payment = Payment(tmp_path, key)
    async with asyncio.timeout(LONGEST_S):
        await DOORS[door](payment, forge)
    assert payment.paid == []
    assert not any(b'"decided"' in line for line in payment.store.read_lines("c"))
    assert payment.store.read_inbox(["c"]) == []
    async with payment.open_engine(payment.store) as engine:
        assert engine.conversation("c").read_turn().pending_approvals


@pytest.mark.parametrize("door", DOORS)
async def test_a_signed_decision_in_an_inbox_is_taken_once(door: str, tmp_path: Path) -> None:
    """The same doors take a decision that is as anna has signed it; the call runs once."""
    payment = Payment(tmp_path, {})
    async with asyncio.timeout(LONGEST_S):
        await DOORS[door](payment, keep)
    assert payment.paid == [20]
    assert payment.store.read_inbox(["c"]) == []
