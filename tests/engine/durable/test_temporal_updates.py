"""Workflows that end with a result, updates that bring decisions, and a query for what waits."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock, patch

import msgspec
import pytest
from durable_scripts import check_log
from durable_workers import make_engine

from toolchart.engine import Engine
from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.stretches import Stretch, compute_version
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import DurableHostUnavailable, IllegalEvent, NotFound, ProviderError, SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import Reply, Request

pytest.importorskip("temporalio", reason="needs the extra `temporal`")

from temporal_histories import RENEW_OPTIONS
from temporal_server import find_server, run_server
from temporal_work import (
    has_state,
    list_events,
    replay_runs,
    run_worker_that_dies_before_its_report,
    wait_until,
    work,
)
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError

from toolchart.engine.durable.temporal_handle import TemporalConversation
from toolchart.engine.durable.temporal_reports import fit_result, fit_waiting
from toolchart.engine.durable.temporal_worker import TemporalHost, build_workflow_id
from toolchart.engine.durable.temporal_workflow import WAITING

PROGRAM = find_server()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="needs Temporal's program `temporal`"),
]

ASKING: dict[str, Any] = {
    "name": "asker",
    "chart": {
        "name": "asking",
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask",
                "after": {"1h": "gave_up"},
                "transitions": [
                    {"event": "answered", "target": "finished"},
                    {"event": "cancelled", "target": "gave_up"},
                ],
            },
            "finished": {"final": True, "enter": "tell"},
            "gave_up": {"final": True, "enter": "regret"},
        },
    },
    "effects": {
        "ask": {
            "ask_person": {
                "question": "How much?",
                "form": {
                    "type": "object",
                    "properties": {"amount": {"type": "integer"}},
                    "required": ["amount"],
                },
                "as": "said",
            }
        },
        "tell": {"answer": "{{said.amount}} it is"},
        "regret": {"answer": "no answer"},
    },
}
"""Asks somebody, with a deadline."""

TALKING: dict[str, Any] = {
    "name": "talker",
    "chart": {
        "name": "talking",
        "states": {
            "listening": {
                "initial": True,
                "enter": "listen",
                "transitions": [{"event": "user_said", "target": "finished"}],
            },
            "finished": {"final": True, "enter": "tell"},
        },
    },
    "effects": {"listen": {"await_user": {}}, "tell": {"answer": "bye"}},
}
"""A chart that spans two messages of its user."""


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server in memory."""
    assert PROGRAM is not None
    with run_server(PROGRAM) as address:
        yield address


@pytest.fixture
def renewing_server() -> Iterator[str]:
    """The address of a server that soon asks for a new run of each workflow."""
    assert PROGRAM is not None
    with run_server(PROGRAM, *RENEW_OPTIONS) as address:
        yield address


async def pay(arguments: Any) -> str:
    """A tool."""
    return "paid"


async def read_status(client: Client, id_: str) -> WorkflowExecutionStatus | None:
    """How the newest run of a workflow stands."""
    return (await client.get_workflow_handle(id_).describe()).status


async def wait_for_question(conversation: TemporalConversation, kind: str = "approvals") -> dict[str, Any]:
    """What waits, as soon as Temporal says that somebody is asked."""
    async with asyncio.timeout(60):
        while True:
            try:
                waiting = await conversation.read_waiting()
            except NotFound:
                waiting = {kind: []}
            if waiting[kind]:
                return waiting
            await asyncio.sleep(0.05)


# -- the end of a workflow -------------------------------------------------------------------------


async def test_an_ended_conversation_closes_its_workflow_with_its_result(server: str) -> None:
    """The workflow completes with what `toolchart run --json` prints. The next message starts a run under the
    same id, and a message that is sent again starts one that changes nothing and gives the result again."""
    store = MemoryStore()
    async with make_engine(store, pay) as engine, work(engine, server) as client:
        temporal = await Client.connect(server)
        conversation = TemporalConversation(temporal, "payer", "closed")
        results = []
        for message, key in (("one", "1"), ("two", "2"), ("two", "2")):
            await client.submit(message, conversation="closed", key=key)
            results.append(await conversation.read_result())
            assert results[-1] == engine.conversation("closed").read_turn().to_dict()
        assert (results[0] or {})["ok"]
        assert results[1] == results[2] != results[0]
        assert (await conversation.read_waiting())["approvals"] == []
        runs = await replay_runs(temporal, build_workflow_id("payer", "closed"))
    messages = [
        event["message"] for event in list_events(engine, "closed") if event["type"] == "turn_started"
    ]
    assert (messages, len(runs)) == (["one", "two"], 3)
    check_log(store)


