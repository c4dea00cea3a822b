"""The activity that performs stretches, in the SDK's own environment: signs of life, ends and errors."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from durable_scripts import check_log
from durable_workers import make_engine, submit_message

from toolchart.engine import Engine
from toolchart.engine.durable.stretches import Rest, Stretch
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore

pytest.importorskip("temporalio", reason="needs the extra `temporal`")

from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from toolchart.engine.durable import temporal_worker
from toolchart.engine.durable.temporal_reports import Report
from toolchart.engine.durable.temporal_worker import StretchActivity

TURN = Stretch(conversation="c", key="turn/1", version="v")


async def run_activity(environment: ActivityEnvironment, engine: Engine, stretch: Any) -> Rest:
    """Run the activity as a worker does; what it says of its stretch."""
    return (await report_activity(environment, engine, stretch)).rest


async def report_activity(
    environment: ActivityEnvironment, engine: Engine, stretch: Any, **options: Any
) -> Report:
    """Run the activity as a worker does; how it reports the conversation to its workflow."""
    data = await environment.run(StretchActivity(engine, **options).perform, msgspec.to_builtins(stretch))
    return msgspec.convert(data, Report)


def list_types(store: MemoryStore) -> list[str]:
    """The types of the conversation's events, in order."""
    return [step.record.event["type"] for step in replay_conversation(store, "c")]


async def test_the_activity_performs_a_stretch_once() -> None:
    """What it returns says how the conversation was left. Run again, as Temporal does where the first answer
    was lost, it pays nothing and says the same."""
    store, payments = MemoryStore(), []

    async def pay(arguments: Any) -> str:
        payments.append(arguments["text"])
        return "paid"

    async with make_engine(store, pay) as engine:
        submit_message(store, TURN, "the bill")
        rests = [await run_activity(ActivityEnvironment(), engine, TURN) for _ in range(2)]
    assert payments == ["the bill"]
    assert [rest.outcome for rest in rests] == ["over", "over"]
    assert rests[0] == rests[1]
    check_log(store)


async def test_the_activity_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a tool runs the activity goes on to say that it lives, however long that takes."""
    monkeypatch.setattr(temporal_worker, "BEAT_S", 0.001)
    environment, goes_on = ActivityEnvironment(), asyncio.Event()
    beats = 0

    def count_beat(*details: Any) -> None:
        nonlocal beats
        beats += 1
        if beats == 5:
            goes_on.set()

    async def pay(arguments: Any) -> str:
        await goes_on.wait()
        return "paid"

    environment.on_heartbeat = count_beat
    async with make_engine(MemoryStore(), pay) as engine:
        submit_message(engine.store, TURN, "the bill")
        assert (await run_activity(environment, engine, TURN)).outcome == "over"
    assert goes_on.is_set()


async def test_what_is_no_stretch_is_not_tried_again() -> None:
    """An input that is none is an error that Temporal does not repeat."""
    async with make_engine(MemoryStore(), str) as engine:
        with pytest.raises(ApplicationError, match="no stretch") as caught:
            await run_activity(ActivityEnvironment(), engine, {"conversation": 5})
    assert caught.value.non_retryable


async def cancel_in_mid_call(store: MemoryStore, details: ActivityCancellationDetails) -> Rest:
    """Run the activity, and cancel it while its tool runs; where that is no cancellation of the workflow, the
    tool ends afterwards."""
    environment, begun, goes_on = ActivityEnvironment(), asyncio.Event(), asyncio.Event()

    async def pay(arguments: Any) -> str:
        begun.set()
        await goes_on.wait()
        return "paid"

    async with make_engine(store, pay) as engine:
        submit_message(engine.store, TURN, "the bill")
        task = asyncio.create_task(run_activity(environment, engine, TURN))
        await begun.wait()
        environment.cancel(details)
        await asyncio.sleep(0)
        if not details.cancel_requested:
            goes_on.set()
        return await task


async def test_a_cancelled_workflow_cancels_the_turn() -> None:
    """Where the workflow was cancelled, so is the turn, in the log, and the activity returns its rest."""
    store = MemoryStore()
    details = ActivityCancellationDetails(cancel_requested=True)
    rest = await cancel_in_mid_call(store, details)
    assert rest.outcome == "over"
    assert list_types(store).count("cancelled") == 1
    check_log(store)


@pytest.mark.parametrize("reason", ["timed_out", "not_found", "worker_shutdown", "paused", "reset"])
async def test_a_stretch_that_is_taken_away_goes_on(reason: str) -> None:
    """Where Temporal takes the stretch away for another reason, this worker may be the only one that can end
    the call without a doubt: the turn goes on, and nothing in the log says that somebody cancelled it."""
    store = MemoryStore()
    details = ActivityCancellationDetails(**{reason: True})
    rest = await cancel_in_mid_call(store, details)
    assert rest.outcome == "over"
    assert "cancelled" not in list_types(store)
    check_log(store)
