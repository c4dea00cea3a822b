"""Arguments that a person gives a call instead of the model's: one check at every door of a decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls

from toolchart.engine import Engine
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.tools import tool

RunCli = Callable[..., Any]

SPEC: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}
CALL = "call_1_0_0"
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt name": ({"amout": 5, "to": "anna"}, '{"amount":5,"to":"anna"}'),
    "a number as text": ({"amount": "5", "to": "anna"}, '{"amount":5,"to":"anna"}'),
    "a missing one": ({"amount": 5}, "'to'"),
    "a wrong type": ({"amount": [], "to": "anna"}, "'amount'"),
}
"""Arguments of a person, and what the error says about them."""


@tool(requires_approval=True)
def pay(amount: int, to: str) -> str:
    """Pay somebody.

    Args:
        amount: how much.
        to: whom.
    """
    return f"{amount} to {to}"


def make_payer(**options: Any) -> Engine:
    """An engine whose model asks once for a payment."""
    replies = [reply_with_calls(("pay", {"amount": 900, "to": "anna"})), "paid"]
    return make_engine(replies, functions=[pay], **SPEC, **options)


Door = Callable[[Engine, dict[str, Any]], Awaitable[Any]]
DOORS: dict[str, Door] = {
    "approve": lambda engine, arguments: engine.conversation("c").aapprove(CALL, arguments=arguments),
    "decide": lambda engine, arguments: engine.conversation("c").adecide(
        Decided(call_id=CALL, approved=True, arguments=arguments)
    ),
    "post": lambda engine, arguments: engine.conversation("c").apost(
        Decided(call_id=CALL, approved=True, arguments=arguments)
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("fault", UNFIT)
async def test_arguments_of_a_person_that_do_not_fit_decide_nothing(door: str, fault: str) -> None:
    """They are neither repaired nor taken as they are: the error says what is wrong, and what would fit where
    that is known. The call still waits, and the right decision counts."""
    arguments, words = UNFIT[fault]
    async with make_payer() as engine:
        await engine.arun("pay", conversation="c")
        before = len(list(engine.store.read_lines("c")))
        with pytest.raises(SpecError) as caught:
            await DOORS[door](engine, arguments)
        assert all(part in str(caught.value) for part in (CALL, words, "the call still waits"))
        assert len(list(engine.store.read_lines("c"))) == before
        assert not engine.store.read_inbox(["c"])
        await DOORS[door](engine, {"amount": 5, "to": "anna"})
        await engine.conversation("c").acontinue()
        (call,) = engine.conversation("c").read_turn().tool_calls
    assert (call.params, call.result["result"]) == ({"amount": 5, "to": "anna"}, "5 to anna")


@pytest.mark.parametrize("fault", UNFIT)
async def test_an_approver_in_the_program_decides_nothing_with_unfit_arguments(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a function decides with arguments that do not fit does not count, and a warning says why."""
    arguments, words = UNFIT[fault]

    async def decide(call: ToolCall) -> Decided:
        return Decided(call_id=call.id, approved=True, arguments=arguments)

    async with make_payer(approver=decide) as engine:
        turn = await engine.arun("pay", conversation="c")
    assert [call.id for call in turn.pending_approvals] == [CALL]
    assert words in caplog.text


@pytest.mark.parametrize("door", DOORS)
async def test_a_denial_has_no_arguments(door: str) -> None:
    """Nobody can tell what a denial with other arguments means: it decides nothing, and says so."""
    async with make_payer() as engine:
        await engine.arun("pay", conversation="c")
        decision = Decided(call_id=CALL, approved=False, arguments={"amount": 5, "to": "anna"})
        conversation = engine.conversation("c")
        with pytest.raises(SpecError, match="a denial has no arguments"):
            await (conversation.apost(decision) if door == "post" else conversation.adecide(decision))
        assert conversation.read_turn().pending_approvals


def test_a_reader_sees_what_a_person_changed(tmp_path: Path, run_cli: RunCli) -> None:
    """The turn has the arguments that ran, and `show` prints them with the decision, beside those that the
    model asked for."""
    log = str(tmp_path / "log.db")
    with make_payer(log=log) as engine:
        engine.run("pay", conversation="c")
        turn = engine.conversation("c").approve(CALL, arguments={"amount": 5, "to": "anna"}, by="ben")
    assert turn.tool_calls[0].params == {"amount": 5, "to": "anna"}
    shown = run_cli("show", "c", "--log", log).out
    assert 'calls pay {"amount":900,"to":"anna"}' in shown
    assert f'{CALL} approved by ben (unsigned), with other arguments: {{"amount":5,"to":"anna"}}' in shown


# -- the protocols of other clients -------------------------------------------------------------------


def make_answers(wire_id: str, decision: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Paths and bodies by which a client decides."""
    text = encode_canonical_text(decision)
    call = {"id": wire_id, "type": "function", "function": {"name": "ask_approval", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "ask"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": wire_id, "content": text},
    ]
    yield "/v1/chat/completions", {"model": "agent", "messages": messages}
    output = {"type": "function_call_output", "call_id": wire_id, "output": text}
    yield "/v1/responses", {"model": "agent", "input": [output]}
    resume = [{"interruptId": wire_id, "status": "resolved", "payload": decision}]
    yield "/ag-ui", {"threadId": "c", "runId": "r", "messages": [], "resume": resume}


@pytest.mark.parametrize("protocol", [0, 1, 2])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arguments": {"amout": 5, "to": "anna"}}, "this would fit"),
        ({"arguments": {"amount": []}}, "Invalid arguments"),
        ({"argumens": {"amount": 5, "to": "anna"}}, "argumens"),
    ],
)
async def test_a_client_that_decides_with_unfit_arguments_is_refused(
    protocol: int, changes: dict[str, Any], words: str
) -> None:
    """By each protocol the answer says what is wrong, and nothing is decided. A key that a decision does not
    have is refused too: the call would run with the arguments of the model."""
    pytest.importorskip("starlette", reason="the server needs the extra `serve`")
    from served import make_site, open_client

    from toolchart.app.server.protocols.waiting import APPROVAL, make_wire_id

    engine = make_payer()
    wire_id = make_wire_id(APPROVAL, "c", "c", CALL)
    async with open_client(make_site(engine)) as client:
        await engine.arun("pay", conversation="c")
        before = len(list(engine.store.read_lines("c")))
        path, body = list(make_answers(wire_id, {"approved": True, **changes}))[protocol]
        answer = await client.post(path, json=body)
        assert (answer.status_code, words in answer.text) == (400, True), answer.text
        assert len(list(engine.store.read_lines("c"))) == before
        path, body = list(
            make_answers(wire_id, {"approved": True, "arguments": {"amount": 5, "to": "anna"}})
        )[protocol]
        assert (await client.post(path, json=body)).status_code == 200
        (call,) = engine.conversation("c").read_turn().tool_calls
    assert call.params == {"amount": 5, "to": "anna"}