class FailingModel:
    """A model whose host refuses every request."""

    name = "failing"

    async def complete(self, request: Request) -> Reply:
        """Nothing but an error."""
        raise ProviderError("auth", "no such key", status=401)

    async def aclose(self) -> None:
        """Nothing to close."""


async def test_a_turn_that_ends_in_error_is_a_result(server: str) -> None:
    """A host that refuses its request ends the turn in error. The workflow completes, and its result says
    so."""
    async with make_engine(MemoryStore(), pay) as engine:
        options: Any = {"providers": {"model": FailingModel()}, "longest_wait_s": 0.05}
        async with Engine(engine.spec, **options) as failing, work(failing, server) as client:
            await client.submit("one", conversation="failed")
            temporal = await Client.connect(server)
            result = await TemporalConversation(temporal, "payer", "failed").read_result()
    assert result is not None
    assert (result["ok"], result["is_over"], result["error"]["kind"]) == (False, True, "auth")
    status = await read_status(temporal, build_workflow_id("payer", "failed"))
    assert status is WorkflowExecutionStatus.COMPLETED


async def test_work_that_can_never_be_done_fails_its_workflow(server: str) -> None:
    """A look at a conversation that the log does not have is no result: the workflow fails, and says why."""
    async with make_engine(MemoryStore(), pay) as engine, work(engine, server):
        temporal = await Client.connect(server)
        host = TemporalHost(temporal, "payer")
        version = await _find_version(engine)
        await host.start(Stretch(conversation="nobody", key="wake/1", version=version))
        with pytest.raises(WorkflowFailureError) as caught:
            await temporal.get_workflow_handle(build_workflow_id("payer", "nobody")).result()
        assert isinstance(caught.value.cause, ApplicationError)
        assert caught.value.cause.type == "StretchFailed"


async def _find_version(engine: Any) -> str:
    return compute_version(engine.conversation("x").build_configured_event().chart)


async def test_a_chart_that_spans_turns_keeps_its_workflow_open(server: str) -> None:
    """A conversation whose chart waits for the next message of its user stays open; that message comes to the
    same run, which then ends with the result of the run of the chart."""
    store = MemoryStore()
    async with make_engine(store, pay, **TALKING) as engine, work(engine, server) as client:
        temporal = await Client.connect(server)
        id_ = build_workflow_id("talker", "spanning")
        await client.submit("one", conversation="spanning")
        await wait_until(lambda: has_state(engine, "spanning", "listening"))
        await client.wake("spanning")
        await asyncio.sleep(0.5)
        assert await read_status(temporal, id_) is WorkflowExecutionStatus.RUNNING
        await client.submit("two", conversation="spanning")
        result = await TemporalConversation(temporal, "talker", "spanning").read_result()
        assert (result or {})["content"] == "bye"
        assert len(await replay_runs(temporal, id_)) == 1
    check_log(store)


async def test_messages_at_the_end_of_a_workflow_are_not_lost(server: str) -> None:
    """Each message is sent as soon as the log has the end of the turn before, at other moments of the
    completion of its workflow: all run, each once and in order."""
    store = MemoryStore()
    messages = [str(number) for number in range(16)]
    async with make_engine(store, pay) as engine, work(engine, server) as client:
        temporal = await Client.connect(server)

        def list_ended() -> list[str]:
            turns = [event for event in list_events(engine, "storm") if event["type"] == "turn_started"]
            ended = has_state(engine, "storm", "finished")
            return [event["message"] for event in turns] if ended else []

        for number, message in enumerate(messages):
            await client.submit(message, conversation="storm", key=message)
            async with asyncio.timeout(60):
                while list_ended() != messages[: number + 1]:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.004 * number)
        await TemporalConversation(temporal, "payer", "storm").read_result()
        assert len(await replay_runs(temporal, build_workflow_id("payer", "storm"))) > 1
    check_log(store)


