"""Workers on Temporal, with its development server; the equality of all hosts."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from durable_scripts import (
    FLOWS,
    PAUSING,
    PAUSING_CHART,
    ROUNDS,
    Script,
    check_log,
    list_scripts,
    read_comparable_log,
    run_in_process,
    run_on_host,
)
from durable_workers import make_engine as make_payer
from durable_workers import run_temporal_worker
from effort import IS_LONG
from paying_agent import make_engine, read_waiting_calls

from toolchart.engine import Engine
from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.stretches import Stretch
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import DurableHostUnavailable, TurnChanged
from toolchart.states.events import Decided

pytest.importorskip("temporalio", reason="needs the extra `temporal`")

from temporal_histories import RENEW_OPTIONS, fetch_runs
from temporal_server import find_server, run_server
from temporal_work import has_state, wait_until, work
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import CancelledError

from toolchart.engine.durable.temporal_worker import (
    TemporalHost,
    TemporalWorker,
    build_queue_name,
    build_workflow_id,
)
from toolchart.engine.durable.temporal_workflow import SIGNAL, WORKFLOW

PROGRAM = find_server()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="needs Temporal's program `temporal`"),
]


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server in memory; one for each test, whose agents have the same name."""
    assert PROGRAM is not None
    with run_server(PROGRAM) as address:
        yield address


@pytest.fixture
def renewing_server() -> Iterator[str]:
    """The address of a server that soon asks for a new run of each workflow."""
    assert PROGRAM is not None
    with run_server(PROGRAM, *RENEW_OPTIONS) as address:
        yield address


def read_ended_turns(engine: Engine, conversation: str) -> list[str]:
    """The messages of a conversation's turns; none while one is open."""
    if not has_state(engine, conversation, "finished"):
        return []
    events = [step.record.event for step in replay_conversation(engine.store, conversation)]
    return [event["message"] for event in events if event["type"] == "turn_started"]


async def test_temporal_runs_what_others_hand_over(server: str) -> None:
    """A turn waits for an approval across the end of its worker. The decision that is handed over afterwards
    is carried out by the next worker; a key that is used twice runs one turn. The log replays."""
    store, payments = MemoryStore(), []

    def pay(arguments: Any) -> str:
        payments.append(arguments["text"])
        return "paid"

    async with make_engine(store, pay, approval=True) as engine, work(engine, server) as client:
        for _ in range(2):
            await client.submit("the bill", key="temporal")
        await wait_until(lambda: has_state(engine, "temporal", "awaiting_approval"))
    async with make_engine(store, pay, approval=True) as engine:
        (call,) = read_waiting_calls(engine, "temporal")
        async with work(engine, server) as client:
            await client.decide("temporal", Decided(call_id=call.id, approved=True))
            await wait_until(lambda: has_state(engine, "temporal", "finished"))
    types = [step.record.event["type"] for step in replay_conversation(store, "temporal")]
    assert (payments, types.count("turn_started")) == (["the bill"], 1)
    assert list(replay_conversation(store, "temporal"))


class SilentHost:
    """Starts nothing, as where the process of the sender is killed."""

    async def start(self, stretch: Stretch) -> None:
        """Nothing: Temporal never hears of it."""


async def test_a_message_whose_sender_never_comes_again_is_run_by_the_next_worker(server: str) -> None:
    """A sender has kept its message in the log and has died before Temporal knew of it. The next worker of
    its version begins the turn; one of another chart leaves it."""
    store = MemoryStore()

    async def pay(arguments: Any) -> str:
        return "paid"

    async with make_payer(store, pay) as engine:
        await DurableClient(engine, SilentHost()).submit("the bill", conversation="left")
        pausing = {"chart": PAUSING_CHART, "effects": PAUSING["effects"]}
        async with make_payer(store, pay, **pausing) as other, work(other, server):
            pass
        assert [entry.conversation for entry in store.list_submissions()] == ["left"]
        async with work(engine, server):
            await wait_until(lambda: has_state(engine, "left", "finished"))
        assert (read_ended_turns(engine, "left"), list(store.list_submissions())) == (["the bill"], [])