async def test_a_worker_that_dies_after_the_end_of_the_turn_changes_no_result(
    server: str, tmp_path: Path
) -> None:
    """The turn is over in the log, and the worker is killed before Temporal knows. The next worker finds the
    turn ended: nothing is paid twice, and the workflow completes with the result."""
    marks, address = tmp_path / "marks", str(tmp_path / "log.db")
    marks.touch()

    async def pay_again(arguments: Any) -> str:
        raise AssertionError("the payment was repeated")

    process = multiprocessing.get_context("spawn").Process(
        target=run_worker_that_dies_before_its_report, args=(address, server, marks)
    )
    process.start()
    try:
        async with make_engine(address, pay_again) as engine:
            temporal = await Client.connect(server)
            sender = DurableClient(engine, TemporalHost(temporal, "payer"))
            await sender.submit("the bill", key="killed")
            await asyncio.to_thread(process.join, 60)
            assert (process.exitcode, marks.read_text()) == (-9, "over\n")
            newest = engine.store.read_last_line("killed")
            id_ = build_workflow_id("payer", "killed")
            assert await read_status(temporal, id_) is WorkflowExecutionStatus.RUNNING
            async with work(engine, server):
                result = await TemporalConversation(temporal, "payer", "killed").read_result()
                await replay_runs(temporal, id_)
            assert engine.store.read_last_line("killed") == newest
            assert result == engine.conversation("killed").read_turn().to_dict()
            check_log(engine.store)
    finally:
        process.kill()


# -- updates and the query -------------------------------------------------------------------------


async def test_a_call_is_approved_by_an_update(server: str) -> None:
    """The query says what waits, in the form of `Waiting`. A decision about a call that does not wait is
    refused, and leaves nothing in the history. The right one is durable when the update returns, waits no
    more for the query, and ends the conversation. The same update once more gives the same answer."""
    store = MemoryStore()
    async with make_engine(store, pay, approval=True) as engine, work(engine, server) as client:
        temporal = await Client.connect(server)
        conversation = TemporalConversation(temporal, "payer", "approved")
        await client.submit("the bill", conversation="approved")
        waiting = await wait_for_question(conversation)
        assert waiting == engine.conversation("approved").waiting.to_dict()
        (call,) = waiting["approvals"]
        assert (call["tool"], call["params"]) == ("pay", {"text": "the bill"})
        with pytest.raises(IllegalEvent, match=f"no call 'another' waits for a decision\n.*{call['id']}"):
            await conversation.decide("another", approved=True)
        for _ in range(2):
            reception = await conversation.decide(call["id"], approved=True, by="ann", update_id="u1")
            assert (reception.outcome, reception.conversation) == ("handed_over", "approved")
            assert (await conversation.read_waiting())["approvals"] == []
        result = await conversation.read_result()
        assert (result or {})["tool_calls"][0]["outcome"] == "succeeded"
        (run,) = await replay_runs(temporal, build_workflow_id("payer", "approved"))
    accepted = [event.event_id for event in run.events if _is_accepted(event)]
    decisions = [event for event in list_events(engine, "approved") if event["type"] == "decided"]
    assert (len(accepted), [event["by"] for event in decisions]) == (1, ["ann"])
    check_log(store)


def _is_accepted(event: Any) -> bool:
    return bool(event.HasField("workflow_execution_update_accepted_event_attributes"))


async def test_of_two_updates_at_once_one_holds(server: str) -> None:
    """One person approves and another one rejects the same call at the same time: one is handed over, the
    other one hears that it came too late, and the log has one decision, which is the first."""
    store = MemoryStore()
    temporal = await Client.connect(server)
    conversation = TemporalConversation(temporal, "payer", "both")
    async with make_engine(store, pay, approval=True) as engine, work(engine, server) as client:
        await client.submit("the bill", conversation="both")
        (call,) = (await wait_for_question(conversation))["approvals"]
    # Nobody works now, so the next worker gets both in one task of the workflow.
    both = [
        asyncio.create_task(conversation.decide(call["id"], approved=approved, by=by))
        for approved, by in ((True, "ann"), (False, "bob"))
    ]
    await asyncio.sleep(1)
    async with make_engine(store, pay, approval=True) as engine, work(engine, server):
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        await conversation.read_result()
        await replay_runs(temporal, build_workflow_id("payer", "both"))
    refusals = [outcome for outcome in outcomes if isinstance(outcome, IllegalEvent)]
    assert len(refusals) == 1, outcomes
    assert "already" in str(refusals[0])
    (decision,) = [event for event in list_events(engine, "both") if event["type"] == "decided"]
    assert decision["approved"] is (outcomes[1] is refusals[0])
    check_log(store)


async def test_an_update_for_a_completed_workflow_asks_the_log(server: str) -> None:
    """The workflow has completed. A decision that the log has already is `repeated`, another one about the
    same call is refused with who decided, and so is one about no call, a cancellation, and one for a
    conversation that does not exist. Nothing is written, and the workflows end with the result again."""
    store = MemoryStore()
    async with make_engine(store, pay, approval=True) as engine, work(engine, server) as client:
        temporal = await Client.connect(server)
        conversation = TemporalConversation(temporal, "payer", "done")
        await client.submit("the bill", conversation="done")
        (call,) = (await wait_for_question(conversation))["approvals"]
        await conversation.decide(call["id"], approved=True, by="ann", update_id="u1")
        result, newest = await conversation.read_result(), store.read_last_line("done")
        again = await conversation.decide(call["id"], approved=True, by="ann", update_id="u2")
        assert again.outcome == "repeated"
        with pytest.raises(IllegalEvent, match="decided already: approved by 'ann'"):
            await conversation.decide(call["id"], approved=False, by="bob")
        with pytest.raises(IllegalEvent, match="no call 'another' waits"):
            await conversation.decide("another", approved=True)
        with pytest.raises((SpecError, IllegalEvent), match=r"no turn of .*conversation.* is open"):
            await conversation.cancel("too late")
        assert (await conversation.read_result(), store.read_last_line("done")) == (result, newest)
        nobody = TemporalConversation(temporal, "payer", "nobody")
        with pytest.raises(NotFound):
            await nobody.decide("x", approved=True)
        assert await nobody.read_result() is None
        for name in ("done", "nobody"):
            await replay_runs(temporal, build_workflow_id("payer", name))
    check_log(store)


async def test_an_update_reaches_a_conversation_whose_workflow_was_terminated(server: str) -> None:
    """Somebody terminates the workflow of a conversation that waits. A decision starts another one, which
    knows nothing of it, asks the log, and ends the conversation."""
    store = MemoryStore()
    async with make_engine(store, pay, approval=True) as engine, work(engine, server) as client:
        temporal = await Client.connect(server)
        conversation = TemporalConversation(temporal, "payer", "gone")
        await client.submit("the bill", conversation="gone")
        (call,) = (await wait_for_question(conversation))["approvals"]
        await temporal.get_workflow_handle(build_workflow_id("payer", "gone")).terminate()
        assert (await conversation.decide(call["id"], approved=True)).outcome == "handed_over"
        result = await conversation.read_result()
        assert (result or {})["tool_calls"][0]["outcome"] == "succeeded"
        runs = await replay_runs(temporal, build_workflow_id("payer", "gone"))
    assert len(runs) == 2
    check_log(store)


@pytest.mark.parametrize("longest_wait_s", [0.05, 7200.0])
async def test_a_question_is_answered_by_an_update(server: str, longest_wait_s: float) -> None:
    """The query has the question, its form and its deadline: also while a worker waits for the deadline
    itself, within its stretch. An answer that does not fit the form is refused, and the right one goes on."""
    store = MemoryStore()
    spec = {
        "llms": {"model": {"provider": "scripted", "model": "m"}},
        "responses": [{"llm": "model"}],
        **ASKING,
    }
    async with (
        Engine(spec, log=store, longest_wait_s=longest_wait_s) as engine,
        work(engine, server) as client,
    ):
        temporal = await Client.connect(server)
        conversation = TemporalConversation(temporal, "asker", "asked")
        await client.submit("go", conversation="asked")
        waiting = await wait_for_question(conversation, "questions")
        (question,) = waiting["questions"]
        assert waiting == engine.conversation("asked").waiting.to_dict()
        assert (question["question"], question["due"]) == ("How much?", waiting["due"])
        assert question["form"]["required"] == ["amount"]
        with pytest.raises(SpecError, match="amount"):
            await conversation.answer({"amount": "much"})
        with pytest.raises((IllegalEvent, SpecError), match="another"):
            await conversation.answer({"amount": 3}, question="another")
        assert (await conversation.answer({"amount": 3}, by="ann")).outcome == "handed_over"
        result = await conversation.read_result()
        assert (result or {})["content"] == "3 it is"
        await replay_runs(temporal, build_workflow_id("asker", "asked"))
    check_log(store)


async def test_a_turn_is_cancelled_by_an_update(server: str) -> None:
    """A cancellation by update ends a turn that waits, as the chart says; the result says so."""
    store = MemoryStore()
    async with make_engine(store, pay, **ASKING) as engine, work(engine, server) as client:
        temporal = await Client.connect(server)
        conversation = TemporalConversation(temporal, "asker", "stopped")
        await client.submit("go", conversation="stopped")
        await wait_for_question(conversation, "questions")
        assert (await conversation.cancel("asked twice", author="ann")).outcome == "handed_over"
        result = await conversation.read_result()
        assert (result or {})["state"] == "gave_up"
        await replay_runs(temporal, build_workflow_id("asker", "stopped"))
    check_log(store)