async def test_a_release_with_another_chart_leaves_old_conversations_to_old_workers(server: str) -> None:
    """An approval waits across the end of every worker. A worker of a changed chart runs new conversations,
    with a timer that Temporal keeps, and leaves the old one alone though it is decided. A worker of the old
    chart ends it with the old chart."""
    store, payments = MemoryStore(), []

    async def pay(arguments: Any) -> str:
        payments.append(arguments["text"])
        return "paid"

    async with make_payer(store, pay, approval=True) as old:
        async with work(old, server) as client:
            await client.submit("the bill", key="old")
            await wait_until(lambda: has_state(old, "old", "awaiting_approval"))
        (call,) = read_waiting_calls(old, "old")
        pausing = {"chart": PAUSING_CHART, "effects": PAUSING["effects"]}
        async with make_payer(store, pay, approval=True, **pausing) as new:
            async with work(new, server) as client:
                await client.decide("old", Decided(call_id=call.id, approved=True))
                await client.submit("go", key="new")
                await wait_until(lambda: has_state(new, "new", "finished"))
            types = [step.record.event["type"] for step in replay_conversation(store, "new")]
            assert types[-2:] == ["resumed", "elapsed"]
        assert old.conversation("old").read_turn().state == "awaiting_approval"
    async with make_payer(store, pay, approval=True) as other, work(other, server):
        await wait_until(lambda: has_state(other, "old", "finished"))
    assert payments == ["the bill"]
    check_log(store)


async def test_the_work_of_a_killed_worker_is_handed_on(server: str, tmp_path: Path) -> None:
    """A worker that is killed while its tool runs gives no sign of life any more, so Temporal gives its
    stretch to the next one. The turn ends; the payment may have been made, so it is not repeated."""
    marks, address = tmp_path / "marks", str(tmp_path / "log.db")
    marks.touch()

    async def pay(arguments: Any) -> str:
        raise AssertionError("the payment was repeated")

    process = multiprocessing.get_context("spawn").Process(
        target=run_temporal_worker, args=(address, server, marks)
    )
    process.start()
    try:
        async with make_payer(address, pay) as engine:
            client = await Client.connect(server)
            await DurableClient(engine, TemporalHost(client, "payer")).submit("the bill", key="killed")
            await wait_until(lambda: bool(marks.read_text()))
            process.kill()
            process.join()
            async with work(engine, server):
                await wait_until(lambda: has_state(engine, "killed", "finished"))
            (call,) = engine.conversation("killed").read_turn().tool_calls
            assert (call.outcome, marks.read_text()) == ("interrupted", "the bill\n")
            check_log(engine.store)
    finally:
        process.kill()


async def test_a_cancelled_workflow_cancels_its_turn(server: str) -> None:
    """Who cancels the workflow in Temporal's pages cancels the turn that runs: the log has the event, and the
    tool is stopped. Another message afterwards begins another turn, in another run of the workflow."""
    store, begun = MemoryStore(), asyncio.Event()

    async def pay(arguments: Any) -> str:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return "paid"

    async with make_payer(store, pay) as engine, work(engine, server) as client:
        await client.submit("one", conversation="stopped")
        await begun.wait()
        temporal = await Client.connect(server)
        handle = temporal.get_workflow_handle(build_workflow_id("payer", "stopped"))
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        assert engine.conversation("stopped").read_turn().is_over
        types = [step.record.event["type"] for step in replay_conversation(store, "stopped")]
        assert types.count("cancelled") == 1
        await client.submit("two", conversation="stopped")
        await wait_until(lambda: has_state(engine, "stopped", "finished"))
    check_log(store)


async def test_a_workflow_that_begins_again_knows_what_it_has_done(renewing_server: str) -> None:
    """Where Temporal asks for a new run, the workflow carries over what is open and what it has had: a timer
    still fires, a key that was used before runs no turn, another message under it is refused, and what is no
    stretch is left out."""
    script = next(script for script in list_scripts({}) if script.name == "timer")
    store = MemoryStore()
    async with script.make_engine(store) as engine, work(engine, renewing_server) as client:
        temporal = await Client.connect(renewing_server)
        id_ = build_workflow_id("pausing", "again")
        for key, messages in {"1": ["1"], "2": ["1", "2"], "3": ["1", "2", "3"]}.items():
            await client.submit(key, conversation="again", key=key)
            await wait_until(lambda messages=messages: read_ended_turns(engine, "again") == messages)  # type: ignore[misc]
            await temporal.start_workflow(
                WORKFLOW,
                id=id_,
                task_queue=build_queue_name("pausing"),
                start_signal=SIGNAL,
                start_signal_args=[{"conversation": 5}],
            )
            await client.submit("1", conversation="again", key="1")
            with pytest.raises(TurnChanged, match="key '1' was used"):
                await client.submit("once more", conversation="again", key="1")
        assert len(await fetch_runs(temporal, id_)) > 2
    assert read_ended_turns(engine, "again") == ["1", "2", "3"]
    check_log(store)