async def test_a_new_run_knows_the_updates_of_the_run_before(renewing_server: str) -> None:
    """A conversation waits while Temporal asks for new runs. The query still says what waits, and an update
    that is sent again with its id after that is answered as before."""
    store = MemoryStore()
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def pay_slowly(arguments: Any) -> str:
        begun.set()
        await goes_on.wait()
        return "paid"

    async with (
        make_engine(store, pay_slowly, approval=True) as engine,
        work(engine, renewing_server) as client,
    ):
        temporal = await Client.connect(renewing_server)
        id_ = build_workflow_id("payer", "renewed")
        conversation = TemporalConversation(temporal, "payer", "renewed")
        await client.submit("the bill", conversation="renewed")
        (call,) = (await wait_for_question(conversation))["approvals"]
        first = (await temporal.get_workflow_handle(id_).describe()).run_id
        while (await temporal.get_workflow_handle(id_).describe()).run_id == first:
            await client.wake("renewed")
            await asyncio.sleep(0.2)
        assert (await conversation.read_waiting())["approvals"] == [call]
        await conversation.decide(call["id"], approved=True, by="ann", update_id="u1")
        await begun.wait()
        again = await conversation.decide(call["id"], approved=True, by="ann", update_id="u1")
        assert again.outcome == "handed_over"
        goes_on.set()
        assert (await conversation.read_result() or {})["ok"]
        assert len(await replay_runs(temporal, id_)) > 1
    decisions = [event for event in list_events(engine, "renewed") if event["type"] == "decided"]
    assert len(decisions) == 1
    check_log(store)


async def test_what_is_no_update_is_refused(server: str) -> None:
    """An update that breaks its form is refused with the field that is wrong, by any client of Temporal."""
    async with make_engine(MemoryStore(), pay, approval=True) as engine, work(engine, server) as client:
        temporal = await Client.connect(server)
        conversation = TemporalConversation(temporal, "payer", "broken")
        await client.submit("the bill", conversation="broken")
        await wait_for_question(conversation)
        handle = temporal.get_workflow_handle(build_workflow_id("payer", "broken"))
        for data in ({"approved": True}, {"call_id": 5, "approved": True}, {"call_id": "c", "aproved": True}):
            with pytest.raises(WorkflowUpdateFailedError) as caught:
                await handle.execute_update("decide", data)
            assert "no argument of the update 'decide'" in str(caught.value.cause)
        (run,) = await replay_runs(temporal, handle.id)
        assert not any(_is_accepted(event) for event in run.events)


async def test_half_of_a_surrogate_pair_stops_no_workflow(server: str) -> None:
    """JSON may have half of a pair, and UTF-8 has not. An update with one is refused, and the call still
    waits. What the log has with one is in the result with U+FFFD, and the workflow ends."""
    async with make_engine(MemoryStore(), pay, approval=True) as engine, work(engine, server) as client:
        conversation = TemporalConversation(await Client.connect(server), "payer", "odd")
        await client.submit("the bill", conversation="odd")
        (call,) = (await wait_for_question(conversation))["approvals"]
        for field in ({"reason": "\ud800"}, {"by": "\ud800"}, {"arguments": {"text": "\ud800"}}):
            with pytest.raises(SpecError, match="half of a surrogate pair"):
                await conversation.decide(call["id"], approved=False, **field)
        await client.decide("odd", Decided(call_id=call["id"], approved=False, reason="no \ud800"))
        async with asyncio.timeout(60):
            result = await conversation.read_result()
    assert result is not None
    assert "not executed: no \ufffd" in str(result["tool_calls"])


async def test_a_time_limit_of_the_sender_holds_without_a_worker(server: str) -> None:
    """Nobody works, so an update has no answer: the sender's own time limit ends it as any other call, and
    where the server gives up first, the host is unavailable."""
    temporal = await Client.connect(server)
    conversation = TemporalConversation(temporal, "payer", "alone")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await conversation.cancel()
    with (
        patch.object(
            Client,
            "execute_update_with_start_workflow",
            AsyncMock(side_effect=WorkflowUpdateRPCTimeoutOrCancelledError()),
        ),
        pytest.raises(DurableHostUnavailable),
    ):
        await conversation.cancel()


async def test_what_has_no_place_is_the_same_error_after_the_end(server: str) -> None:
    """The workflow has completed, so the log is asked: a cancellation and an answer are illegal events, as
    they are while it is open."""
    async with make_engine(MemoryStore(), pay) as engine, work(engine, server) as client:
        conversation = TemporalConversation(await Client.connect(server), "payer", "over")
        await client.submit("the bill", conversation="over")
        await conversation.read_result()
        for say in (conversation.cancel, lambda: conversation.answer({"amount": 1})):
            with pytest.raises(IllegalEvent):
                await say()


async def test_a_worker_may_keep_content_away_from_temporal(server: str) -> None:
    """With `shows_content=False` neither result nor what waits has a word of the conversation; ids, names and
    states are there, so a call can be decided."""
    store = MemoryStore()
    async with (
        make_engine(store, pay, approval=True) as engine,
        work(engine, server, shows_content=False) as client,
    ):
        temporal = await Client.connect(server)
        id_ = build_workflow_id("payer", "quiet")
        await client.submit("secret-word", conversation="quiet")
        conversation = TemporalConversation(temporal, "payer", "quiet")
        (call,) = (await wait_for_question(conversation))["approvals"]
        assert (call["tool"], call["params"]) == ("pay", None)
        await conversation.decide(call["id"], approved=True)
        result = await conversation.read_result()
        runs = await replay_runs(temporal, id_)
        assert (await temporal.get_workflow_handle(id_).query(WAITING))["approvals"] == []
    assert result is not None
    assert (result["ok"], result["content"], result["state"]) == (True, "", "finished")
    assert not any("secret-word" in msgspec.json.encode(run.to_json_dict()).decode() for run in runs)


def test_large_reports_are_cut_to_names_and_numbers() -> None:
    """What is too large for Temporal is left out of a report, which says where it is."""
    result = {"ok": True, "is_over": True, "content": "x" * 300_000, "tool_calls": [1], "state": "finished"}
    short = fit_result(result)
    assert (short["content"], short["state"], short["tool_calls"]) == ("", "finished", [])
    assert short["warnings"] == ["the log has the whole result: it has 300075 bytes"]
    row = {"id": "c", "tool": "pay", "params": {"text": "x" * 300_000}, "conversation": "a", "runs": "x"}
    waiting = {"approvals": [row], "questions": [], "calls": [], "due": None}
    assert fit_waiting(waiting)["approvals"] == [
        {"id": "c", "tool": "pay", "params": None, "conversation": "a"}
    ]


@pytest.mark.parametrize("conversation", ["x" * 1_100, "\N{GRINNING FACE}" * 400])
async def test_an_id_that_temporal_never_takes_is_refused(conversation: str) -> None:
    """Before the server is asked, for a handle as for a host."""
    client: Any = AsyncMock()
    stretch = Stretch(conversation=conversation, key="wake/1", version="v")
    with pytest.raises(SpecError, match="use a shorter one"):
        TemporalConversation(client, "payer", conversation)
    with pytest.raises(SpecError, match="use a shorter one"):
        await TemporalHost(client, "payer").start(stretch)
    assert client.mock_calls == []


@pytest.mark.parametrize("value", [object(), {object()}, [object()]])
async def test_what_json_has_no_value_for_is_refused(value: Any) -> None:
    """Before the server is asked: an error as for any other wrong field, and never a TypeError."""
    client: Any = AsyncMock()
    conversation = TemporalConversation(client, "payer", "c")
    with pytest.raises(SpecError, match="of the update"):
        await conversation.decide("call", approved=True, arguments={"text": value})
    with pytest.raises(SpecError, match="of the update"):
        await conversation.answer({"text": value})
    with pytest.raises(SpecError, match="no argument of the update 'answer'"):
        await conversation.answer(cast("Any", value))
    assert client.mock_calls == []


async def test_one_id_for_two_updates_is_two_updates(server: str) -> None:
    """What is sent again with its id is taken once. Another decision with that id does not get the answer of
    the first: it is refused, as the call has its decision."""
    async with make_engine(MemoryStore(), pay, approval=True) as engine, work(engine, server) as client:
        conversation = TemporalConversation(await Client.connect(server), "payer", "twice")
        await client.submit("the bill", conversation="twice")
        (call,) = (await wait_for_question(conversation))["approvals"]
        answers = [await conversation.decide(call["id"], approved=True, update_id="u") for _ in range(2)]
        assert answers[0] == answers[1]
        with pytest.raises(IllegalEvent):
            await conversation.decide(call["id"], approved=False, update_id="u")