async def test_a_conversation_that_is_woken_keeps_one_timer(server: str) -> None:
    """Each look at a conversation that waits says again when it goes on; its stretch is started once."""
    store = MemoryStore()
    waits = {**PAUSING["effects"], "pause": {"wait": "4s"}}
    async with make_payer(store, str, chart=PAUSING_CHART, effects=waits) as engine:
        async with work(engine, server) as client:
            await client.submit("go", conversation="woken")
            await wait_until(lambda: has_state(engine, "woken", "waiting"))
            for _ in range(2):
                await client.wake("woken")
            await wait_until(lambda: has_state(engine, "woken", "finished"))
        temporal = await Client.connect(server)
        (run,) = await fetch_runs(temporal, build_workflow_id("payer", "woken"))
    scheduled = [event.activity_task_scheduled_event_attributes for event in run.events]
    stretches = [msgspec.json.decode(payload.data) for each in scheduled for payload in each.input.payloads]
    assert len([stretch for stretch in stretches if "due" in stretch]) <= 1  # a late look may do its work
    check_log(store)


async def test_large_messages_do_not_reach_a_workflow(renewing_server: str) -> None:
    """A message that is larger than Temporal takes lies in the log, so it runs. Where several large ones wait
    when Temporal asks for a new run, the workflow goes on, and so do messages; its history has none."""
    store = MemoryStore()

    async def pay(arguments: Any) -> str:
        return "paid"

    async with make_payer(store, pay) as engine:
        client = await Client.connect(renewing_server)
        sender = DurableClient(engine, TemporalHost(client, "payer"))
        for letter in "abcd":
            await sender.submit(letter * 2_200_000, conversation="large")
        async with work(engine, renewing_server):
            await wait_until(lambda: has_state(engine, "large", "finished"))
            await sender.submit("the end", conversation="large")
            await wait_until(lambda: "the end" in read_ended_turns(engine, "large"))
        runs = await fetch_runs(client, build_workflow_id("payer", "large"))
    assert not any("aaaa" in run.to_json() or "the end" in run.to_json() for run in runs)
    check_log(store)


async def test_a_server_that_is_away_is_an_error_that_says_so() -> None:
    """Neither a message nor a worker waits for a server that cannot be reached."""
    client = await Client.connect("127.0.0.1:1", lazy=True)
    stretch = Stretch(conversation="c", key="wake/1", version="v")
    with pytest.raises(DurableHostUnavailable, match="Temporal cannot be used"):
        await TemporalHost(client, "payer").start(stretch)
    async with make_engine(MemoryStore(), str) as engine:
        with pytest.raises(DurableHostUnavailable, match="Temporal cannot be used"):
            async with TemporalWorker(engine, client).run():
                raise AssertionError("it works without a server")


SHORT = ("approval", "cancellation", "timer", "map_reduce")
SCRIPTS = [script for script in list_scripts(FLOWS) if IS_LONG or script.name in SHORT]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_temporal_writes_the_log_that_the_engine_writes(server: str, script: Script) -> None:
    """What people do in a conversation gives the same records through Temporal as with the engine alone,
    times and hashes apart. Both logs verify and replay."""
    names = [f"{script.name}-{number}" for number in range(ROUNDS)]
    alone, shared = MemoryStore(), MemoryStore()
    async with script.make_engine(alone) as engine:
        for name in names:
            await run_in_process(engine, script.actions, name)
    async with script.make_engine(shared) as engine, work(engine, server) as client:
        await asyncio.gather(*(run_on_host(engine, client, script.actions, name) for name in names))
    assert read_comparable_log(shared) == read_comparable_log(alone)
    for store in (alone, shared):
        check_log(store)
